"""Running aggregate: without a window, one row for each group, updated as rows come.

A group that has no rows left is taken back.

    $ python -m examples.boxes.running
    best, now
      item=lamp  bids=2  best=10
    best, change by change
      bucket 1  insert            item=lamp  bids=2  best=90
      bucket 1  insert            item=vase  bids=1  best=5
      bucket 2  update_preimage   item=lamp  bids=2  best=90
      bucket 2  update_postimage  item=lamp  bids=2  best=10
      bucket 2  delete            item=vase  bids=1  best=5
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM bids (id INT, item STRING, euros INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("CREATE STREAM best AS SELECT item, count(*) AS bids, max(euros) AS best FROM bids GROUP BY item")
    bids = engine.stream("bids")

    noon = "2026-01-01T12:00:00Z"
    bids.append([(1, "lamp", 10, noon), (2, "lamp", 90, noon), (3, "vase", 5, noon)])
    engine.advance()

    bids.replace([(2, "lamp", 9, noon)])  # it was 9 euros, not 90: the best bid is another one now
    bids.delete([3])
    engine.advance()
    show(engine, "best")


if __name__ == "__main__":
    play(main)
