"""`python -m examples.flights`: the two days of a blizzard; --first and --days say which others."""

import argparse
import tempfile

import pandas as pd
from rich.console import Console

import anabranch as ab
from examples.flights.feed import read
from examples.flights.live import main

parser = argparse.ArgumentParser(description="Flights from New York in 2013, live: plans, departures, arrivals.")
parser.add_argument("--first", default="2013-02-08", help="first day, in UTC")
parser.add_argument("--days", type=int, default=2, help="how many; 365 from 2013-01-01 is the whole year")
parser.add_argument("--step", type=int, default=6, help="hours of the clock in a bucket")
asked = parser.parse_args()

with tempfile.TemporaryDirectory() as place, ab.connect(place) as engine:
    main(engine, Console(), read(asked.first, asked.days), pd.Timedelta(hours=asked.step))
