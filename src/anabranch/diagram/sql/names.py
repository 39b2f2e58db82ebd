"""What the columns of a select are called, and how a column's name is written in an expression."""

from __future__ import annotations

import re

from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.tree import Item

# Bare, these words would be read as something else than a column.
_NEVER_BARE = frozenset(("and", "case", "cast", "exists", "false", "interval", "not", "null", "or", "true"))


def written(name: str) -> str:
    """A column in an expression, in backticks where it needs them."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _NEVER_BARE
    return name if plain else f"`{name.replace('`', '``')}`"


def is_column(fragment: Fragment) -> bool:
    """Whether an expression is a column, qualified or not, or a field of one, and nothing else."""
    tokens = fragment.tokens
    dots = all(token.word == "." for token in tokens[1::2])
    return len(tokens) % 2 == 1 and dots and all(token.is_name for token in tokens[::2])


def output_name(item: Item) -> str:
    """An item's name: its alias, the column's own name, or the text."""
    if item.alias is not None:
        name = item.alias
    elif is_column(item.expression):
        name = item.expression.tokens[-1].value
    else:
        name = item.expression.squeezed
    if not name or name.startswith("_") or "." in name or "`" in name:
        raise item.whole.error(
            need="a column name without a dot or backtick that does not begin with an underscore",
            got=repr(name),
            next_step=f"Name it: {item.expression.squeezed} AS name.",
        )
    return name


def check_different(named: list[tuple[str, Fragment]]) -> None:
    """Refuse a name that comes twice, in whatever case."""
    seen: set[str] = set()
    for name, said in named:
        if name.lower() in seen:
            raise said.error(
                need="columns with different names",
                got=f"{name!r} twice",
                next_step="Name one of them otherwise, with AS.",
            )
        seen.add(name.lower())
