"""The clauses that limit a query, in SQL and in the fluent form."""

from __future__ import annotations

import pytest

from anabranch.diagram.boxes.source import Source
from anabranch.diagram.expression import Expression
from anabranch.diagram.fluent import Flow
from anabranch.diagram.limits import IDLE, KEPT, Limits
from anabranch.diagram.query import Query
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError

HOUR = 3_600_000_000
COLUMNS = ("k", "revise", "revision", "error")
SELECT = "SELECT k, count(*) AS c FROM s <SLICES '1 minute'> GROUP BY k"


def compiled(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, lambda name: COLUMNS)


@pytest.mark.parametrize(
    ("clauses", "limits", "every"),
    [
        ("", Limits(), 1),
        ("ON REVISION IGNORE", Limits(ignore=True), 1),
        ("on revision ignore ON ERROR NULL", Limits(ignore=True), 1),
        ("REVISE WHEN abs(new.c - old.c) > 10", Limits(when=Expression("abs(new.c - old.c) > 10")), 1),
        ("REVISE WHEN new.c > old.c REVISE EVERY 3 BUCKETS", Limits(when=Expression("new.c > old.c")), 3),
        ("REVISE WHEN IDLE", Limits(), IDLE),
        ("REVISE WHEN KEPT", Limits(), KEPT),
        ("REVISE WHEN IDLE REVISE WHEN old.k ARCHIVE INTO ar", Limits(when=Expression("old.k")), IDLE),
    ],
)
def test_limits_of_a_statement(clauses: str, limits: Limits, every: int) -> None:
    found = compiled(f"CREATE STREAM q AS {SELECT} {clauses}")
    assert (found.limits, found.revise_every) == (limits, every)
    assert compiled(f"CREATE STREAM q AS ({SELECT} {clauses})").limits == limits
    assert Limits.from_json(found.limits.to_json()) == limits


def test_history_comes_before_the_query() -> None:
    assert compiled(f"CREATE STREAM q HISTORY '5 hours' AS {SELECT}").limits == Limits(history=5 * HOUR)


def test_columns_may_have_the_names_of_our_words() -> None:
    assert compiled("CREATE STREAM q AS SELECT CASE revise WHEN 1 THEN revision END AS x FROM s").limits == Limits()
    joined = "CREATE STREAM q AS SELECT s.k FROM s JOIN s AS t ON revision = 3"
    assert compiled(joined).box is not None


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        (f"AS {SELECT} ON REVISION DROP", "DROP", "need IGNORE"),
        (f"AS {SELECT} REVISE WHEN", None, "a condition on old and new"),
        (f"AS {SELECT} REVISE WHEN c > 3", "c > 3", "neither of them"),
        (f"AS {SELECT} REVISE WHEN sum(new.c) > 3", "sum(new.c)", "over single rows"),
        (f"AS {SELECT} ON REVISION IGNORE REVISE EVERY 3 BUCKETS", "REVISE EVERY 3 BUCKETS", "both"),
        (f"AS {SELECT} REVISE WHEN old.c > 1 ON REVISION IGNORE", "ON REVISION IGNORE", "both"),
        (f"AS {SELECT} REVISE WHEN IDLE REVISE EVERY 2 BUCKETS", "REVISE EVERY", "each clause once"),
        ("HISTORY '5 hours' (k INT)", "(", "AS and a query"),
        (f"HISTORY '5 owls' AS {SELECT}", "'5 owls'", "a duration"),
    ],
)
def test_what_is_refused_says_where(text: str, at: str | None, said: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        compiled(f"CREATE STREAM q {text}")
    assert said in str(caught.value)
    if at is not None:
        _, line, marks = caught.value.place.splitlines()
        assert line[marks.index("^") : marks.rindex("^") + 1] == at


def test_the_fluent_form_says_the_same() -> None:
    flow = Flow(Source("s", COLUMNS), "s").window("1 minute").groupBy("k").agg("count(*) AS c")
    assert flow.query("q", on_revision="ignore").limits == Limits(ignore=True)
    found = flow.query("q", revise_when="new.c > old.c", revise_every="idle", history="5 hours")
    assert found == compiled(
        f"CREATE STREAM q HISTORY '5 hours' AS {SELECT} REVISE WHEN new.c > old.c REVISE WHEN IDLE"
    )
    for wrong in (
        {"on_revision": "drop"},
        {"revise_when": "c > 3"},
        {"revise_when": 3},
        {"revise_every": "often"},
        {"history": "long"},
        {"on_revision": "ignore", "revise_every": 2},
    ):
        with pytest.raises(AnabranchError):
            flow.query("q", **wrong)  # type: ignore[arg-type]
