"""Functions of your own, in Python: a value of each window, or rows.

A function gets the rows of a window as a pandas DataFrame, or as an Arrow table if its parameter says so, in the
order of their event times. When a window is corrected it runs again, and the difference is said.

    $ python -m examples.boxes.apply
    steps, now
      item=a  most=16.0
    steps, change by change
      bucket 1  insert            item=a  most=3.0
      bucket 2  update_preimage   item=a  most=3.0
      bucket 2  update_postimage  item=a  most=16.0
    peaks, now
      price=14
      price=30
    peaks, change by change
      bucket 1  insert            price=14
      bucket 1  insert            price=15
      bucket 2  update_preimage   price=15
      bucket 2  update_postimage  price=30
"""

import pandas as pd
import pyarrow as pa

import anabranch as ab
from examples.boxes.play import play, show


def steepest(rows: pd.DataFrame) -> float:
    """The greatest step from one price to the next."""
    return float(rows["price"].diff().abs().max())


def turns(rows: pa.Table) -> list[dict[str, int]]:
    """The prices at which the direction changes."""
    prices = rows["price"].to_pylist()
    middle = zip(prices, prices[1:], prices[2:], strict=False)
    return [{"price": b} for a, b, c in middle if (b - a) * (c - b) < 0]


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM trades (item STRING, price INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM steps AS SELECT item, apply('examples.boxes.apply:steepest', 'DOUBLE', price) AS most
        FROM trades <SLICES '10 minutes'> GROUP BY item""")
    engine.sql("""CREATE STREAM peaks AS SELECT price FROM trades <SLICES '10 minutes'> GROUP BY item
        APPLY 'examples.boxes.apply:turns' RETURNS (price INT)""")
    trades = engine.stream("trades")

    trades.append([("a", price, f"2026-01-01T12:0{at}:00Z") for at, price in enumerate([10, 12, 15, 14, 16])])
    trades.append([("a", 17, "2026-01-01T12:10:00Z")])
    engine.advance()

    trades.append([("a", 30, "2026-01-01T12:02:30Z")])  # late, and steep
    engine.advance()
    show(engine, "steps")
    show(engine, "peaks")


if __name__ == "__main__":
    play(main)
