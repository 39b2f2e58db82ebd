"""Aggregate over time windows: an answer for each group and window.

A window is said when progress reaches its end. What comes later corrects it: nothing is dropped for being late.

    $ python -m examples.boxes.aggregate
    distances, now
      since=11:55  until=12:05  taxi=a  km=5
      since=12:00  until=12:10  taxi=a  km=9
      since=12:05  until=12:15  taxi=a  km=4
    distances, change by change
      bucket 1  insert            since=11:55  until=12:05  taxi=a  km=3
      bucket 2  insert            since=12:00  until=12:10  taxi=a  km=7
      bucket 2  insert            since=12:05  until=12:15  taxi=a  km=4
      bucket 3  update_preimage   since=11:55  until=12:05  taxi=a  km=3
      bucket 3  update_postimage  since=11:55  until=12:05  taxi=a  km=5
      bucket 3  update_preimage   since=12:00  until=12:10  taxi=a  km=7
      bucket 3  update_postimage  since=12:00  until=12:10  taxi=a  km=9
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM trips (taxi STRING, km INT, ts TIMESTAMP) EVENT TIME ts SLACK '1 minute'")
    # Windows of 10 minutes, a new one every 5: each trip is in two of them.
    engine.sql("""CREATE STREAM distances AS SELECT cq_open(*) AS since, cq_close(*) AS until, taxi, sum(km) AS km
        FROM trips <VISIBLE '10 minutes' ADVANCE '5 minutes'> GROUP BY taxi""")
    trips = engine.stream("trips")

    trips.append([("a", 3, "2026-01-01T12:01:00Z"), ("a", 4, "2026-01-01T12:07:00Z")])
    engine.advance()  # progress is 12:06, the slack behind the newest trip

    trips.append([("b", 9, "2026-01-01T12:16:00Z")])
    engine.advance()  # 12:15: two more windows close

    trips.append([("a", 2, "2026-01-01T12:02:00Z")])  # late: the two windows that it is in are corrected
    engine.advance()
    show(engine, "distances")


if __name__ == "__main__":
    play(main)
