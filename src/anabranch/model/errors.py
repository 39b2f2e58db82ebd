"""Errors that say what to do.

Every mistake that a caller can make is an `AnabranchError`: a stable id, and four parts, always the
same four. *place* is where it happened, *need* what is asked for there, *got* what was there instead,
*next_step* what to do about it. Our own bugs are assertions, never these.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

MEANINGS: Final = MappingProxyType(
    {
        "BAD_ARGUMENT": "An argument has a value that the call cannot use.",
        "BAD_DURATION": "A duration is not a number and a fixed unit, such as '10 seconds'.",
        "BAD_EVENT_TIME": "Rows have no event time, or one that cannot be meant.",
        "BAD_EXPRESSION": "Spark does not accept an expression; the message has Spark's own words.",
        "BAD_NAME": "A name, of a stream, a view or a branch, is not a plain identifier.",
        "BAD_SCHEMA": "A stream's declaration is inconsistent or has a type that is not supported.",
        "BAD_TIME": "A point in time cannot be read.",
        "BRANCH_DIVERGED": "The branch has rows or buckets of its own, and cannot follow main any more.",
        "BRANCH_EXISTS": "A branch of that name is there already.",
        "BRANCH_GONE": "The branch was dropped, has expired, or has lapsed.",
        "BRANCH_IN_USE": "The branch has branches of its own.",
        "BUCKET_FOLDED": "A past bucket was asked for that is folded into a later one.",
        "BUCKET_SIZE": "A warehouse was opened with another bucket size than it was made with.",
        "CATALOG_REFUSED": "The catalog database does not allow what is needed there.",
        "CATALOG_UNREACHABLE": "The catalog database cannot be opened or did not answer.",
        "COMMIT_UNCERTAIN": "The catalog was lost during a commit, and whether it happened could not be found out.",
        "CONNECT_NOT_INSTALLED": "Spark Connect was asked for, but its client packages are missing.",
        "DISK_FULL": "A file could not be written because no space is left.",
        "ENGINE_CLOSED": "The engine, or the unit of work, was used after it ended.",
        "EXPRESSION_FAILED": "An expression failed on a row, and its query has halted there.",
        "FENCED": "Another engine has taken over the lease of this warehouse.",
        "FILE_CHANGED": "A referenced file is no longer the one that was loaded.",
        "FILE_UNREADABLE": "A file is missing, truncated, or not in the format that was said.",
        "FORMAT_NEWER": "The warehouse was written by a newer version of Anabranch.",
        "HISTORY_GONE": "Rows were asked for, or are needed by a query, that retention has removed.",
        "INTENT_LAPSED": "A writer was silent for so long that what it wrote was given up.",
        "JAVA_MISSING": "No Java runtime of version 17 or later was found.",
        "LEASE_HELD": "Another engine is advancing this warehouse.",
        "NOT_GROUPED": "A column of an aggregate query is neither grouped nor inside an aggregate.",
        "NOT_KEYED": "A revision by key was sent to a stream without a key.",
        "NOT_SUPPORTED": "The combination is not supported; the message says what is.",
        "NO_EVENT_TIME": "A window was asked for over rows that have no event time.",
        "NULL_VALUE": "A column that must not be null has nulls.",
        "ON_BRANCH": "Sinks, ingests and subscriptions with a name belong to main, and never run on a branch.",
        "POSITION_CONFLICT": "What a step or a compaction has read was changed by another commit.",
        "RUN_TOO_LATE": "A run was copied whose bucket is recorded already.",
        "SESSION_CONFLICT": "A Spark session with other settings is already running in this process.",
        "SINK_REFUSED": "The place that a sink writes to does not take what it writes, or belongs to somebody else.",
        "SINK_UNREACHABLE": "The database or directory that a sink writes to does not answer.",
        "SPARK_NOT_STARTED": "Spark did not start with these settings.",
        "SPARK_UNREACHABLE": "The Spark Connect server does not answer.",
        "STREAM_EXISTS": "A stream of that name exists with another declaration.",
        "STREAM_IN_USE": "The stream cannot be dropped while something reads it.",
        "SYNTAX": "A statement cannot be read, or asks for something that is not there; carets show where.",
        "TIME_ZONE": "A timestamp has no time zone where an instant is needed, or an unknown one.",
        "UNKNOWN_BRANCH": "No branch has that name.",
        "UNKNOWN_COLUMN": "A column is not in the schema.",
        "UNKNOWN_SINK": "No sink has that name.",
        "UNKNOWN_STREAM": "No stream has that name.",
        "UNKNOWN_VIEW": "No view has that name.",
        "VIEW_EXISTS": "A view of that name exists with another range.",
        "WAREHOUSE_MISMATCH": "The directory and the catalog belong to different warehouses.",
        "WAREHOUSE_MISSING": "There is no warehouse at that place.",
        "WAREHOUSE_NOT_SHARED": "Spark cannot see the files of the warehouse.",
        "WRONG_TYPE": "A value or column has a type that the schema does not take.",
    }
)


class AnabranchError(Exception):
    """A mistake of the caller, or a condition that the caller must know of."""

    def __init__(self, error_id: str, *, place: str, need: str, got: str, next_step: str) -> None:
        assert error_id in MEANINGS, f"{error_id} is not a registered error id"
        self.id = error_id
        self.place = place
        self.need = need
        self.got = got
        self.next_step = next_step
        # A place that quotes a line of SQL ends with carets; what is said about them begins on a line of its own.
        after = "\n" if "\n" in place else ": "
        super().__init__(f"{error_id}: {place}{after}need {need}; got {got.rstrip('.')}. {next_step}")

    def parts(self) -> dict[str, str]:
        """The error as plain values, from which `AnabranchError(**parts)` makes it again: how tasks send it home."""
        return {
            "error_id": self.id,
            "place": self.place,
            "need": self.need,
            "got": self.got,
            "next_step": self.next_step,
        }
