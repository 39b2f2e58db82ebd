"""Sort: rows in the order of their event times, for clients that care.

Each row waits until progress has passed it. What comes later than that is late: it is said at once, so nothing
is dropped, and whoever wants order sees that this one is out of it.

    $ python -m examples.boxes.sort
    tape, now
      id=0  price=100
      id=1  price=101
      id=2  price=102
      id=3  price=103
    tape, change by change
      bucket 1  insert            id=1  price=101
      bucket 1  insert            id=2  price=102
      bucket 2  insert            id=0  price=100
      bucket 2  insert            id=3  price=103
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM trades (id INT, price INT, ts TIMESTAMP) EVENT TIME ts SLACK '1 minute'")
    engine.sql("CREATE STREAM tape AS SELECT id, price FROM trades ORDER BY EVENT TIME")
    trades = engine.stream("trades")

    trades.append(
        [(3, 103, "2026-01-01T12:03:00Z"), (1, 101, "2026-01-01T12:01:00Z"), (2, 102, "2026-01-01T12:01:30Z")]
    )
    engine.advance()  # progress is 12:02, a minute behind the newest: 3 waits

    trades.append([(5, 105, "2026-01-01T12:05:00Z"), (0, 100, "2026-01-01T12:00:00Z")])
    engine.advance()  # 12:04: 3 is passed, 0 is late, 5 waits
    show(engine, "tape")


if __name__ == "__main__":
    play(main)
