"""The clauses that limit what a query says: `ON REVISION IGNORE` and `REVISE WHEN`."""

from __future__ import annotations

from anabranch.diagram.expression import Expression
from anabranch.diagram.limits import WAITS
from anabranch.diagram.sql.calls import none_in
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.words import trails
from anabranch.model.errors import AnabranchError

_NEED = "a condition on old and new, IDLE or KEPT"
_WHEN = "Write REVISE WHEN abs(new.c - old.c) > 10, REVISE WHEN IDLE, or REVISE WHEN KEPT."


def revise_when(cursor: Cursor) -> Fragment | int:
    """What follows REVISE WHEN: a condition, or what is waited for."""
    end = cursor.peek(1).kind is Kind.END or trails(cursor.tokens, cursor.at + 1)
    if cursor.peek().word in WAITS and (end or cursor.peek(1).word == ")"):
        return WAITS[cursor.take().word]
    found = cursor.expression(_NEED)
    importance(found)
    return found


def importance(said: Fragment) -> Expression:
    """The condition under which a revision is said."""
    none_in(said, "REVISE WHEN", "It is about one result, as it was said (old) and as it is now (new).")
    words = {token.word for token in said.tokens}
    if not words & {"OLD", "NEW"}:
        raise said.error(need=_NEED, got="neither of them in it", next_step=_WHEN)
    return said.expression


def ignore(cursor: Cursor) -> bool:
    """What follows ON REVISION."""
    if not cursor.accept("IGNORE"):
        raise cursor.unexpected("IGNORE", "Write ON REVISION IGNORE, or leave it out.", ("IGNORE",))
    return True


def contradiction(clause: Fragment) -> AnabranchError:
    return clause.error(
        need="either ON REVISION IGNORE or a clause that says when revisions are said",
        got="both",
        next_step="Leave one out.",
    )
