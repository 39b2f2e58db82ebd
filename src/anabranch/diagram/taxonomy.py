"""What can be said of a query's answers before it runs (HA 3.2).

A box is one of four kinds, by what it says when it begins again, with nothing remembered, somewhere in the
past of its inputs:

    repeatable           the same rows again: each comes from at most one row of each input
    convergent-capable   perhaps other rows at first, and from some point on the same ones
    deterministic        the same only if it begins where it began, or with what it remembered
    arbitrary            another answer each time

The weakest box of a diagram decides for all of it. The paper calls a union arbitrary, because it interleaves rows
as they arrive; ours takes them in the order of the log, which is the same for everybody. Windows over time open
at multiples of their advance since 1970, wherever one begins, so they converge.

An expression that depends on the clock, on chance or on where it runs gives another value each time it is
evaluated: it makes its box arbitrary. Where a row is answered once and never again, that does no harm. A
result of an aggregate is computed again whenever it may have changed, to be compared with what was said; what
is arbitrary there could not be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.topn import TopN
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.drawing import headline
from anabranch.diagram.expression import Expression
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.sql.tokens import tokenize
from anabranch.model.window import Window


class Kind(IntEnum):
    """From the strongest to the weakest."""

    REPEATABLE = 0
    CONVERGENT_CAPABLE = 1
    DETERMINISTIC = 2
    ARBITRARY = 3

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Verdict:
    """The kind of a diagram, and the box that makes it so; of an arbitrary one also the function to blame."""

    kind: Kind
    box: Box
    function: str | None = None

    def __str__(self) -> str:
        if self.kind is Kind.REPEATABLE:
            return str(self.kind)
        blamed = f"{self.function} in " if self.function else ""
        return f"{self.kind}, because of {blamed}{headline(self.box)}"


def shape_of(box: Box) -> Kind:
    """What a box is, whatever its expressions: the place where every box says it.

    >>> str(shape_of(Union(())))
    'repeatable'
    """
    match box:
        case Source() | View() | Keep() | Filter() | Split() | Map() | Explode() | Union() | Sort():
            return Kind.REPEATABLE
        case Lookup():  # what the table holds depends on when rows come
            return Kind.DETERMINISTIC
        case Counts():  # rows are numbered from the first one
            return Kind.DETERMINISTIC
        case Apply():
            return Kind.CONVERGENT_CAPABLE if isinstance(box.window, Window) else Kind.DETERMINISTIC
        case Join():
            if not box.banded:  # it never forgets a row, so it never comes to the same without the first ones
                return Kind.DETERMINISTIC
            return Kind.CONVERGENT_CAPABLE if box.outer else Kind.REPEATABLE
        case Aggregate() | Consolidate():
            return Kind.DETERMINISTIC if box.window is None else Kind.CONVERGENT_CAPABLE
        case Partials():
            return Kind.DETERMINISTIC if box.pane is None else Kind.CONVERGENT_CAPABLE
        case TopN():
            return Kind.DETERMINISTIC
    raise AssertionError(f"say in shape_of() which kind of box a {type(box).__name__} is")


def evaluated_by(box: Box) -> tuple[Expression, ...]:
    """Every expression that a box evaluates."""
    match box:
        case Filter():
            return (box.predicate,)
        case Lookup():
            return (box.on,) if box.on else ()
        case Split():
            return box.conditions
        case Apply():
            return (*box.keys, *(given.expression for given in box.given))
        case Map():
            return (*(output.expression for output in box.outputs), *([box.time] if box.time else []))
        case Join():
            bounds = (box.between.low, box.between.high) if box.between else ()
            return (*([box.on] if box.on else []), *bounds)
        case Aggregate() | Partials() | Counts():
            return (*(key.expression for key in box.keys), *(e for call in box.calls for e in call.expressions))
        case TopN():
            return (*box.keys, *(order.expression for order in box.order))
    return ()


def kind_of(box: Box) -> Verdict:
    """What one box is, by itself."""
    for expression in evaluated_by(box):
        function = arbitrary_in(expression)
        if function is not None:
            return Verdict(Kind.ARBITRARY, box, function)
    return Verdict(shape_of(box), box)


def recovery_of(*diagrams: Box) -> Verdict:
    """What diagrams are together: as their weakest box, of several the one nearest to the answer.

    >>> source = Source("s", ("a",))
    >>> str(recovery_of(Filter(source, Expression("a > 0"))))
    'repeatable'
    >>> str(recovery_of(Filter(source, Expression("rand() < a"))))
    'arbitrary, because of rand() in Filter rand() < a'
    """
    return weakest(kind_of(box) for diagram in diagrams for box in diagram.walk())


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides."""
    return max(verdicts, key=lambda verdict: verdict.kind)


# fmt: off
_CALLED = frozenset((
    "RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "NOW", "CURDATE", "CURRENT_TIME",
    "MONOTONICALLY_INCREASING_ID", "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START",
    "INPUT_FILE_BLOCK_LENGTH", "LOCALTIMESTAMP", "CURRENT_TIMESTAMP", "CURRENT_DATE", "UNIX_TIMESTAMP",
))
# These need no parentheses.
_BARE = frozenset(("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP"))
# fmt: on


def arbitrary_in(expression: Expression) -> str | None:
    """The function in an expression that makes it arbitrary; None if there is none.

    >>> arbitrary_in(Expression("a + rand()"))
    'rand()'
    """
    tokens = tokenize(SourceText(expression.text))
    for i, token in enumerate(tokens):
        after = [t.word for t in tokens[i + 1 : i + 3]]
        called = after[:1] == ["("]
        if token.word == "UNIX_TIMESTAMP" and after != ["(", ")"]:  # of an argument, it is as good as any other
            continue
        field = i > 0 and tokens[i - 1].word == "."
        if not field and ((token.word in _CALLED and called) or (token.word in _BARE and not called)):
            return f"{token.raw}()" if called else token.raw
    return None
