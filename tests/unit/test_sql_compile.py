"""From a query's text to its boxes."""

from __future__ import annotations

import pytest

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.query import OnError, Query
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError
from anabranch.model.window import Window

COLUMNS = {
    "impsns": ("user", "campaign", "price", "ts"),
    "wide": ("a", "b", "date", "day", "odd name", "null", "s", "xs", "v"),
}
IMPSNS = Source("impsns", COLUMNS["impsns"])
WIDE = Source("wide", COLUMNS["wide"])
MINUTE = 60_000_000


def columns_of(name: str) -> tuple[str, ...]:
    if name not in COLUMNS:
        raise AnabranchError("UNKNOWN_STREAM", place="?", need="a stream", got=repr(name), next_step="Create it.")
    return COLUMNS[name]


def query(text: str) -> Query:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, columns_of)


def box(text: str) -> Box:
    return query(text).box


def named(**outputs: str) -> tuple[Named, ...]:
    return tuple(Named(name, Expression(text)) for name, text in outputs.items())


def call(name: str, function: str, *arguments: str, where: str | None = None) -> Call:
    return Call(name, function, tuple(map(Expression, arguments)), Expression(where) if where else None)


def parts(text: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Of an aggregate query: its keys, its calls, its conditions on groups, its columns."""
    top = box(text)
    assert isinstance(top, Map)
    outputs = [str(output) for output in top.outputs]
    having: list[str] = []
    below = top.input
    while isinstance(below, Filter):
        having.insert(0, str(below.predicate))
        below = below.input
    assert isinstance(below, Aggregate)
    return [str(k.expression) for k in below.keys], [str(c) for c in below.calls], having, outputs


def test_the_example_of_the_readme() -> None:
    assert query(
        "SELECT campaign, count(*) AS c, cq_close(*) AS t FROM impsns <SLICES '1 minute'> GROUP BY campaign "
        "ARCHIVE INTO ar REVISE EVERY 2 BUCKETS ON ERROR QUARANTINE"
    ) == Query(
        "q",
        Map(
            Aggregate(IMPSNS, Window(MINUTE, MINUTE), named(_k0="campaign"), (call("_a0", "count"),)),
            named(campaign="_k0", c="_a0", t="_close"),
        ),
        "ar",
        2,
        OnError.QUARANTINE,
    )


def test_rows_are_filtered_and_mapped() -> None:
    assert box("SELECT user, price*2 AS twice, `price` p FROM impsns WHERE price > 0") == Map(
        Filter(IMPSNS, Expression("price > 0")), named(user="user", twice="price*2", p="`price`")
    )


def test_a_star_alone_is_no_box() -> None:
    assert box("SELECT * FROM impsns") == IMPSNS
    assert box("SELECT impsns.* FROM impsns") == IMPSNS
    assert box("SELECT i.* FROM impsns i") == View(IMPSNS, "i")


def test_a_star_among_others_is_spelled_out() -> None:
    made = box("SELECT *, a + 1 AS a1 FROM wide")
    assert isinstance(made, Map)
    assert made.columns == (*COLUMNS["wide"], "a1")
    assert [o.expression.text for o in made.outputs] == [
        "a", "b", "date", "day", "`odd name`", "`null`", "s", "xs", "v", "a + 1"
    ]  # fmt: skip
    assert box("SELECT 1 AS one, w.* FROM wide AS w").columns == ("one", *COLUMNS["wide"])


def test_an_alias_makes_a_view_only_where_it_differs() -> None:
    for alias in ("", "impsns", "AS Impsns"):
        assert box(f"SELECT * FROM impsns {alias}") == IMPSNS
    assert box("SELECT i.user FROM impsns AS i") == Map(View(IMPSNS, "i"), named(user="i.user"))


def test_sub_queries_nest() -> None:
    inner = Map(Filter(IMPSNS, Expression("price > 0")), named(campaign="campaign"))
    text = "SELECT campaign FROM impsns WHERE price > 0"
    assert box(f"SELECT * FROM ({text})") == inner
    assert box(f"SELECT * FROM (({text}))") == inner
    assert box(f"SELECT * FROM ({text}) AS x") == View(inner, "x")
    assert box(f"SELECT max(x.campaign) m FROM ({text}) x <SLICES '1 min'>") == Map(
        Aggregate(View(inner, "x"), Window(MINUTE, MINUTE), (), (call("_a0", "max", "x.campaign"),)), named(m="_a0")
    )


def test_an_aggregate_over_an_aggregate() -> None:
    counts = "SELECT campaign, count(*) c FROM impsns <SLICES '1 min'> GROUP BY campaign"
    made = box(f"SELECT max(c) m, cq_close(*) t FROM ({counts}) <SLICES '5 min'>")
    assert isinstance(made, Map)
    assert isinstance(made.input, Aggregate)
    assert made.input.input == box(counts)
    assert made.input.window == Window(5 * MINUTE, 5 * MINUTE)


@pytest.mark.parametrize(
    "source",
    [
        "impsns <VISIBLE '15 minutes' ADVANCE '5 minutes'> i",
        "impsns i <VISIBLE '15 minutes' ADVANCE '5 minutes'>",
        "impsns AS i<visible'15 min'advance'300 s'>",
        "impsns <VISIBLE INTERVAL '15' MINUTES ADVANCE 5 MINUTES> AS i",
        "impsns /* a */ < -- b\n VISIBLE '15 minutes' ADVANCE '5 minutes' > `i`",
    ],
)
def test_windows_stand_on_either_side_of_the_alias(source: str) -> None:
    made = box(f"SELECT count(*) c FROM {source} WHERE price > 0")
    window = Window(15 * MINUTE, 5 * MINUTE)
    below = Filter(View(IMPSNS, "i"), Expression("price > 0"))
    assert made == Map(Aggregate(below, window, (), (call("_a0", "count"),)), named(c="_a0"))


def test_a_union_is_flat() -> None:
    a, b = "SELECT user FROM impsns", "SELECT campaign FROM impsns"
    one, two = box(a), box(b)
    assert box(f"{a} UNION ALL {b} UNION ALL {a}") == Union((one, two, one))
    assert box(f"({a}) UNION ALL ({b} union all {a})") == Union((one, two, one))
    assert box(f"SELECT * FROM ({a} UNION ALL {b}) u") == View(Union((one, two)), "u")
    assert query(f"({a} UNION ALL {b}) ARCHIVE INTO t").archive == "t"


def test_expressions_keep_their_place_in_the_statement() -> None:
    text = "CREATE STREAM q AS SELECT upper(campaign) k,\n sum(price) / 2 h FROM impsns WHERE price > 0 GROUP BY 1"
    (statement,) = parse(f"SHOW STREAMS;\n{text}")[1:]
    assert isinstance(statement, CreateQuery)
    made = compile_query(statement, columns_of).box
    assert isinstance(made, Map)
    assert [o.expression.at for o in made.outputs] == [text.index("upper"), text.index("sum")]
    aggregate = made.input
    assert isinstance(aggregate, Aggregate)
    assert aggregate.keys[0].expression.at == text.index("upper")
    assert aggregate.calls[0].at == text.index("sum")
    assert aggregate.calls[0].arguments[0].at == text.index("price)")
    assert isinstance(aggregate.input, Filter)
    assert aggregate.input.predicate.at == text.index("price > 0")


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("user", "user"),
        ("impsns.user", "user"),
        ("`user`", "user"),
        ("user AS u", "u"),
        ("user u", "u"),
        ("user `odd name`", "odd name"),
        ("price  +  1", "price + 1"),
        ("price/* c */+1", "price +1"),
        ("CASE WHEN price > 1 THEN 1 END", "CASE WHEN price > 1 THEN 1 END"),
        ("CASE WHEN price > 1 THEN 1 END c", "c"),
        ("ts + INTERVAL 1 DAY", "ts + INTERVAL 1 DAY"),
        ("ts + INTERVAL '1' DAY d", "d"),
        ("INTERVAL 1 DAY 2 HOURS", "INTERVAL 1 DAY 2 HOURS"),
        ("INTERVAL price DAYS", "INTERVAL price DAYS"),
        ("price IS NULL", "price IS NULL"),
        ("price IS NULL missing", "missing"),
        ("price IS DISTINCT FROM user AS d", "d"),
        ("price IS NOT DISTINCT FROM user", "price IS NOT DISTINCT FROM user"),
        ("date '2026-01-01' d", "d"),
        ("price::int", "price::int"),
        ("price::map<string, int> m", "m"),
        ("extract(year FROM ts) y", "y"),
        ("price limit", "limit"),
        ("ts day", "day"),
        ("5 five", "five"),
    ],
)
def test_the_names_of_columns(item: str, name: str) -> None:
    assert box(f"SELECT {item} FROM impsns").columns == (name,)


def test_what_only_spark_can_read_goes_through_untouched() -> None:
    made = box("SELECT v:a.b::int x, transform(xs, y -> y + 1)[0] AS f, r'\\d' AS r FROM wide WHERE v:k[0] <=> 'é'")
    assert made == Map(
        Filter(WIDE, Expression("v:k[0] <=> 'é'")),
        named(x="v:a.b::int", f="transform(xs, y -> y + 1)[0]", r="r'\\d'"),
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("count(*)", "count(*)"),
        ("COUNT( 1 )", "count(*)"),
        ("count('x')", "count(*)"),
        ("count(true)", "count(*)"),
        ("count(ALL a)", "count(a)"),
        ("count(NULL)", "count(NULL)"),
        ("count(a, b)", "count(a, b)"),
        ("count(DISTINCT a, b)", "count_distinct(a, b)"),
        ("`count`(a)", "count(a)"),
        ("mean(a)", "avg(a)"),
        ("std(a)", "stddev_samp(a)"),
        ("any(a > 1)", "bool_or(a > 1)"),
        ("min(DISTINCT a)", "min(a)"),
        ("max( distinct a )", "max(a)"),
        ("first_value(a)", "first(a)"),
        ("percentile(a, 0.5)", "percentile(a, 0.5)"),
        ("percentile_approx(a, array(0.1, 0.9), 100)", "approx_percentile(a, array(0.1, 0.9), 100)"),
        ("sum(a) FILTER (WHERE b > 0)", "sum(a) FILTER (WHERE b > 0)"),
        ("sum(a)filter(where b > 0)", "sum(a) FILTER (WHERE b > 0)"),
        ("sum(CASE WHEN a IN (1, 2) THEN b END)", "sum(CASE WHEN a IN (1, 2) THEN b END)"),
    ],
)
def test_the_calls(said: str, meant: str) -> None:
    assert parts(f"SELECT {said} AS x FROM wide") == ([], [meant], [], ["_a0 AS x"])


def test_calls_that_mean_the_same_are_one() -> None:
    _, calls, having, outputs = parts(
        "SELECT sum(a) x, SUM( w.A ) / count(1) y, sum((`a`)) z, count(*) c, sum(a) FILTER (WHERE b > 0) f "
        "FROM wide w HAVING sum(/* again */ a) > 1 AND max(b)between 1 and 2"
    )
    assert calls == ["sum(a)", "count(*)", "sum(a) FILTER (WHERE b > 0)", "max(b)"]
    assert outputs == ["_a0 AS x", "_a0 / _a1 AS y", "_a0 AS z", "_a1 AS c", "_a2 AS f"]
    assert having == ["_a0 > 1 AND _a3 between 1 and 2"]


def test_like_any_is_no_aggregate() -> None:
    assert isinstance(box("SELECT a FROM wide WHERE a LIKE ANY ('x%', 'y%')"), Map)
    assert isinstance(box("SELECT db.sum(a) AS s FROM wide"), Map)


def test_columns_may_have_the_names_of_aggregates() -> None:
    made = box("SELECT first, min + max AS w FROM (SELECT a AS first, b AS min, day AS max FROM wide)")
    assert made.columns == ("first", "w")


@pytest.mark.parametrize(
    ("item", "group", "output"),
    [
        ("a", "a", "_k0 AS a"),
        ("A", "`a`", "_k0 AS A"),
        ("w.a", "a", "_k0 AS a"),
        ("a", "W.A", "_k0 AS a"),
        ("a + 1 AS x", "a", "_k0 + 1 AS x"),
        ("upper(a) AS x", "upper( a )", "_k0 AS x"),
        ("upper(a) AS x", "a", "upper(_k0) AS x"),
        ("concat(upper(w.a), 'x') AS x", "upper(a)", "concat(_k0, 'x') AS x"),
        ("a + b AS x", "a + b", "_k0 AS x"),
        ("(a + b) * 2 AS x", "a + b", "(_k0) * 2 AS x"),
        ("a + b - 2 AS x", "a + b", "_k0 - 2 AS x"),
        ("a + b > 2 AND true AS x", "a + b", "_k0 > 2 AND true AS x"),
        ("CASE WHEN a + b > 2 THEN a + b END AS x", "a + b", "CASE WHEN _k0 > 2 THEN _k0 END AS x"),
        ("a AS x", "(a)", "_k0 AS x"),
        ("s.f AS x", "s.f", "_k0 AS x"),
        ("s.f AS x", "s", "_k0.f AS x"),
        ("xs[0] AS x", "xs", "_k0[0] AS x"),
        ("v:f::int AS x", "v", "_k0:f::int AS x"),
        ("a NOT IN (1, 2) AS x", "a", "_k0 NOT IN (1, 2) AS x"),
        ("a::date AS x", "a", "_k0::date AS x"),
        ("CAST(a AS date) AS x", "a", "CAST(_k0 AS date) AS x"),
        ("cast(date AS DATE) AS x", "date", "cast(_k0 AS DATE) AS x"),
        ("a + INTERVAL 1 day AS x", "a", "_k0 + INTERVAL 1 day AS x"),
        ("extract(day FROM a) AS x", "a", "extract(day FROM _k0) AS x"),
        ("timestampadd(DAY, 1, a) AS x", "a", "timestampadd(DAY, 1, _k0) AS x"),
        ("a > date '2026-01-01' AS x", "a", "_k0 > date '2026-01-01' AS x"),
        ("transform(xs, b -> b + a) AS x", "xs, a", "transform(_k0, b -> b + _k1) AS x"),
        ("reduce(xs, 0, (a, b) -> a + b) AS x", "xs", "reduce(_k0, 0, (a, b) -> a + b) AS x"),
        ("f(a => 1, b => a) AS x", "a", "f(a => 1, b => _k0) AS x"),
        ("struct(a AS b, a) AS x", "a", "struct(_k0 AS b, _k0 AS a) AS x"),
        ("a /* why */ + -- so\n 1 AS x", "a", "_k0 /* why */ + -- so\n 1 AS x"),
        ("date AS x", "date", "_k0 AS x"),
        ("`odd name`", "`odd name`", "_k0 AS odd name"),
        ("x.y AS x", "a", "x.y AS x"),
    ],
)
def test_grouping_expressions_are_found_in_the_select_list(item: str, group: str, output: str) -> None:
    assert parts(f"SELECT {item}, count(*) c FROM wide w GROUP BY {group}")[3] == [output, "_a0 AS c"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT upper(a) AS k, b, count(*) c FROM wide GROUP BY 1, 2", ["upper(a)", "b"]),
        ("SELECT upper(a) AS k, count(*) c FROM wide GROUP BY K", ["upper(a)"]),
        ("SELECT upper(a) AS k, b, count(*) + 1 c FROM wide GROUP BY ALL", ["upper(a)", "b"]),
        ("SELECT count(*) c FROM wide GROUP BY ALL", []),
        ("SELECT a, count(*) c FROM wide GROUP BY a, A, wide.a", ["a"]),
        ("SELECT count(*) c FROM wide GROUP BY a, b", ["a", "b"]),
        ("SELECT a FROM wide GROUP BY a", ["a"]),
    ],
)
def test_group_by_takes_places_aliases_and_all(text: str, keys: list[str]) -> None:
    assert parts(text)[0] == keys


def test_a_column_comes_before_an_alias_in_group_by() -> None:
    keys, _, _, outputs = parts("SELECT max(a) AS m, b AS x FROM wide GROUP BY b")
    assert (keys, outputs) == (["b"], ["_a0 AS m", "_k0 AS x"])
    keys, _, _, outputs = parts("SELECT upper(b) AS a, count(*) c FROM wide GROUP BY a, b")
    assert (keys, outputs) == (["a", "b"], ["upper(_k1) AS a", "_a0 AS c"])


def test_having_may_use_aliases() -> None:
    assert parts("SELECT a k, count(*) c, sum(b) + 1 s FROM wide GROUP BY a HAVING c > 5 AND S * 2 > max(b) OR k = 1")[
        2
    ] == ["_a0 > 5 AND (_a1 + 1) * 2 > _a2 OR _k0 = 1"]


def test_in_having_an_alias_hides_a_column_but_not_inside_an_aggregate() -> None:
    _, calls, having, _ = parts("SELECT a, sum(b) AS b FROM wide GROUP BY a HAVING b > 1 AND max(b) > 2")
    assert calls == ["sum(b)", "max(b)"]
    assert having == ["_a0 > 1 AND _a1 > 2"]


def test_an_aggregate_in_having_alone_makes_an_aggregate_query() -> None:
    assert parts("SELECT 1 AS one FROM wide HAVING count(*) > 1") == ([], ["count(*)"], ["_a0 > 1"], ["1 AS one"])


def test_the_ends_of_a_window() -> None:
    _, _, having, outputs = parts(
        "SELECT cq_open(*) o, CQ_CLOSE( * ) AS c, cq_close(*) - cq_open(*) AS d, count(*) n "
        "FROM impsns <SLICES '1 min'> HAVING cq_close(*) > '2026-01-01'"
    )
    assert outputs == ["_open AS o", "_close AS c", "_close - _open AS d", "_a0 AS n"]
    assert having == ["_close > '2026-01-01'"]


def test_an_unnamed_aggregate_has_its_text_as_name() -> None:
    assert box("SELECT count( * ), sum(price) FROM impsns").columns == ("count( * )", "sum(price)")


def test_odd_spelling_changes_nothing() -> None:
    plain = "SELECT campaign, count(*) AS c FROM impsns <SLICES '1 minute'> WHERE price > 0 GROUP BY campaign"
    odd = (
        "\t(\r\nselect campaign,count(*)c/* n */FROM`impsns`<slices '1 minute'>wHERE price > 0 -- positive\r\n"
        "group\nby campaign )"
    )
    assert query(plain) == query(odd)
