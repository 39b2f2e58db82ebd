"""Union: the rows of several streams.

Corrections of each go through. Only what all of them have reached counts as progress.

    $ python -m examples.boxes.union
    sales, now
      shop=south  id=1  n=31
    sales, change by change
      bucket 1  insert            shop=north  id=1  n=10
      bucket 1  insert            shop=south  id=1  n=30
      bucket 2  delete            shop=north  id=1  n=10
      bucket 2  update_preimage   shop=south  id=1  n=30
      bucket 2  update_postimage  shop=south  id=1  n=31
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    for shop in ("north", "south"):
        engine.sql(f"CREATE STREAM {shop} (id INT, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("""CREATE STREAM sales AS
        SELECT 'north' AS shop, id, n FROM north UNION ALL SELECT 'south' AS shop, id, n FROM south""")
    north, south = engine.stream("north"), engine.stream("south")

    north.append([(1, 10, "2026-01-01T12:00:00Z")])
    south.append([(1, 30, "2026-01-01T12:01:00Z")])  # the same key in another stream is another row
    engine.advance()

    north.delete([1])
    south.replace([(1, 31, "2026-01-01T12:01:00Z")])
    engine.advance()
    show(engine, "sales")


if __name__ == "__main__":
    play(main)
