"""Functions of the user's own in a statement.

apply('package.module:function', 'DOUBLE', price, amount)         a value, among other aggregates
SELECT price FROM s <SLICES '1 minute'> GROUP BY k
APPLY 'package.module:function' RETURNS (a INT, b DOUBLE)         rows, from the rows of each window
"""

from __future__ import annotations

from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.sql.calls import Asked, none_in
from anabranch.diagram.sql.columns import declared_columns
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.names import output_name
from anabranch.diagram.sql.scope import Scope
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.tree import ApplyClause, Shape

_ROWS = "Write APPLY 'package.module:function' RETURNS (a INT, b DOUBLE)."
_FORM = "Write apply('package.module:function', 'DOUBLE', price, amount)."


def applied(asked: Asked) -> tuple[Expression, ...]:
    """The arguments of such a call: what is computed for each row, then the names of those, the function, the type."""
    path, kind, *given = asked.arguments
    for said, need in ((path, "the function as 'package.module:function'"), (kind, "the type of its result, quoted")):
        if len(said.tokens) != 1 or said.tokens[0].kind is not Kind.STRING or "'" in said.tokens[0].value:
            raise said.error(need=need, got=said.squeezed, next_step=_FORM)
    names = [_name(said, place) for place, said in enumerate(given, 1)]
    constants = (",".join(names), path.tokens[0].value, kind.tokens[0].value)
    ends = (asked.said.at, path.at, kind.at)
    texts = [Expression(f"'{text}'", at) for text, at in zip(constants, ends, strict=True)]
    return (*(said.expression for said in given), *texts)


def apply_clause(cursor: Cursor) -> ApplyClause | None:
    """`APPLY 'package.module:function' RETURNS (columns)`, if it is next."""
    if not cursor.accept("APPLY"):
        return None
    start = cursor.at
    if cursor.take().kind is not Kind.STRING:
        cursor.at = start
        raise cursor.unexpected("the function as 'package.module:function'", _ROWS)
    function = cursor.since(start)
    cursor.expect("RETURNS", next_step=_ROWS)
    if not cursor.sees("("):
        raise cursor.unexpected("the columns that it gives, in parentheses", _ROWS)
    columns, _ = declared_columns(cursor)
    return ApplyClause(function, columns)


def applied_rows(box: Box, scope: Scope, shape: Shape) -> Box:
    """The rows that a function makes of the rows of each window."""
    clause, window = shape.apply, shape.window
    assert clause is not None
    if window is None or shape.having or shape.qualify:
        raise clause.function.error(
            need="a window, and neither HAVING nor QUALIFY beside it",
            got="none" if window is None else "one of these",
            next_step="Put a window after the stream; choose among the rows that it gives in an outer query.",
        )
    for said in (*(item.expression for item in shape.items), *(shape.group or ())):
        none_in(said, "a select with APPLY", "The function gets rows: aggregate in it, or before.")
    given = tuple(Named(output_name(item), item.expression.expression) for item in shape.items)
    keys = tuple(said.expression for said in shape.group or ())
    return Apply(box, window.window, keys, given, Expression(clause.function.text, clause.function.at), clause.returns)


def _name(said: Fragment, place: int) -> str:
    """A column keeps its name; an expression gets one by its place."""
    last = said.tokens[-1]
    plain = last.is_name and all(token.is_name or token.word == "." for token in said.tokens)
    return last.value if plain and "," not in last.value and "'" not in last.value else f"arg{place}"
