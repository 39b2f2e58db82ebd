"""Resample: the value at each instant of a grid, from rows at any time.

At an instant the last row up to it counts, if it is younger than the hold. A late row corrects the instants
after it.

    $ python -m examples.boxes.resample
    grid, now
      at=12:05  room=hall  degrees=21
      at=12:10  room=hall  degrees=23
      at=12:15  room=hall  degrees=23
    grid, change by change
      bucket 1  insert            at=12:05  room=hall  degrees=20
      bucket 2  insert            at=12:10  room=hall  degrees=23
      bucket 2  insert            at=12:15  room=hall  degrees=23
      bucket 3  update_preimage   at=12:05  room=hall  degrees=20
      bucket 3  update_postimage  at=12:05  room=hall  degrees=21
"""

import anabranch as ab
from examples.boxes.play import play, show


def main(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM meters (room STRING, degrees INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM grid AS SELECT cq_close(*) AS at, room, last(degrees) AS degrees
        FROM meters <RESAMPLE '5 minutes' HOLD '10 minutes'> GROUP BY room""")
    meters = engine.stream("meters")

    meters.append([("hall", 20, "2026-01-01T12:03:00Z"), ("hall", 23, "2026-01-01T12:10:00Z")])
    engine.advance()  # 12:05 is said; whether 12:10 has more rows is not known yet

    meters.append([("attic", 5, "2026-01-01T12:21:00Z")])
    engine.advance()  # 12:10 and 12:15; at 12:20 the 23 degrees are ten minutes old, and no longer held

    meters.append([("hall", 21, "2026-01-01T12:04:00Z")])  # late
    engine.advance()
    show(engine, "grid")


if __name__ == "__main__":
    play(main)
