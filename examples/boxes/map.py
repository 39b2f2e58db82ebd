"""Map: columns that are computed from each row.

What a correction does not change in the computed columns is not said again.

    $ python -m examples.boxes.map
    euros, now
      id=1  item=PEN  euros=1
      id=2  item=INK  euros=3
    euros, change by change
      bucket 1  insert            id=1  item=PEN  euros=1
      bucket 1  insert            id=2  item=INK  euros=2
      bucket 1  insert            id=3  item=NIB  euros=3
      bucket 2  update_preimage   id=2  item=INK  euros=2
      bucket 2  update_postimage  id=2  item=INK  euros=3
      bucket 2  delete            id=3  item=NIB  euros=3
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM orders (id INT, item STRING, cents INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    # Every scalar expression of Spark SQL will do.
    engine.sql("CREATE STREAM euros AS SELECT id, upper(item) AS item, cents div 100 AS euros FROM orders")
    orders = engine.stream("orders")

    at = "2026-01-01T12:0{}:00Z".format
    orders.append([(1, "pen", 150, at(1)), (2, "ink", 250, at(2)), (3, "nib", 350, at(3))])
    engine.advance()

    orders.replace([(1, "pen", 199, at(1)), (2, "ink", 300, at(2))])  # 1 is one euro, before and after
    orders.delete([3])
    engine.advance()
    show(engine, "euros")


if __name__ == "__main__":
    play(main)
