"""What a stream is declared to be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema
from anabranch.model.time import Duration, History, Instant, duration_text, duration_us, history_of, instant_us

# Columns that the engine adds on the way out.
LOG_COLUMNS = (
    "_position", "_ordinal", "_stime", "_entry_point", "_sequence", "_source", "_change_type", "_stability",
)  # fmt: skip

CHANGE_TYPE = "_change_type"
# Rows that come in may have what the log, or a feed, has said of them when they went out. It is left out.
LEFT_OUT = frozenset(LOG_COLUMNS) - {CHANGE_TYPE} | {"_bucket"}

# Event times outside these bounds cannot be meant; one of them would carry progress away for good.
EARLIEST_US = -2_208_988_800_000_000  # 1900-01-01
AHEAD_US = 366 * 86_400_000_000

# How the stream of a table is declared: its rows have the beginning of 1970 as their event time.
TABLE_TIME = "since"
TABLE_AHEAD_US = 36_500 * 86_400_000_000
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class StreamSpec:
    """The declaration of a base stream. Durations and instants are in microseconds."""

    name: str
    schema: Schema
    event_time: str
    key: tuple[str, ...] = ()
    slack: int = 0
    drift: int | None = None
    history: int | None = None
    earliest: int = EARLIEST_US
    ahead: int = AHEAD_US
    history_rows: int | None = None  # the bound as so many of the newest rows

    @classmethod
    def declare(
        cls,
        name: str,
        schema: str | Mapping[str, str],
        *,
        event_time: str,
        key: Sequence[str] | str = (),
        slack: Duration | None = None,
        drift: Duration | None = None,
        history: History | None = None,
        earliest: Instant | None = None,
        ahead: Duration | None = None,
    ) -> Self:
        """Check and normalise what a person wrote."""
        place = f"stream {name!r}"
        check_name(name, "stream")
        bound, rows = history_of(history, f"{place}, history")
        spec = cls(
            name=name,
            schema=Schema.parse(schema, place),
            event_time=event_time,
            key=(key,) if isinstance(key, str) else tuple(key),
            slack=0 if slack is None else duration_us(slack, f"{place}, slack"),
            drift=None if drift is None else duration_us(drift, f"{place}, drift"),
            history=bound,
            history_rows=rows,
            earliest=EARLIEST_US if earliest is None else instant_us(earliest, f"{place}, earliest"),
            ahead=AHEAD_US if ahead is None else duration_us(ahead, f"{place}, ahead"),
        )
        spec._check(place)
        return spec

    @classmethod
    def table(cls, name: str, columns: Mapping[str, str], key: Sequence[str] | str) -> Self:
        """The stream that holds a table: its rows get a time that means nothing."""
        return cls.declare(
            name, {**columns, TABLE_TIME: "TIMESTAMP"}, event_time=TABLE_TIME, key=key, earliest=_EPOCH,
            ahead=duration_text(TABLE_AHEAD_US),
        )  # fmt: skip

    def _check(self, place: str) -> None:
        for argument, columns in (("event_time=", (self.event_time,)), ("key=", self.key)):
            for column in columns:
                if column not in self.schema.names:
                    raise unknown_column(f"{place}, {argument}", column, self.schema.names, "Check the spelling.")
        if self.schema[self.event_time].type != "TIMESTAMP":
            raise AnabranchError(
                "BAD_SCHEMA",
                place=f"{place}, event time {self.event_time!r}",
                need="a TIMESTAMP column, which is an instant",
                got=self.schema[self.event_time].type,
                next_step=f"Declare {self.event_time!r} as TIMESTAMP and convert the values where they enter.",
            )
        odd = [name for name in self.schema.names if name.startswith("_") or "." in name or "`" in name]
        if odd:
            raise AnabranchError(
                "BAD_SCHEMA",
                place=place,
                need="column names that do not begin with an underscore and have no dot or backtick",
                got=", ".join(map(repr, odd)),
                next_step="Rename them: names with an underscore in front are the log's own, such as _position.",
            )
        nested = [c for c in self.key if re.match(r"ARRAY|MAP|STRUCT|FLOAT|DOUBLE", self.schema[c].type)]
        if nested:
            raise AnabranchError(
                "BAD_SCHEMA",
                place=f"{place}, key",
                need="key columns of an exact, plain type",
                got=", ".join(f"{c} {self.schema[c].type}" for c in nested),
                next_step="Use integers, decimals, strings, dates or timestamps as key.",
            )

    @property
    def timeless(self) -> bool:
        """Whether it holds a table, which has no place in time: nobody waits for it, and it shows no progress."""
        return (self.event_time, self.earliest, self.ahead) == (TABLE_TIME, 0, TABLE_AHEAD_US)

    @property
    def required(self) -> frozenset[str]:
        """Columns in which a null is an error."""
        return frozenset(self.key) | {f.name for f in self.schema if not f.nullable} - {self.event_time}

    def bounds(self, clock: int) -> tuple[int, int]:
        """The event times that can be meant, seen from the entry point's clock."""
        return self.earliest, clock + self.ahead

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "schema": self.schema.to_json()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        return cls(**{**values, "schema": Schema.from_json(stored["schema"]), "key": tuple(stored["key"])})

    def differences(self, other: StreamSpec) -> list[str]:
        """What another declaration of the same name says otherwise, in words."""
        said = []
        if self.schema != other.schema:
            said.append(f"columns ({self.schema}) instead of ({other.schema})")
        for name in ("event_time", "key", "slack", "drift", "history", "history_rows", "earliest", "ahead"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                show = duration_text if name in ("slack", "drift", "history", "ahead") else repr
                said.append(f"{name.replace('_', ' ')} {show(mine) or 'none'} instead of {show(theirs) or 'none'}")
        return said


def check_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,127}", name):
        raise AnabranchError(
            "BAD_NAME",
            place=f"{what} name",
            need="a letter, then letters, digits and underscores, 128 at most",
            got=repr(name),
            next_step="Choose such a name.",
        )


def check_branch_name(name: str) -> None:
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,127}", name) and name.lower() != "main":
        return
    raise AnabranchError(
        "BAD_NAME",
        place="branch name",
        need="a letter, then letters, digits, underscores and hyphens, 128 at most, and not 'main'",
        got=repr(name),
        next_step="Choose such a name.",
    )


def check_columns(found: Sequence[str], wanted: Sequence[str], place: str) -> None:
    """Whether rows with these columns may come in, through whatever door: the same answer in the same words."""
    for name in found:
        if name not in wanted and name != CHANGE_TYPE and name not in LEFT_OUT:
            raise unknown_column(
                place,
                name,
                wanted,
                "Rename the column or leave it out: of a file, append() what Spark select()s from it.",
            )
    missing = [name for name in wanted if name not in found]
    if missing:
        raise AnabranchError(
            "UNKNOWN_COLUMN",
            place=place,
            need=f"columns {', '.join(wanted)}",
            got=f"none named {', '.join(missing)}",
            next_step="Add the columns, with nulls where there is no value.",
        )
    if len(set(found)) != len(found):
        raise AnabranchError(
            "WRONG_TYPE",
            place=place,
            need="columns with different names",
            got=", ".join(found),
            next_step="Rename one of them; nothing was written.",
        )


def unknown_column(
    place: str, column: str, known: Sequence[str], next_step: str = "Rename the column or drop it."
) -> AnabranchError:
    close = [name for name in known if name.lower() == column.lower()]
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return AnabranchError(
        "UNKNOWN_COLUMN",
        place=place,
        need=f"columns among {', '.join(known)}",
        got=repr(column),
        next_step=f"{hint}{next_step}",
    )
