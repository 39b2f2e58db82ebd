"""What can be said of a query's answers before it runs (HA 3.2).

An expression that depends on the clock, on chance or on where it runs gives another value each time it is
evaluated: it is *arbitrary*. Where a row is answered once and never again, that does no harm. A result of
an aggregate is computed again whenever it may have changed, to be compared with what was said; what
is arbitrary there could not be taken back.
"""

from __future__ import annotations

from anabranch.diagram.expression import Expression
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.sql.tokens import tokenize

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
    """The function in an expression that makes it arbitrary; None if there is none."""
    tokens = tokenize(SourceText(expression.text))
    for i, token in enumerate(tokens):
        after = [t.word for t in tokens[i + 1 : i + 3]]
        called = after[:1] == ["("]
        if token.word == "UNIX_TIMESTAMP" and after != ["(", ")"]:  # of an argument, it is as good as any other
            continue
        field = i > 0 and tokens[i - 1].word == "."
        if not field and ((token.word in _CALLED and called) or (token.word in _BARE and not called)):
            return token.raw
    return None
