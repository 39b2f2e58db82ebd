"""The first rows of groups: `row_number() OVER (PARTITION BY a ORDER BY b DESC) <= 3`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.diagram.boxes.topn import Order
from anabranch.diagram.expression import Expression
from anabranch.diagram.sql.fragment import Fragment, closing, outermost
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.tree import Item, Select
from anabranch.diagram.sql.words import token_at
from anabranch.model.errors import AnabranchError

_FORM = "Write QUALIFY row_number() OVER (PARTITION BY a ORDER BY b DESC) <= 3."
_CALL = ("ROW_NUMBER", "(", ")", "OVER", "(")


@dataclass(frozen=True)
class Rank:
    """What `row_number() OVER (...)` says, and the tokens that it takes."""

    keys: tuple[Expression, ...]
    order: tuple[Order, ...]
    end: int


def begins(fragment: Fragment) -> bool:
    """Whether an expression begins with `row_number() OVER (`."""
    return tuple(token.word for token in fragment.tokens[: len(_CALL)]) == _CALL


def rank(fragment: Fragment) -> Rank:
    """The rank that an expression begins with."""
    if not begins(fragment):
        raise _unknown(fragment)
    close = closing(fragment.source, fragment.tokens, len(_CALL) - 1)
    inside = fragment.part(len(_CALL), close)
    words = {i: inside.tokens[i].word for i in outermost(inside.source, inside.tokens)}
    ordered = next((i for i, word in words.items() if word == "ORDER" and words.get(i + 1) == "BY"), None)
    if ordered is None or ordered + 2 >= len(inside.tokens):
        raise inside.error(need="ORDER BY and expressions", got=inside.squeezed or "nothing", next_step=_FORM)
    keys = inside.part(0, ordered)
    if keys.tokens:
        if [token.word for token in keys.tokens[:2]] != ["PARTITION", "BY"] or len(keys.tokens) < 3:
            raise keys.error(need="PARTITION BY and expressions", got=keys.squeezed, next_step=_FORM)
        keys = keys.part(2, len(keys.tokens))
    found = tuple(part.expression for part in keys.split()) if keys.tokens else ()
    return Rank(found, tuple(_orders(inside.part(ordered + 2, len(inside.tokens)))), close + 1)


def bound(fragment: Fragment, start: int) -> int:
    """The number of rows that a comparison after a rank leaves: `<= n`, `< n` or `= 1`."""
    tokens = fragment.tokens[start:]
    number = token_at(tokens, 1)
    whole = len(tokens) == 2 and number.kind is Kind.NUMBER and number.raw.isdigit()
    most = int(number.raw) - (tokens[0].word == "<") if whole else 0
    equal = whole and tokens[0].word in ("=", "==")
    if not whole or most < 1 or not (tokens[0].word in ("<=", "<") or (equal and most == 1)):
        raise _unknown(fragment)
    return most


@dataclass(frozen=True)
class Nested:
    """`FROM (SELECT ..., row_number() OVER (...) AS rn FROM ...) WHERE rn <= n AND ...`."""

    select: Select
    item: Item
    rank: Rank
    name: str
    most: int
    rest: Fragment | None


def nested(tree: Select) -> Nested | None:
    """The rank of a sub-query, if the condition above it wants the first rows only."""
    inner = tree.source
    if not isinstance(inner, Select) or tree.joins or inner.shape.group is not None or inner.shape.window is not None:
        return None
    items = [item for item in inner.shape.items if begins(item.expression)]
    if len(items) != 1 or items[0].alias is None or tree.where is None:
        return None
    name, condition = items[0].alias, tree.where
    if token_at(condition.tokens, 0).value.lower() != name.lower() or token_at(condition.tokens, 3).word not in (
        "",
        "AND",
    ):
        return None
    found = rank(items[0].expression)
    if found.end != len(items[0].expression.tokens):
        return None
    most = bound(condition.part(0, 3), 1)
    rest = condition.part(4, len(condition.tokens)) if len(condition.tokens) > 4 else None
    return Nested(inner, items[0], found, name, most, rest)


def _orders(fragment: Fragment) -> Iterator[Order]:
    for part in fragment.split():
        words = [token.word for token in part.tokens]
        nulls = words[-1] if len(words) > 2 and words[-2] == "NULLS" and words[-1] in ("FIRST", "LAST") else None
        part = part.part(0, len(words) - 2) if nulls else part
        direction = part.tokens[-1].word if len(part.tokens) > 1 else ""
        if direction in ("ASC", "DESC"):
            part = part.part(0, -1)
        if not part.tokens:
            raise fragment.error(need="an expression to order by", got="nothing", next_step=_FORM)
        descending = direction == "DESC"
        yield Order(part.expression, descending, descending if nulls is None else nulls == "LAST")


def _unknown(fragment: Fragment) -> AnabranchError:
    return fragment.error(
        need="row_number() OVER (...) compared with a number: <= n, < n or = 1",
        got=fragment.squeezed,
        next_step=_FORM,
    )
