"""Lookup: rows with what a table holds for them; a change of the table revises what was said, or does not.

A table is anything that Spark can read. `REPLACE TABLE` reads it again, and changes what differs.

    $ python -m examples.boxes.lookup
    worth, now
      item=rum  euros=9
      item=tea  euros=4
      item=tea  euros=8
    worth, change by change
      bucket 1  insert            item=tea  euros=6
      bucket 1  insert            item=rum  euros=9
      bucket 2  delete            item=tea  euros=6
      bucket 2  insert            item=tea  euros=8
      bucket 2  insert            item=tea  euros=4
    billed, now
      item=rum  euros=9
      item=tea  euros=4
      item=tea  euros=6
    billed, change by change
      bucket 1  insert            item=tea  euros=6
      bucket 1  insert            item=rum  euros=9
      bucket 2  insert            item=tea  euros=4
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM sales (item STRING, n INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE TABLE prices KEY (item) AS SELECT * FROM VALUES ('tea', 3), ('rum', 9) AS v (item, price)")
    engine.sql("""CREATE STREAM worth AS SELECT s.item, n * price AS euros
        FROM sales AS s LOOKUP prices AS p ON s.item = p.item""")
    engine.sql("""CREATE STREAM billed AS SELECT s.item, n * price AS euros
        FROM sales AS s LOOKUP prices AS p ON s.item = p.item WITHOUT REVISION""")
    sales = engine.stream("sales")

    sales.append([("tea", 2, "2026-01-01T12:00:00Z"), ("rum", 1, "2026-01-01T12:01:00Z")])
    engine.advance()

    engine.sql("REPLACE TABLE prices AS SELECT * FROM VALUES ('tea', 4), ('rum', 9) AS v (item, price)")
    sales.append([("tea", 1, "2026-01-01T12:02:00Z")])
    engine.advance()
    show(engine, "worth")  # what everything would cost today
    show(engine, "billed")  # what was billed was billed


if __name__ == "__main__":
    play(main)
