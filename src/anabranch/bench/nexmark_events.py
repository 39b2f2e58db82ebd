"""Nexmark's events: people, auctions and bids, as Parquet files in the order in which they arrived.

Of fifty events in a row the first is a person, the next three are auctions and the rest are bids: 2, 6 and 92 %.
Event times rise evenly. One event in twenty arrives late, by up to a minute; it has the content that it would have
had in time. Half of the bids go to a hot auction, three in four of the bids and of the auctions come from a hot
person; the others are spread over what is open now, and over people who came last.

What an event holds is a hash of its number and of nothing else, so the same size gives the same bytes, in
whatever files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SECOND_US = 1_000_000
START_US = 1_767_225_480_000_000  # 2025-12-31T23:58:00Z: days change soon after
LATE_SHARE = 0.05
LATEST_US = 60 * SECOND_US
OPEN_US = 20 * SECOND_US  # no auction is open for longer

# Of so many events in a row one is a person, and so many are auctions.
_ROUND, _AUCTIONS = 50, 3
_FIRST_ID = 1_000
_ACTIVE_PEOPLE = 1_000
_HOT = 20  # one of so many in a row is the hot one, until the next such one comes
_CATEGORIES = 5
_FIRST_CATEGORY = 10

COLUMNS = {
    "person": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, ts TIMESTAMP, "
    "extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, ts TIMESTAMP, "
    "expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts TIMESTAMP, extra STRING",
}
STREAMS = tuple(COLUMNS)

_FIRST_NAMES = pa.array(["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Walter"])
_LAST_NAMES = pa.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_CITIES = pa.array(["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle", "Cheyenne"])
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_HOT_CHANNELS = 4
_CHANNELS = pa.array(["Google", "Facebook", "Baidu", "Apple", *(f"channel-{n}" for n in range(10_000))])
_DIGITS = pa.array([f"{n:04}" for n in range(10_000)])
_SYLLABLES = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "wa"]
_WORDS = pa.array([a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES])

Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Events:
    """Files of events: of each stream as many as there are slices of time, oldest arrivals first."""

    directory: str
    events: int
    a_second: int
    files: int

    @property
    def end_us(self) -> int:
        """An instant after all events."""
        return START_US + self.events * SECOND_US // self.a_second

    def path(self, stream: str, number: int) -> str:
        return f"{self.directory}/{stream}/{number:05}.parquet"

    def paths(self, stream: str) -> list[str]:
        return [self.path(stream, number) for number in range(self.files)]

    def rows(self, streams: Sequence[str]) -> int:
        """How many rows some streams have."""
        return sum(pq.read_metadata(path).num_rows for stream in streams for path in self.paths(stream))

    def first(self, files: int) -> Events:
        """The same events, and only the first few files of each stream."""
        return Events(self.directory, self.events, self.a_second, min(files, self.files))


def written(directory: Path, events: int, a_second: int, files: int, tell: Tell) -> Events:
    """Write the events; a file of each stream has what arrived in the same slice of time."""
    for stream in STREAMS:
        (directory / stream).mkdir(parents=True)
    made = Events(str(directory), events, a_second, files)
    order = in_order_of_arrival(events, a_second)
    for number, arrived in enumerate(np.array_split(order, files)):
        for stream in STREAMS:
            path = made.path(stream, number)
            pq.write_table(table(stream, arrived[kind_of(arrived) == stream], a_second), path)
            # Spark's file source takes files by the time of their last change: let that be the order of arrival.
            os.utime(path, (START_US // SECOND_US + number, START_US // SECOND_US + number))
        tell(number + 1, files)
    return made


def times_of(numbers: np.ndarray, a_second: int) -> np.ndarray:
    """When events happened, in microseconds."""
    return START_US + numbers * SECOND_US // a_second


def in_order_of_arrival(events: int, a_second: int) -> np.ndarray:
    """The numbers of all events, in the order in which they arrived."""
    numbers = np.arange(events, dtype="int64")
    late = np.where(_share(numbers, 1) < LATE_SHARE, _share(numbers, 2) * LATEST_US, 0)
    return np.argsort(times_of(numbers, a_second) + late.astype("int64"), kind="stable")


def kind_of(numbers: np.ndarray) -> np.ndarray:
    """The stream of each event."""
    place = numbers % _ROUND
    return np.select([place < 1, place < 1 + _AUCTIONS], ["person", "auction"], "bid")


def of_stream(stream: str, number: int) -> int:
    """The first event of a stream in the round that a number belongs to."""
    return number // _ROUND * _ROUND + {"person": 0, "auction": 1, "bid": 1 + _AUCTIONS}[stream]


def table(stream: str, numbers: np.ndarray, a_second: int) -> pa.Table:
    """The events of these numbers, which must be of that stream."""
    make = {"person": _people, "auction": _auctions, "bid": _bids}[stream]
    return make(numbers, a_second)


def _people(n: np.ndarray, a_second: int) -> pa.Table:
    return pa.table(
        {
            "id": _FIRST_ID + _last_person(n),
            "name": _joined(" ", _one(_FIRST_NAMES, n, 10), _one(_LAST_NAMES, n, 11)),
            "email": _joined("", _one(_WORDS, n, 12), pa.scalar("@"), _one(_WORDS, n, 13), pa.scalar(".com")),
            "credit_card": _joined(" ", *(_one(_DIGITS, n, salt) for salt in range(14, 18))),
            "city": _one(_CITIES, n, 18),
            "state": _one(_STATES, n, 19),
            "ts": _instants(times_of(n, a_second)),
            "extra": _text(n, 20, 12),
        }
    )


def _auctions(n: np.ndarray, a_second: int) -> pa.Table:
    times, first = times_of(n, a_second), _price(n, 40)
    return pa.table(
        {
            "id": _FIRST_ID + _last_auction(n),
            "item_name": _text(n, 41, 2),
            "description": _text(n, 43, 8),
            "initial_bid": first,
            "reserve": first + _price(n, 51),
            "ts": _instants(times),
            "expires": _instants(times + 1 + _below(n, 52, OPEN_US)),
            "seller": _FIRST_ID + _person(n, 53),
            "category": _FIRST_CATEGORY + _below(n, 55, _CATEGORIES),
            "extra": _text(n, 56, 20),
        }
    )


def _bids(n: np.ndarray, a_second: int) -> pa.Table:
    last = _last_auction(n)
    in_flight = max(a_second * _AUCTIONS * (OPEN_US // SECOND_US) // (2 * _ROUND), 1)  # on average
    hot = _share(n, 80) < 0.5
    channels = np.where(_share(n, 81) < 0.5, _HOT_CHANNELS, len(_CHANNELS))
    channel = _one(_CHANNELS, n, 82, channels)
    site = pa.scalar("https://www.nexmark.com/")
    page = pa.scalar("/item.htm?query=1&channel_id=")
    return pa.table(
        {
            "auction": _FIRST_ID + np.where(hot, last // _HOT * _HOT, last - _recent(n, 83, last, in_flight)),
            "bidder": _FIRST_ID + _person(n, 84),
            "price": _price(n, 86),
            "channel": channel,
            "url": _joined("", site, _text(n, 87, 3, "/"), page, channel),
            "ts": _instants(times_of(n, a_second)),
            "extra": _text(n, 90, 5),
        }
    )


def _last_person(n: np.ndarray) -> np.ndarray:
    """The last person who has come, counted from 0: each round begins with one."""
    last: np.ndarray = n // _ROUND
    return last


def _last_auction(n: np.ndarray) -> np.ndarray:
    """The last auction, in the same way; before there is one it is taken for the first."""
    last: np.ndarray = np.maximum(n // _ROUND * _AUCTIONS + np.minimum(n % _ROUND, _AUCTIONS) - 1, 0)
    return last


def _person(n: np.ndarray, salt: int) -> np.ndarray:
    """Who bids or sells: the hot one, or one of those who came last."""
    last = _last_person(n)
    return np.where(_share(n, salt) < 0.75, last // _HOT * _HOT, last - _recent(n, salt + 1, last, _ACTIVE_PEOPLE))


def _recent(n: np.ndarray, salt: int, last: np.ndarray, most: int) -> np.ndarray:
    """How many places before the last one."""
    return _below(n, salt, np.minimum(last + 1, most))


def _price(n: np.ndarray, salt: int) -> np.ndarray:
    """In cents, from one to a million, as many of each order of magnitude."""
    return np.round(10 ** (_share(n, salt) * 6) * 100).astype("int64")


def _text(n: np.ndarray, salt: int, words: int, between: str = " ") -> pa.Array:
    return _joined(between, *(_one(_WORDS, n, salt + word) for word in range(words)))


def _one(choices: pa.Array, n: np.ndarray, salt: int, of: np.ndarray | None = None) -> pa.Array:
    """For each event one of the choices, or of the first so many of them."""
    return choices.take(pa.array(_below(n, salt, len(choices) if of is None else of)))


def _joined(between: str, *parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, between)


def _instants(micros: np.ndarray) -> pa.Array:
    return pa.array(micros, pa.timestamp("us", "UTC"))


def _below(n: np.ndarray, salt: int, limit: int | np.ndarray) -> np.ndarray:
    """A whole number below a limit for each event."""
    found: np.ndarray = _hash(n, salt) % np.asarray(limit, "uint64")
    return found.astype("int64")


def _share(n: np.ndarray, salt: int) -> np.ndarray:
    """A number from 0 up to 1 for each event."""
    share: np.ndarray = (_hash(n, salt) >> np.uint64(11)) * 2.0**-53
    return share


def _hash(n: np.ndarray, salt: int) -> np.ndarray:
    """64 bits for each event, by splitmix64; each salt is another sequence."""
    z = n.astype("uint64") * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt * 0xD1B54A32D192ED03 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
