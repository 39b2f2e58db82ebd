"""What queries may not say, and where the carets are."""

from __future__ import annotations

import pytest

from anabranch.diagram.query import Query
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError

STREAMS = {"s": ("a", "b", "date"), "t": ("x",)}


def columns_of(name: str) -> tuple[str, ...]:
    if name not in STREAMS:
        raise AnabranchError("UNKNOWN_STREAM", place="?", need="a stream", got=repr(name), next_step="Create it.")
    return STREAMS[name]


def compiled(select: str) -> Query:
    (statement,) = parse(f"CREATE STREAM q AS\n{select}", "app.sql")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, columns_of)


def refused(select: str) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        compiled(select)
    return caught.value


def pointed(error: AnabranchError) -> str:
    """The text over the carets."""
    _, line, marks = error.place.splitlines()
    return line[marks.index("^") : marks.rindex("^") + 1]


def test_the_whole_message() -> None:
    assert str(refused("  SELECT a, count(*) c\n  FROM s\n    GROUP BY ROLLUP (a)")) == (
        "SYNTAX: app.sql, line 4, column 14:\n"
        "    GROUP BY ROLLUP (a)\n"
        "             ^^^^^^\n"
        "need plain grouping expressions; got 'ROLLUP'. Make one stream for each set of columns to group by."
    )


@pytest.mark.parametrize(
    ("select", "at"),
    [
        ("SELECT DISTINCT a FROM s", "DISTINCT"),
        ("SELECT a FROM s ORDER BY a", "ORDER BY"),
        ("SELECT a FROM s WHERE a > 1 order by a", "order by"),
        ("SELECT a FROM s SORT BY a", "SORT BY"),
        ("SELECT a FROM s CLUSTER BY a", "CLUSTER BY"),
        ("SELECT a FROM s DISTRIBUTE BY a", "DISTRIBUTE BY"),
        ("SELECT a FROM s LIMIT 3", "LIMIT"),
        ("SELECT a FROM s WHERE a LIMIT 3", "LIMIT"),
        ("SELECT a FROM s OFFSET 3", "OFFSET"),
        ("SELECT a FROM s QUALIFY a > 1", "a > 1"),
        ("SELECT a FROM s WINDOW w AS (ORDER BY a)", "WINDOW"),
        ("SELECT a FROM s RIGHT JOIN t ON a = x", "RIGHT"),
        ("SELECT a FROM s i FULL OUTER JOIN t ON a = x", "FULL"),
        ("SELECT a FROM s <SLICES '1 min'> CROSS JOIN t", "CROSS"),
        ("SELECT a FROM (SELECT a FROM s) NATURAL JOIN t", "NATURAL"),
        ("SELECT a FROM s, t", ","),
        ("SELECT a FROM s LATERAL VIEW explode(b) AS c", "LATERAL"),
        ("SELECT a FROM s EXCEPT SELECT x FROM t", "EXCEPT"),
        ("SELECT a FROM s INTERSECT SELECT x FROM t", "INTERSECT"),
        ("SELECT a FROM s MINUS SELECT x FROM t", "MINUS"),
        ("SELECT a FROM s PIVOT (sum(b) FOR a IN (1))", "PIVOT"),
        ("SELECT a FROM s TABLESAMPLE (5 ROWS)", "TABLESAMPLE"),
        ("SELECT a FROM s UNION SELECT x FROM t", "SELECT"),
        ("SELECT a FROM s UNION DISTINCT SELECT x FROM t", "DISTINCT"),
        ("SELECT a FROM s UNION ALL BY NAME SELECT x FROM t", "BY"),
        ("SELECT a FROM (SELECT a FROM s ORDER BY a)", "ORDER BY"),
        ("WITH w AS (SELECT a FROM s) SELECT a FROM w", "WITH"),
        ("VALUES (1)", "VALUES"),
        ("FROM s SELECT a", "FROM"),
        ("TABLE s", "TABLE"),
        ("SELECT count(*) FROM s GROUP BY CUBE (a)", "CUBE"),
        ("SELECT count(*) FROM s GROUP BY a GROUPING SETS (a)", "GROUPING"),
        ("SELECT count(*) FROM s GROUP BY GROUPING SETS ((a), (b))", "GROUPING"),
        ("SELECT count(*) FROM s GROUP BY a WITH ROLLUP", "ROLLUP"),
        ("SELECT (SELECT max(x) FROM t) m FROM s", "SELECT"),
        ("SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t)", "SELECT"),
        ("SELECT a FROM s WHERE a IN (SELECT x FROM t)", "SELECT"),
        ("SELECT a FROM s WHERE a IN ((SELECT * FROM t))", "SELECT"),
        ("SELECT a FROM s WHERE a = (WITH w AS (TABLE t) TABLE w)", "WITH"),
        ("SELECT a FROM s GROUP BY (SELECT 1)", "SELECT"),
        ("SELECT count(*) c FROM s HAVING c > (SELECT 1)", "SELECT"),
        ("SELECT row_number() OVER (ORDER BY a) r FROM s", "OVER"),
        ("SELECT sum(a) OVER (PARTITION BY b) r FROM s", "OVER"),
        ("SELECT sum(a) OVER w r FROM s", "OVER"),
        ("SELECT count(*) FILTER (WHERE a > 1) OVER (PARTITION BY b) r FROM s", "OVER"),
        ("SELECT collect_list(a) l FROM s", "collect_list"),
        ("SELECT upper(max_by(a, b)) l FROM s", "max_by"),
        ("SELECT sum(mode(a)) l FROM s", "mode"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) p FROM s", "percentile_cont"),
    ],
)
def test_what_is_not_there_is_refused_at_the_word(select: str, at: str) -> None:
    error = refused(select)
    assert (error.id, pointed(error)) == ("SYNTAX", at)
    assert error.next_step


def test_an_aggregate_that_is_not_there_gets_the_list_of_those_that_are() -> None:
    error = refused("SELECT collect_set(a) x FROM s")
    assert "approx_count_distinct, approx_percentile, avg" in error.next_step
    assert "Did you mean" in refused("SELECT try_avg(a) x FROM s").next_step


@pytest.mark.parametrize(
    ("select", "at"),
    [
        ("SELECT sum(max(a)) x FROM s", "max(a)"),
        ("SELECT sum(a) FILTER (WHERE count(*) > 1) x FROM s", "count(*)"),
        ("SELECT max(cq_close(*)) x FROM s <SLICES '1 min'>", "cq_close(*)"),
        ("SELECT a FROM s WHERE count(*) > 1", "count(*)"),
        ("SELECT count(*) FROM s GROUP BY max(a)", "max(a)"),
        ("SELECT max(a) m FROM s GROUP BY m", "max(a)"),
        ("SELECT max(a) m FROM s GROUP BY 1", "max(a)"),
        ("SELECT count(*) c FROM s <SLICES '1 min'> GROUP BY cq_close(*)", "cq_close(*)"),
        ("SELECT transform(b, x -> sum(x)) y FROM s", "sum(x)"),
        ("SELECT sum() x FROM s", "sum()"),
        ("SELECT count() x FROM s", "count()"),
        ("SELECT sum(a, b) x FROM s", "sum(a, b)"),
        ("SELECT sum(a,) x FROM s", "sum(a,)"),
        ("SELECT percentile(a) x FROM s", "percentile(a)"),
        ("SELECT first(a, true) x FROM s", "first(a, true)"),
        ("SELECT sum(*) x FROM s", "*"),
        ("SELECT count(s.*) x FROM s", "s.*"),
        ("SELECT count(DISTINCT *) x FROM s", "*"),
        ("SELECT sum(DISTINCT a) x FROM s", "sum(DISTINCT a)"),
        ("SELECT avg(DISTINCT a) x FROM s", "avg(DISTINCT a)"),
        ("SELECT first(a) IGNORE NULLS x FROM s", "IGNORE NULLS"),
        ("SELECT first(a IGNORE NULLS) x FROM s", "IGNORE NULLS"),
        ("SELECT last(a) RESPECT NULLS x FROM s", "RESPECT NULLS"),
        ("SELECT first(a ORDER BY b) x FROM s", "ORDER BY"),
        ("SELECT percentile(a, 0.5) WITHIN GROUP (ORDER BY a) x FROM s", "WITHIN GROUP"),
        ("SELECT sum(a) FILTER (b > 1) x FROM s", "FILTER (b > 1)"),
        ("SELECT sum(a) FILTER (WHERE) x FROM s", "FILTER (WHERE)"),
        ("SELECT cq_close(*) t FROM s", "cq_close(*)"),
        ("SELECT a, cq_open(*) t FROM s", "cq_open(*)"),
        ("SELECT count(*) c, cq_close(*) t FROM s", "cq_close(*)"),
        ("SELECT count(*) c FROM s HAVING cq_close(*) > 1", "cq_close(*)"),
        ("SELECT count(*) c, cq_close() t FROM s <SLICES '1 min'>", "cq_close()"),
        ("SELECT count(*) c, cq_close(a) t FROM s <SLICES '1 min'>", "cq_close(a)"),
        ("SELECT * FROM s GROUP BY a", "*"),
        ("SELECT *, count(*) c FROM s", "*"),
        ("SELECT s.*, count(*) c FROM s", "s.*"),
        ("SELECT b.*, 1 AS x FROM s", "b.*"),
        ("SELECT i.* FROM (SELECT a FROM s)", "i.*"),
        ("SELECT s.* FROM s i", "s.*"),
        ("SELECT a FROM s HAVING a > 1", "a > 1"),
        ("SELECT count(*) FROM s GROUP BY 2", "2"),
        ("SELECT count(*) FROM s GROUP BY 0", "0"),
        ("SELECT a FROM s <SLICES '1 min'>", "<SLICES '1 min'>"),
        ("SELECT cq_close(*) t FROM s <SLICES '1 min'>", "<SLICES '1 min'>"),
        ("SELECT * FROM s <VISIBLE '2 min' ADVANCE '1 min'>", "<VISIBLE '2 min' ADVANCE '1 min'>"),
        ("SELECT a, b AS A FROM s", "b AS A"),
        ("SELECT *, b a FROM s", "b a"),
        ("SELECT count(*) c, max(a) C FROM s", "max(a) C"),
        ("SELECT a AS _a FROM s", "a AS _a"),
        ("SELECT a * 1.5 FROM s", "a * 1.5"),
        ("SELECT sum(s.a) FROM s", "sum(s.a)"),
        ("SELECT a `x.y` FROM s", "a `x.y`"),
        ("SELECT a `x``y` FROM s", "a `x``y`"),
        ("SELECT `a` + 1 FROM s", "`a` + 1"),
        ("SELECT a FROM s UNION ALL SELECT a, b FROM s", "SELECT"),
    ],
)
def test_what_makes_no_sense_is_pointed_at(select: str, at: str) -> None:
    error = refused(select)
    assert (error.id, pointed(error)) == ("SYNTAX", at)


def test_a_union_points_at_the_part_that_differs() -> None:
    error = refused("SELECT a FROM s UNION ALL\n  SELECT a, b FROM s")
    assert error.place == "app.sql, line 3, column 3:\n    SELECT a, b FROM s\n    ^^^^^^"
    assert error.need.startswith("1 columns")


@pytest.mark.parametrize(
    ("select", "at"),
    [
        ("SELECT a, count(*) c FROM s", "a"),
        ("SELECT b, count(*) c FROM s GROUP BY a", "b"),
        ("SELECT a + b AS x, count(*) c FROM s GROUP BY a", "b"),
        ("SELECT upper(s.b) AS x, count(*) c FROM s GROUP BY a", "s.b"),
        ("SELECT `B` AS x, count(*) c FROM s GROUP BY a", "`B`"),
        ("SELECT a FROM s GROUP BY upper(a)", "a"),
        ("SELECT count(*) c FROM s GROUP BY a HAVING b > 1", "b"),
        ("SELECT transform(a, x -> x + b) AS x FROM s GROUP BY a", "b"),
        ("SELECT transform(b, a -> a) AS x FROM s GROUP BY a", "b"),
        # `a + b` is no part of these, whatever it looks like
        ("SELECT a + b * 2 AS x FROM s GROUP BY a + b", "a"),
        ("SELECT 2 * a + b AS x FROM s GROUP BY a + b", "a"),
        ("SELECT 2 - a + b AS x FROM s GROUP BY a + b", "a"),
        ("SELECT a + b.c AS x FROM s GROUP BY a + b", "a"),
        ("SELECT a + b::int AS x FROM s GROUP BY a + b", "a"),
        ("SELECT a OR b AND true AS x FROM s GROUP BY a OR b", "a"),
        ("SELECT NOT a OR b AS x FROM s GROUP BY a OR b", "a"),
        ("SELECT count(*) c, date FROM s GROUP BY a", "date"),
    ],
)
def test_columns_that_are_neither_grouped_nor_aggregated(select: str, at: str) -> None:
    error = refused(select)
    assert (error.id, pointed(error)) == ("NOT_GROUPED", at)
    assert "is neither grouped nor aggregated" in error.got


def test_a_date_is_no_column() -> None:
    for item in ("date '2026-01-01'", "cast(a AS date)", "a::date", "date(a)", "a.date", "f(date => 1)"):
        assert compiled(f"SELECT {item} AS x, count(*) c FROM s GROUP BY a").box.columns == ("x", "c")


@pytest.mark.parametrize(
    ("window", "error", "at"),
    [
        ("<SLICES '1 month'>", "BAD_DURATION", "'1 month'"),
        ("<SLICES '1 quarter'>", "BAD_DURATION", "'1 quarter'"),
        ("<SLICES '0 seconds'>", "BAD_DURATION", "'0 seconds'"),
        ("<SLICES 'soon'>", "BAD_DURATION", "'soon'"),
        ("<SLICES ''>", "BAD_DURATION", "''"),
        ("<SLICES INTERVAL '1' YEAR>", "BAD_DURATION", "INTERVAL '1' YEAR"),
        ("<SLICES '200 000 years'>", "BAD_DURATION", "'200 000 years'"),
        ("<SLICES '99999 weeks'>", "BAD_DURATION", "'99999 weeks'"),
        (f"<SLICES '{'9' * 30} s'>", "BAD_DURATION", f"'{'9' * 30} s'"),
        ("<VISIBLE '5 min' ADVANCE '10 min'>", "BAD_DURATION", "'10 min'"),
        ("<VISIBLE '5 min' ADVANCE '0 min'>", "BAD_DURATION", "'0 min'"),
        ("<VISIBLE '5 min'>", "SYNTAX", ">"),
        ("<SLICES>", "SYNTAX", ">"),
        ("<SLICES 5>", "SYNTAX", "5"),
        ("<SLICES '1 min'", "SYNTAX", ""),
        ("<'1 min'>", "SYNTAX", "'1 min'"),
        ("<lices '1 min'>", "SYNTAX", "lices"),
        ("<SLICES '1 min'> <SLICES '1 min'>", "SYNTAX", "<SLICES '1 min'>"),
        ("<SLICES '1 min'> i <SLICES '1 min'>", "SYNTAX", "<SLICES '1 min'>"),
        ("< 5", "SYNTAX", "5"),
    ],
)
def test_wrong_windows(window: str, error: str, at: str) -> None:
    found = refused(f"SELECT count(*) c FROM s {window}")
    assert (found.id, pointed(found)) == (error, at)


def test_a_misspelled_window_gets_a_suggestion() -> None:
    assert "Did you mean SLICES?" in refused("SELECT count(*) c FROM s <lices '1 min'>").next_step


@pytest.mark.parametrize(
    ("select", "at"),
    [
        ("SELECT FROM s", "FROM"),
        ("SELECT a, FROM s", "FROM"),
        ("SELECT , a FROM s", ","),
        ("SELECT a", ""),
        ("SELECT", ""),
        ("", ""),
        ("a FROM s", "a"),
        ("SELECT a WHERE a > 1", "WHERE"),
        ("SELECT a FROM", ""),
        ("SELECT a FROM WHERE a", "WHERE"),
        ("SELECT a FROM 's'", "'s'"),
        ("SELECT a FROM db.s", "."),
        ("SELECT a FROM range(5)", "("),
        ("SELECT a FROM s AS", ""),
        ("SELECT a FROM s i j", "j"),
        ("SELECT a FROM s AS i (x)", "("),
        ("SELECT a FROM s WHERE", ""),
        ("SELECT a FROM s WHERE GROUP BY a", "GROUP"),
        ("SELECT a FROM s GROUP BY", ""),
        ("SELECT a FROM s GROUP BY a,", ""),
        ("SELECT a FROM s GROUP BY , a", ","),
        ("SELECT a FROM s GROUP BY a HAVING", ""),
        ("SELECT a FROM s WHERE a, b", ","),
        ("SELECT a FROM s HAVING a > 1 WHERE b", "WHERE"),
        ("SELECT a FROM s UNION ALL", ""),
        ("SELECT (a FROM s", "("),
        ("SELECT (a] FROM s", "("),
        ("SELECT a) FROM s", ")"),
        ("(SELECT a FROM s", ""),
        ("SELECT a FROM (SELECT a FROM s", ""),
        ("SELECT a FROM (s)", "s"),
        ("(SELECT a FROM s))", ")"),
        ("SELECT a AS FROM s", "AS"),
        ("SELECT AS x FROM s", "AS"),
        ("SELECT a AS b c FROM s", "AS"),
        ("SELECT a AS 'x' FROM s", "AS"),
        ("SELECT a AS (x, y) FROM s", "AS"),
        ("(" * 60 + "SELECT a FROM s" + ")" * 60, "("),
    ],
)
def test_what_cannot_be_read_is_pointed_at(select: str, at: str) -> None:
    error = refused(select)
    assert (error.id, pointed(error)) == ("SYNTAX", at)


def test_an_unknown_stream_keeps_its_id_and_gets_a_place() -> None:
    error = refused("SELECT a\nFROM (SELECT a FROM nowhere)")
    assert error.id == "UNKNOWN_STREAM"
    assert (
        error.place == "app.sql, line 3, column 21:\n    FROM (SELECT a FROM nowhere)\n                        ^^^^^^^"
    )
    assert error.got == "'nowhere'"
