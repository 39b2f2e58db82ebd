"""Filter: the rows for which a condition is true.

A replacement is filtered as it was before and as it is now, and the difference is said: four cases.

    $ python -m examples.boxes.filter
    big, now
      id=1  n=30
      id=3  n=50
    big, change by change
      bucket 1  insert            id=1  n=20
      bucket 1  insert            id=2  n=20
      bucket 2  update_preimage   id=1  n=20
      bucket 2  update_postimage  id=1  n=30
      bucket 2  delete            id=2  n=20
      bucket 2  insert            id=3  n=50
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM orders (id INT, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("CREATE STREAM big AS SELECT id, n FROM orders WHERE n > 10")
    orders = engine.stream("orders")

    orders.append([(id, n, f"2026-01-01T12:0{id}:00Z") for id, n in [(1, 20), (2, 20), (3, 5), (4, 5)]])
    engine.advance()  # one bucket: 1 and 2 pass

    # Each is corrected: 1 passes as before, 2 no longer, 3 passes now, and of 4 nobody has ever heard.
    orders.replace([(id, n, f"2026-01-01T12:0{id}:00Z") for id, n in [(1, 30), (2, 4), (3, 50), (4, 6)]])
    engine.advance()
    show(engine, "big")


if __name__ == "__main__":
    play(main)
