"""Read: anything that Spark can read, as a table.

`REPLACE TABLE` reads it again: only what differs is changed, and corrects what was said.

    $ python -m examples.boxes.read
    bought, now
      item=rum  kind=drink
      item=salt  kind=spice
    bought, change by change
      bucket 1  insert            item=rum  kind=food
      bucket 2  insert            item=rum  kind=drink
      bucket 2  delete            item=rum  kind=food
      bucket 2  insert            item=salt  kind=spice
"""

from pathlib import Path

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    kinds = Path(engine.warehouse) / "kinds.json"
    kinds.write_text('{"item": "tea", "kind": "drink"}\n{"item": "rum", "kind": "food"}\n')
    engine.sql("CREATE STREAM sales (item STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(f"CREATE TABLE kinds KEY (item) AS SELECT item, kind FROM json.`{kinds}`")
    engine.sql("CREATE STREAM bought AS SELECT s.item, kind FROM sales AS s JOIN kinds AS k ON s.item = k.item")
    engine.stream("sales").append([("rum", "2026-01-01T12:00:00Z"), ("salt", "2026-01-01T12:01:00Z")])
    engine.advance()

    kinds.write_text('{"item": "rum", "kind": "drink"}\n{"item": "salt", "kind": "spice"}\n')
    engine.sql(f"REPLACE TABLE kinds AS SELECT item, kind FROM json.`{kinds}`")
    engine.advance()
    show(engine, "bought")  # rum is another one now, salt is known, and tea is gone


if __name__ == "__main__":
    play(main)
