"""Join: pairs of rows that belong together.

WITHIN says how far apart in event time they may be. Here a left row without a partner is said too, once its time has
passed, and taken back when a partner comes after all.

    $ python -m examples.boxes.join
    clicked, now
      ad=1  user=ann
      ad=2  user=bob
    clicked, change by change
      bucket 1  insert            ad=1  user=ann
      bucket 2  insert            ad=2  user=None
      bucket 3  delete            ad=2  user=None
      bucket 3  insert            ad=2  user=bob
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM ads (ad INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM clicks (ad INT, user STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM clicked AS SELECT a.ad, c.user
        FROM ads a LEFT JOIN clicks c ON a.ad = c.ad WITHIN '5 minutes'""")
    ads, clicks = engine.stream("ads"), engine.stream("clicks")

    ads.append([(1, "2026-01-01T12:00:00Z"), (2, "2026-01-01T12:01:00Z")])
    clicks.append([(1, "ann", "2026-01-01T12:03:00Z")])
    engine.advance()  # a pair; nobody has clicked on 2, but somebody still may

    for stream in (ads, clicks):
        stream.punctuate("2026-01-01T12:10:00Z")  # nothing before 12:10 is to be waited for
    engine.advance()

    clicks.append([(2, "bob", "2026-01-01T12:02:00Z")])  # it comes late, and counts
    engine.advance()
    show(engine, "clicked")


if __name__ == "__main__":
    play(main)
