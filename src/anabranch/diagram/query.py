"""A query: a diagram with a name, and how its answers are to be given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.limits import NO_LIMITS, Limits


class OnError(StrEnum):
    """What becomes of a row on which an expression fails."""

    HALT = "halt"
    NULL = "null"
    QUARANTINE = "quarantine"


@dataclass(frozen=True)
class Query:
    """What `CREATE STREAM name AS ...` says."""

    name: str
    box: Box
    archive: str | None = None
    revise_every: int = 1
    on_error: OnError = OnError.HALT
    limits: Limits = NO_LIMITS
