"""The grammar of a continuous query: SELECT, FROM, JOIN, WHERE, GROUP BY, APPLY, HAVING, QUALIFY, and UNION ALL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.diagram.sql.applied import apply_clause
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.durations import duration, micros, window_clause
from anabranch.diagram.sql.fragment import Fragment, after, outermost
from anabranch.diagram.sql.tokens import Kind, Token
from anabranch.diagram.sql.tree import Item, Joined, Select, Shape, Tree, UnionAll, WindowClause, Within
from anabranch.diagram.sql.words import BETWEEN_OPERANDS, RANKS, TIME_UNITS, begins_clause, ends_operand
from anabranch.model.errors import AnabranchError

# Deeper is no query that a person wrote.
_DEEPEST = 50
_FORM = "SELECT ... FROM stream"
_NO_ALIAS = frozenset(("ON", "USING"))

AtEnd = Callable[[Cursor], None]


def query(cursor: Cursor, at_end: AtEnd | None = None, depth: int = 0) -> Tree:
    """Selects joined by UNION ALL.

    `at_end` reads clauses that belong to the whole statement; they may stand inside its parentheses or after.
    """
    parts = [_term(cursor, at_end, depth)]
    while cursor.sees("UNION"):
        cursor.take()
        if not cursor.accept("ALL"):
            raise cursor.unexpected(
                "ALL after UNION", "Write UNION ALL: it keeps duplicates, and nothing else is there.", ("ALL",)
            )
        if cursor.sees("BY", "NAME"):
            raise cursor.unexpected("a select", "Name the columns in the same order: UNION ALL goes by place.")
        parts.append(_term(cursor, at_end, depth))
    return parts[0] if len(parts) == 1 else UnionAll(tuple(parts))


def _term(cursor: Cursor, at_end: AtEnd | None, depth: int) -> Tree:
    if depth > _DEEPEST:
        raise cursor.unexpected(f"at most {_DEEPEST} levels of parentheses", "Make streams of the inner queries.")
    if not cursor.accept("("):
        return _select(cursor, depth)
    inner = query(cursor, at_end, depth + 1)
    if at_end:
        at_end(cursor)
    _close(cursor)
    return inner


def _close(cursor: Cursor) -> None:
    if not cursor.accept(")"):
        raise cursor.refused() or cursor.unexpected(
            "a clause of the query, or its closing ')'",
            "The clauses: WHERE, GROUP BY, HAVING, QUALIFY, UNION ALL.",
            _CLAUSES,
        )


_CLAUSES = ("WHERE", "GROUP", "APPLY", "HAVING", "QUALIFY", "UNION", "FROM")


def _select(cursor: Cursor, depth: int) -> Select:
    start = cursor.at
    if not cursor.accept("SELECT"):
        step = "Write the sub-query after FROM, in parentheses." if cursor.sees("WITH") else f"Write {_FORM}."
        raise cursor.unexpected("SELECT", step, ("SELECT",))
    word = cursor.since(start)
    if cursor.sees("DISTINCT"):
        raise cursor.unexpected("the columns", "SELECT DISTINCT is not there: GROUP BY the columns instead.")
    if cursor.sees("ALL") and (cursor.peek(1).is_name or cursor.peek(1).word == "*") and cursor.peek(1).word != "FROM":
        cursor.take()
    items = _items(cursor)
    if not cursor.accept("FROM"):
        raise cursor.refused() or cursor.unexpected("FROM and a stream", f"Write {_FORM}.", ("FROM",))
    source, alias, window = _source(cursor, depth)
    joins = tuple(_joins(cursor, depth))
    _refuse_window(window if joins else None)
    where = cursor.expression("a condition") if cursor.accept("WHERE") else None
    group = _group(cursor) if cursor.accept("GROUP", "BY") else None
    apply = apply_clause(cursor)
    having = (cursor.expression("a condition"),) if cursor.accept("HAVING") else ()
    qualify = cursor.expression("a condition") if cursor.accept("QUALIFY") else None
    if cursor.sees(","):
        raise cursor.unexpected("one condition", "Join conditions with AND.")
    return Select(word, source, alias, joins, where, Shape(items, window, group, having, qualify, apply))


def _items(cursor: Cursor) -> tuple[Item, ...]:
    items = [item(cursor.expression("a column or an expression"))]
    while cursor.accept(","):
        items.append(item(cursor.expression("a column or an expression")))
    return tuple(items)


def item(whole: Fragment) -> Item:
    """An entry of a select list: its expression, and its alias with AS or without."""
    tokens = whole.tokens
    if len(tokens) > 2 and tokens[-1].is_name and tokens[-2].word == "AS":
        found = Item(whole.part(0, -2), tokens[-1].value, whole)
    elif len(tokens) > 1 and _may_be_alias(tokens[-1]) and _ends(whole.part(0, -1)) and not _is_unit(whole):
        found = Item(whole.part(0, -1), tokens[-1].value, whole)
    else:
        found = Item(whole, None, whole)
    rest = found.expression
    for i in outermost(rest.source, rest.tokens):
        if rest.tokens[i].word == "AS":
            raise rest.part(i, i + 1).error(
                need="one name after AS, then a comma or FROM",
                got=f"{whole.squeezed!r}",
                next_step="Write expression AS name.",
            )
    return found


def _ends(fragment: Fragment) -> bool:
    """Whether an operand ends where this does; the type of a cast may end with an angle bracket."""
    last = len(fragment.tokens) - 1
    is_type = fragment.tokens[last].word == ">" and last not in outermost(fragment.source, fragment.tokens)
    return is_type or ends_operand(fragment.tokens[last])


def _may_be_alias(token: Token) -> bool:
    return token.is_name and token.word not in RANKS and token.word not in BETWEEN_OPERANDS


def _is_unit(whole: Fragment) -> bool:
    """Whether the last word is the unit of an interval, and so no alias."""
    tokens = whole.tokens
    if tokens[-1].word not in TIME_UNITS:
        return False
    i = len(tokens) - 2
    if i and tokens[i - 1].word == "INTERVAL":  # INTERVAL n DAYS, with n a column
        return True
    while i > 0 and (tokens[i].kind in (Kind.NUMBER, Kind.STRING) or tokens[i].word in TIME_UNITS):
        i -= 1
    return tokens[i].word == "INTERVAL"


def _source(cursor: Cursor, depth: int) -> tuple[Fragment | Tree, str | None, WindowClause | None]:
    found: Fragment | Tree
    if cursor.accept("("):
        found = query(cursor, None, depth + 1)
        _close(cursor)
    else:
        found = _stream(cursor)
        if cursor.sees(".") or cursor.sees("("):
            raise cursor.unexpected(
                "the plain name of a stream", "Streams have one-word names, and no function makes one."
            )
    window = window_clause(cursor)
    alias = _alias(cursor)
    again = window_clause(cursor)
    if window and again:
        raise again.said.error(need="one window", got="a second one", next_step="Leave one out.")
    if cursor.sees(","):
        raise cursor.unexpected("one stream", "Write FROM a JOIN b ON condition: what is compared must be said.")
    if not _join_begins(cursor) and (stray := cursor.refused()):
        raise stray
    return found, alias, window or again


_LOOKUPS = (("LOOKUP",), ("LEFT", "LOOKUP"))
_JOINS = (("JOIN",), ("INNER", "JOIN"), ("LEFT", "JOIN"), ("LEFT", "OUTER", "JOIN"), *_LOOKUPS)
_JOIN = "Write FROM a JOIN b ON condition, or LEFT JOIN; then WITHIN 'd' says how far apart in event time."


def _join_begins(cursor: Cursor) -> tuple[str, ...] | None:
    return next((words for words in _JOINS if cursor.sees(*words)), None)


def _joins(cursor: Cursor, depth: int) -> Iterator[Joined]:
    """The streams that are joined to the first one, from left to right."""
    while words := _join_begins(cursor):
        start = cursor.at
        cursor.accept(*words)
        word = cursor.since(start)
        source, alias, window = _source(cursor, depth)
        _refuse_window(window)
        cursor.expect("ON", next_step=_JOIN)
        on = cursor.expression("a condition")
        if words in _LOOKUPS:
            fixed = cursor.accept("WITHOUT", "REVISION")
            yield Joined(word, source, alias, "LEFT" in words, on, None, fixed)
        else:
            yield Joined(word, source, alias, "LEFT" in words, on, _within(cursor))


def _within(cursor: Cursor) -> Within | None:
    start = cursor.at
    if not cursor.accept("WITHIN"):
        return None
    if not cursor.accept("BETWEEN"):
        text, said = duration(cursor)
        return Within(cursor.since(start), duration=micros(text, said))
    low = _up_to_and(cursor)
    high = cursor.expression("the last event time")
    return Within(cursor.since(start), bounds=(low, high))


def _up_to_and(cursor: Cursor) -> Fragment:
    start = cursor.at
    while cursor.at < len(cursor.tokens) and not cursor.sees("AND"):
        cursor.at = after(cursor.source, cursor.tokens, cursor.at)
    low = cursor.since(start)
    if not low.tokens or not cursor.accept("AND"):
        raise cursor.unexpected("AND and the last event time", "Write WITHIN BETWEEN a.start AND a.stop.")
    return low


def _refuse_window(window: WindowClause | None) -> None:
    if window is not None:
        raise window.said.error(
            need="a window over what the join gives",
            got="a window over one side of it",
            next_step="Put the join into a sub-query, and the window after its parenthesis.",
        )


def _stream(cursor: Cursor) -> Fragment:
    start = cursor.at
    need = "the name of a stream, or a sub-query in parentheses"
    if start < len(cursor.tokens) and begins_clause(cursor.tokens, start):
        raise cursor.unexpected(need, f"Write {_FORM}.")
    cursor.name(need, f"Write {_FORM}.")
    return cursor.since(start)


def _alias(cursor: Cursor) -> str | None:
    if cursor.accept("AS"):
        return cursor.name("an alias after AS").value
    token = cursor.peek()
    if not _may_be_alias(token) or token.word in _NO_ALIAS or begins_clause(cursor.tokens, cursor.at):
        return None
    return cursor.take().value


def _group(cursor: Cursor) -> tuple[Fragment, ...]:
    parts: list[Fragment] = []
    while not parts or cursor.accept(","):
        first, second = cursor.peek(), cursor.peek(1)
        if (first.word in ("ROLLUP", "CUBE") and second.word == "(") or cursor.sees("GROUPING", "SETS"):
            raise _only_plain_groups(cursor)
        parts.append(cursor.expression("a grouping expression"))
        if [token.word for token in parts[-1].tokens[-2:]] in (["WITH", "ROLLUP"], ["WITH", "CUBE"]):
            cursor.at -= 1
            raise _only_plain_groups(cursor)
    if cursor.sees("GROUPING", "SETS"):
        raise _only_plain_groups(cursor)
    return tuple(parts)


def _only_plain_groups(cursor: Cursor) -> AnabranchError:
    return cursor.unexpected("plain grouping expressions", "Make one stream for each set of columns to group by.")
