"""Aggregate over windows of rows: of each group so many rows, in the order of their event times.

A window is said when it is full and progress has reached its last row. A late row moves all rows behind it by one
place, so every later window of its group is corrected.

    $ python -m examples.boxes.counts
    ranges, now
      item=a  low=1  high=9  at=12:02
      item=a  low=2  high=5  at=12:05
    ranges, change by change
      bucket 1  insert            item=a  low=1  high=3  at=12:03
      bucket 1  insert            item=a  low=3  high=6  at=12:06
      bucket 2  update_preimage   item=a  low=1  high=3  at=12:03
      bucket 2  update_postimage  item=a  low=1  high=9  at=12:02
      bucket 2  update_preimage   item=a  low=3  high=6  at=12:06
      bucket 2  update_postimage  item=a  low=2  high=5  at=12:05
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM trades (item STRING, price INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM ranges AS SELECT item, min(price) AS low, max(price) AS high, cq_close(*) AS at
        FROM trades <VISIBLE 3 ROWS ADVANCE 2 ROWS> GROUP BY item""")
    trades = engine.stream("trades")

    trades.append([("a", price, f"2026-01-01T12:0{price}:00Z") for price in (1, 2, 3, 5, 6)])
    engine.advance()  # the rows 1, 2, 3 and 3, 5, 6

    trades.append([("a", 9, "2026-01-01T12:01:30Z")])  # late: now 1, 9, 2 and 2, 3, 5
    engine.advance()
    show(engine, "ranges")


if __name__ == "__main__":
    play(main)
