"""The first rows of each group: top-n, and with one row de-duplication.

Another order makes others the first. Rows that stay among the first are not said again.

    $ python -m examples.boxes.first
    best, now
      item=vase  id=1  price=90
      item=vase  id=3  price=60
    best, change by change
      bucket 1  insert            item=vase  id=2  price=70
      bucket 1  insert            item=vase  id=3  price=60
      bucket 2  update_preimage   item=vase  id=3  price=60
      bucket 2  update_postimage  item=vase  id=1  price=90
      bucket 3  update_preimage   item=vase  id=2  price=70
      bucket 3  update_postimage  item=vase  id=3  price=60
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM bids (id INT, item STRING, price INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("""CREATE STREAM best AS SELECT item, id, price FROM bids
        QUALIFY row_number() OVER (PARTITION BY item ORDER BY price DESC) <= 2""")
    bids = engine.stream("bids")

    bids.append([(id, "vase", price, f"2026-01-01T12:0{id}:00Z") for id, price in [(1, 50), (2, 70), (3, 60)]])
    engine.advance()

    bids.replace([(1, "vase", 90, "2026-01-01T12:01:00Z")])  # 3 is no longer among the best two
    engine.advance()

    bids.delete([2])  # and now it is again
    engine.advance()
    show(engine, "best")


if __name__ == "__main__":
    play(main)
