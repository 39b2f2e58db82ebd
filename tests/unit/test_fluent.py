"""The fluent form gives the boxes that SQL gives."""

from __future__ import annotations

from datetime import timedelta

import pytest

from anabranch.diagram.boxes.source import Source
from anabranch.diagram.fluent import Flow
from anabranch.diagram.query import OnError, Query
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError

COLUMNS = ("user", "campaign", "price", "ts")
IMPSNS = Flow(Source("impsns", COLUMNS), "impsns")


def sql(text: str) -> Query:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, lambda _: COLUMNS)


PAIRS = [
    (IMPSNS, "SELECT * FROM impsns"),
    (IMPSNS.select("*"), "SELECT * FROM impsns"),
    (IMPSNS.where("price > 0"), "SELECT * FROM impsns WHERE price > 0"),
    (
        IMPSNS.where("price > 0").select("user", "impsns.campaign", "price * 2 AS twice", "ts t"),
        "SELECT user, impsns.campaign, price * 2 AS twice, ts t FROM impsns WHERE price > 0",
    ),
    (IMPSNS.select("*", "price + 1 AS more"), "SELECT *, price + 1 AS more FROM impsns"),
    (IMPSNS.agg("count(*) AS c"), "SELECT count(*) AS c FROM impsns"),
    (IMPSNS.select("count(*) AS c"), "SELECT count(*) AS c FROM impsns"),
    (
        IMPSNS.groupBy("campaign").agg("count(*) AS c"),
        "SELECT campaign, count(*) AS c FROM impsns GROUP BY campaign",
    ),
    (
        IMPSNS.window("1 minute").groupBy("campaign").agg("count(*) AS c", "cq_close(*) AS t"),
        "SELECT campaign, count(*) AS c, cq_close(*) AS t FROM impsns <SLICES '1 minute'> GROUP BY campaign",
    ),
    (
        IMPSNS.groupBy("campaign").window(timedelta(minutes=15), "5 minutes").where("price > 0").agg("sum(price) s"),
        "SELECT campaign, sum(price) s FROM impsns <VISIBLE '15 min' ADVANCE '5 min'> WHERE price > 0 "
        "GROUP BY campaign",
    ),
    (
        IMPSNS.groupBy("upper(campaign) AS k", "user").agg("max(price)"),
        "SELECT upper(campaign) AS k, user, max(price) FROM impsns GROUP BY upper(campaign), user",
    ),
    (
        IMPSNS.groupBy("campaign").agg("count(*) AS c").having("c > 5 AND max(price) > 1"),
        "SELECT campaign, count(*) AS c FROM impsns GROUP BY campaign HAVING c > 5 AND max(price) > 1",
    ),
    (
        IMPSNS.groupBy("campaign").agg("count(*) AS c").where("c > 5"),
        "SELECT campaign, count(*) AS c FROM impsns GROUP BY campaign HAVING count(*) > 5",
    ),
    (IMPSNS.groupBy("campaign").agg(), "SELECT campaign FROM impsns GROUP BY campaign"),
    (
        IMPSNS.window("1 min").groupBy("campaign").agg("count(*) c").window("5 min").agg("max(c) m"),
        "SELECT max(c) m FROM (SELECT campaign, count(*) c FROM impsns <SLICES '1 min'> GROUP BY campaign) "
        "<SLICES '5 min'>",
    ),
    (
        IMPSNS.agg("count(*) AS c").where("c > 1").select("c + 1 AS d").where("d > 2"),
        "SELECT * FROM (SELECT c + 1 AS d FROM (SELECT count(*) AS c FROM impsns HAVING c > 1)) WHERE d > 2",
    ),
    (
        IMPSNS.select("user").union(IMPSNS.select("price")).union(IMPSNS.select("campaign")),
        "SELECT user FROM impsns UNION ALL SELECT price FROM impsns UNION ALL SELECT campaign FROM impsns",
    ),
    (
        IMPSNS.qualify("row_number() OVER (PARTITION BY user ORDER BY price DESC) <= 3").select("user", "price"),
        "SELECT user, price FROM impsns QUALIFY row_number() OVER (PARTITION BY user ORDER BY price DESC) <= 3",
    ),
    (
        IMPSNS.alias("i").lookup(IMPSNS.alias("p"), on="i.user = p.user", how="left").select("i.price"),
        "SELECT i.price FROM impsns AS i LEFT LOOKUP impsns AS p ON i.user = p.user",
    ),
    (
        IMPSNS.alias("i").lookup(IMPSNS.alias("p"), on="i.user = p.user", revise=False).select("i.price"),
        "SELECT i.price FROM impsns AS i LOOKUP impsns AS p ON i.user = p.user WITHOUT REVISION",
    ),
    (
        IMPSNS.window("1 minute").groupBy("user").apply("package.module:function", "a INT, b DOUBLE", "price", "ts"),
        "SELECT price, ts FROM impsns <SLICES '1 minute'> GROUP BY user "
        "APPLY 'package.module:function' RETURNS (a INT, b DOUBLE)",
    ),
]


@pytest.mark.parametrize(("flow", "text"), PAIRS, ids=[text for _, text in PAIRS])
def test_the_same_query_in_both_forms(flow: Flow, text: str) -> None:
    assert flow.query("q") == sql(text)


def test_conditions_on_groups_add_up() -> None:
    twice = IMPSNS.agg("count(*) AS c", "max(price) AS m").having("c > 1").where("m > 2")
    assert [box.predicate.text for box in twice.box.walk() if hasattr(box, "predicate")] == ["_a1 > 2", "_a0 > 1"]


def test_a_flow_never_changes() -> None:
    base = IMPSNS.window("1 minute").groupBy("campaign")
    one, two = base.agg("count(*) AS c"), base.agg("max(price) AS m")
    assert one.columns == ("campaign", "c")
    assert two.columns == ("campaign", "m")
    assert one.having("c > 1").box != one.box
    assert IMPSNS.box == Source("impsns", COLUMNS)


def test_offsets_into_arguments_are_not_kept() -> None:
    flow = IMPSNS.where("price > 0").groupBy("campaign").agg("1 + sum(price) AS s")
    assert "at=0" not in repr(flow.box)
    assert "at=4" not in repr(flow.box)


def test_how_the_answers_are_given() -> None:
    query = IMPSNS.query("q", archive="ar", revise_every=3, on_error="Quarantine")
    assert (query.archive, query.revise_every, query.on_error) == ("ar", 3, OnError.QUARANTINE)
    assert query == sql("SELECT * FROM impsns ARCHIVE INTO ar REVISE EVERY 3 BUCKETS ON ERROR QUARANTINE")


class Column:
    """Stands for PySpark's."""


@pytest.mark.parametrize(
    "say",
    [
        lambda: IMPSNS.where(Column()),
        lambda: IMPSNS.select("user", Column()),
        lambda: IMPSNS.groupBy(Column()),
        lambda: IMPSNS.agg(Column()),
        lambda: IMPSNS.agg("count(*) c").having(Column()),
    ],
)
def test_expressions_are_text(say) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AnabranchError) as caught:
        say()
    assert caught.value.id == "BAD_ARGUMENT"
    assert caught.value.got == "a Column"
    assert "SQL strings" in caught.value.next_step


@pytest.mark.parametrize(
    ("say", "place"),
    [
        (lambda: IMPSNS.select(), "select()"),
        (lambda: IMPSNS.agg(), "agg()"),
        (lambda: IMPSNS.groupBy().agg(), "agg()"),
        (lambda: IMPSNS.groupBy("user").select("user"), "select()"),
        (lambda: IMPSNS.groupBy("user").groupBy("user"), "groupBy()"),
        (lambda: IMPSNS.window("1 min").window("1 min"), "window()"),
        (lambda: IMPSNS.having("price > 0"), "having()"),
        (lambda: IMPSNS.window("1 min").query("q"), "query()"),
        (lambda: IMPSNS.groupBy("user").query("q"), "query()"),
        (lambda: IMPSNS.window("1 min").union(IMPSNS), "union()"),
        (lambda: IMPSNS.union(IMPSNS.groupBy("user")), "union()"),
        (lambda: IMPSNS.union("impsns"), "union()"),
        (lambda: IMPSNS.union(IMPSNS.select("user")), "union()"),
        (lambda: IMPSNS.apply(None, "a INT", "price"), "apply()"),
        (lambda: IMPSNS.window("1 min").apply("a:b", "a INT"), "apply()"),
        (lambda: IMPSNS.window("1 min").qualify("row_number() OVER (ORDER BY price) = 1"), "qualify()"),
        (lambda: IMPSNS.lookup(IMPSNS.alias("p"), on="TRUE", how="right"), "lookup(), how="),
        (lambda: IMPSNS.lookup("prices", on="TRUE"), "lookup()"),
        (lambda: IMPSNS.lookup(IMPSNS.select("user"), on="TRUE", revise=False), "lookup()"),
        (lambda: IMPSNS.query("q", revise_every=0), "revise_every="),
        (lambda: IMPSNS.query("q", revise_every="often"), "revise_every="),
        (lambda: IMPSNS.query("q", revise_every=True), "revise_every="),
        (lambda: IMPSNS.query("q", on_error="skip"), "on_error="),
        (lambda: IMPSNS.query("q", on_error=None), "on_error="),
    ],
)
def test_wrong_calls_are_refused(say, place: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AnabranchError) as caught:
        say()
    assert (caught.value.id, caught.value.place) == ("BAD_ARGUMENT", place)


@pytest.mark.parametrize(
    ("say", "error", "place"),
    [
        (lambda: IMPSNS.where("price >"), None, None),  # for Spark to say
        (lambda: IMPSNS.where(""), "SYNTAX", "where(), line 1, column 1:\n\n    ^"),
        (lambda: IMPSNS.where("count(*) > 1"), "SYNTAX", "where(), line 1, column 1:\n    count(*) > 1\n    ^^^^^^^^"),
        (lambda: IMPSNS.where("a) b"), "SYNTAX", "where(), line 1, column 2:\n    a) b\n     ^"),
        (lambda: IMPSNS.select("user, price"), "SYNTAX", "select(), line 1, column 5:\n    user, price\n        ^"),
        (lambda: IMPSNS.select("user ORDER BY 1"), "SYNTAX", None),
        (lambda: IMPSNS.agg("price AS p"), "NOT_GROUPED", "agg(), line 1, column 1:\n    price AS p\n    ^^^^^"),
        (lambda: IMPSNS.agg("cq_close(*) AS t", "count(*) AS c"), "SYNTAX", None),
        (lambda: IMPSNS.agg("count(*) AS c").having("price > 1"), "NOT_GROUPED", None),
        (lambda: IMPSNS.groupBy("user").agg("max(price) AS user"), "SYNTAX", None),
        (lambda: IMPSNS.window("1 month"), "BAD_DURATION", "window(), size="),
        (lambda: IMPSNS.window(5), "BAD_DURATION", "window(), size="),
        (lambda: IMPSNS.window("0 s"), "BAD_DURATION", "window(), line 1, column 1:\n    0 s\n    ^^^"),
        (lambda: IMPSNS.window("1 min", "2 min"), "BAD_DURATION", "window(), line 1, column 1:\n    2 min\n    ^^^^^"),
        (lambda: IMPSNS.window("1 min").select("user"), "SYNTAX", "window(), line 1, column 1:\n    1 min\n    ^^^^^"),
        (lambda: IMPSNS.apply("a:b", "a INT", "price"), "SYNTAX", None),
        (lambda: IMPSNS.window("1 min").apply("a:b", "a INT) x", "price"), "SYNTAX", None),
        (lambda: IMPSNS.window("1 min").apply("a:b", "", "price"), "SYNTAX", None),
        (lambda: IMPSNS.qualify("price > 1"), "SYNTAX", None),
        (lambda: IMPSNS.query("_q"), "BAD_NAME", None),
        (lambda: IMPSNS.query("q", archive="a b"), "BAD_NAME", None),
    ],
)
def test_mistakes_in_arguments_are_pointed_at(say, error: str | None, place: str | None) -> None:  # type: ignore[no-untyped-def]
    if error is None:
        say()
        return
    with pytest.raises(AnabranchError) as caught:
        say()
    assert caught.value.id == error
    assert place is None or caught.value.place == place


def test_what_a_lookup_notes_for_itself_is_no_column() -> None:
    found = IMPSNS.alias("i").lookup(IMPSNS.alias("p"), on="i.user = p.user", revise=False)
    for flow in (found.sort(), found.alias("a"), found.union(found)):
        assert not [name for name in flow.columns if name.startswith("_")]
    assert found.query("q").box.columns == ("i", "p")
