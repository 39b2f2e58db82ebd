"""What happens to a row on which an expression fails.

As a rule nothing is guarded: an expression that fails fails the step, and its query halts with the row
quoted. With `ON ERROR NULL` an expression that fails is null; with `ON ERROR QUARANTINE` its row is set
aside. Both need to know, row by row, whether an expression fails: Spark's `try_to_binary` evaluates
its argument and gives null where that raised an error, whatever the argument is. Guarded plans cost
more, so a step runs unguarded first and guarded only if that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.expression import literal
from anabranch.diagram.query import OnError
from anabranch.engine.relation import Relation, listed, quoted

FAILED = "_failed"  # in guarded plans: the expression that failed on this row
QUOTED = "_row"  # in guarded plans: the row as it came, as JSON

# The optimiser must not take an expression out of its guard to compute it once for two users.
SETTINGS = {"spark.sql.subexpressionElimination.enabled": "false"}


def fails(text: str) -> str:
    """SQL that is true where an expression raises an error.

    Of an expression that may not be evaluated, Spark moves no part (as of BETWEEN) to where nothing guards it.
    """
    return f"(TRY_TO_BINARY(TO_JSON(NAMED_STRUCT('v', CASE WHEN TRUE THEN ({text}) END)), 'utf-8') IS NULL)"


@dataclass(frozen=True)
class Guard:
    """How to evaluate expressions: not guarded, or as the query's ON ERROR says."""

    policy: OnError = OnError.HALT

    @property
    def on(self) -> bool:
        return self.policy is not OnError.HALT

    @property
    def aside(self) -> bool:
        """Whether rows on which an expression fails are set aside."""
        return self.policy is OnError.QUARANTINE

    def column(self, text: str) -> str:
        if not self.on:
            return f"({text})"
        skip = f"{FAILED} IS NOT NULL OR " if self.aside else ""
        return f"CASE WHEN {skip}{fails(text)} THEN NULL ELSE ({text}) END"

    def result(self, text: str) -> str:
        """A result of a group, null where it cannot be computed; its group may be set aside for another one."""
        return f"CASE WHEN {fails(text)} THEN NULL ELSE ({text}) END" if self.on else text

    def note(self, below: Relation, texts: Sequence[str]) -> Relation:
        """Remember the first expression that fails on a row, where rows are to be set aside."""
        if not self.aside or not texts:
            return below
        kept = [name for name in below.names if name != FAILED]
        failed = f"COALESCE({FAILED}, {self.first_failing(texts)}) AS {FAILED}"
        return replace(below, sql=f"SELECT {listed(kept)}, {failed} FROM {below.source}")

    def first_failing(self, texts: Iterable[str], called: Sequence[str] | None = None) -> str:
        """The first of some expressions that fails, as it is written, or as it is called."""
        texts = list(texts)
        names = texts if called is None else called
        cases = " ".join(f"WHEN {fails(t)} THEN {literal(name)}" for t, name in zip(texts, names, strict=True))
        return f"CASE {cases} END" if cases else "CAST(NULL AS STRING)"

    def keeps_pair(self, text: str) -> str:
        """The condition of a join; a pair on which it fails is set aside, or is none."""
        if not self.on:
            return text
        return f"CASE WHEN {fails(text)} THEN {'TRUE' if self.aside else 'FALSE'} ELSE ({text}) END"

    def keeps(self, text: str) -> str:
        """The condition under which a filter lets a row pass; one that is to be set aside always passes."""
        if self.aside:
            return f"{FAILED} IS NOT NULL OR {self.column(text)}"
        return self.column(text)

    def begin(self, below: Relation, said: Mapping[str, str] | None = None) -> Relation:
        """Quote rows before anything is done to them: their columns, or some under the names that people gave them."""
        if not self.aside:
            return below
        shown = {name: name for name in below.columns} if said is None else said
        fields = ", ".join(f"{literal(n)}, {quoted(c)}" for c, n in shown.items() if c in below.names)
        row = f"TO_JSON(NAMED_STRUCT({fields})) AS {QUOTED}" if fields else f"'{{}}' AS {QUOTED}"
        if FAILED in below.carried:  # results, some of which could not be computed
            sql = f"SELECT {listed(below.names)}, {row} FROM {below.source}"
            return replace(below, sql=sql, carried=(*below.carried, QUOTED))
        sql = f"SELECT {listed(below.names)}, {row}, CAST(NULL AS STRING) AS {FAILED} FROM {below.source}"
        return replace(below, sql=sql, carried=(*below.carried, QUOTED, FAILED))


NO_GUARD = Guard()
