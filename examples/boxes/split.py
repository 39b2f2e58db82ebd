"""Split: each row goes one of several ways, by the first condition that is true of it.

A correction may move a row from one way to another: it is deleted there and inserted here.

    $ python -m examples.boxes.split
    big, now
    big, change by change
      bucket 1  insert            id=1  n=500  ts=12:01
      bucket 2  delete            id=1  n=500  ts=12:01
    some, now
      id=1  n=20  ts=12:01
      id=2  n=50  ts=12:02
    some, change by change
      bucket 1  insert            id=2  n=50  ts=12:02
      bucket 2  insert            id=1  n=20  ts=12:01
    few, now
      id=3  n=5  ts=12:03
    few, change by change
      bucket 1  insert            id=3  n=5  ts=12:03
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM orders (id INT, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("SPLIT STREAM orders INTO big WHEN n >= 100, some WHEN n >= 10, few OTHERWISE")
    orders = engine.stream("orders")

    orders.append([(id, n, f"2026-01-01T12:0{id}:00Z") for id, n in [(1, 500), (2, 50), (3, 5)]])
    engine.advance()

    orders.replace([(1, 20, "2026-01-01T12:01:00Z")])  # it was not so big
    engine.advance()
    show(engine, "big")
    show(engine, "some")
    show(engine, "few")


if __name__ == "__main__":
    play(main)
