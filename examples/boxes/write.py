"""Write: a table elsewhere follows a query.

Every change arrives there exactly once, whatever dies when.

    $ python -m examples.boxes.write
    in the lake
      bucket 2  insert            k=a  c=2
      bucket 3  update_preimage   k=a  c=2
      bucket 3  update_postimage  k=a  c=3
    followed to the end: 0 waiting
"""

import anabranch as ab
from examples.boxes.play import play, rows_of, text_of


def main(engine: ab.Engine) -> None:
    lake = engine.warehouse / "lake"
    engine.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM counts AS SELECT k, count(*) AS c FROM s <SLICES '1 minute'> GROUP BY k")
    engine.sql(f"CREATE SINK lake FROM counts TO '{lake}'")  # or TO 'postgresql://...', which keeps a table

    stream = engine.stream("s")
    stream.append([("a", "2026-01-01T12:00:10Z"), ("a", "2026-01-01T12:00:50Z")])
    engine.advance()
    stream.append([("b", "2026-01-01T12:01:10Z")])  # closes the minute
    engine.advance()
    stream.append([("a", "2026-01-01T12:00:30Z")])  # late
    engine.advance()

    print("in the lake")
    for row in rows_of(engine.spark.read.parquet(str(lake)).orderBy("_bucket", "_ordinal")):
        print(f"  bucket {row['_bucket']}  {row['_change_type']:16}  {text_of(row)}")
    (sink,) = engine.sinks()
    print(f"followed to the end: {sink.waiting} waiting")


if __name__ == "__main__":
    play(main)
