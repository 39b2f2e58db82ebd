"""What limits a query's answers: which revisions it says, and how far back rows are read again (BOREALIS 3.3, 3.4).

An output may not want revisions at all (`ON REVISION IGNORE`), or only those that matter (`REVISE WHEN` and a
condition on what was said, `old`, and what is right now, `new`). What it has not said is compared again the next
time with what it *has* said, so that small changes do not add up unnoticed. Such a query's table is what it has
said, and is no longer what a batch would say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.diagram.expression import Expression

# Revisions wait until a bucket says that nothing else does; it is never this many buckets later.
IDLE = 1 << 62
# Revisions wait until there is a table to keep right, of the query or of one that reads it.
KEPT = IDLE + 1
WAITS = {"IDLE": IDLE, "KEPT": KEPT}


@dataclass(frozen=True)
class Limits:
    """What the clauses of a query say; as it stands, nothing is limited."""

    ignore: bool = False  # no revisions at all
    when: Expression | None = None  # revisions of results for which this is not false
    history: int | None = None  # rows this far behind progress can be read again, in microseconds
    upstream: bool = False  # what can be computed again is not kept to be read again
    rows: int | None = None  # the bound as so many of the newest rows of each base stream that is read

    @property
    def cut(self) -> bool:
        """Whether some revisions are not said, so that the table is what was said and not what is right."""
        return self.ignore or self.when is not None

    def __str__(self) -> str:
        if self.ignore:
            return "not said; the table is what was said, not what a batch would say"
        if self.when is not None:
            return f"said when {self.when}; the table is what was said, not what a batch would say"
        return ""

    def to_json(self) -> dict[str, Any]:
        when = None if self.when is None else self.when.text
        return {"ignore": self.ignore, "when": when, "history": self.history, "upstream": self.upstream,
                "rows": self.rows}  # fmt: skip

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Limits:
        """What a definition says; one that was made before there were limits says nothing.

        >>> Limits.from_json(Limits(when=Expression("old.c < new.c")).to_json()).when
        Expression(text='old.c < new.c', at=None)
        """
        if stored is None:
            return cls()
        when = stored["when"]
        return cls(stored["ignore"], None if when is None else Expression(when), stored["history"],
                   stored.get("upstream", False), stored.get("rows"))  # fmt: skip


NO_LIMITS = Limits()
