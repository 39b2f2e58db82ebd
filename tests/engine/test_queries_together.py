"""Queries beside and above one another: what they share, what they must not, and who else is at work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.model.errors import AnabranchError

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: float) -> datetime:
    return ZERO + timedelta(minutes=minute)


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in engine.table(name).collect()), key=repr)


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k INT, v STRING, n INT, ts TIMESTAMP) EVENT TIME ts")
    return engine.stream("s")


def rows(*values: tuple[int, str, int, float]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "n": n, "ts": at(minute)} for k, v, n, minute in values]


def test_a_union_goes_on_when_only_one_of_its_streams_has_something_new(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM z (n INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM both AS SELECT n FROM s UNION ALL SELECT n FROM z")
    engine.sql("CREATE STREAM total AS SELECT sum(n) AS t FROM (SELECT n FROM s UNION ALL SELECT n FROM z)")
    s.append(rows((1, "a", 1, 0)))
    engine.stream("z").append([{"n": 2, "ts": at(0)}])
    engine.advance()
    s.append(rows((1, "a", 4, 1)))
    engine.advance()
    assert (table(engine, "both"), table(engine, "total")) == ([(1,), (2,), (4,)], [(7,)])


def test_a_union_of_aggregates_is_a_stream_too(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("""CREATE STREAM u AS SELECT t, sum(c) AS c FROM (
            SELECT cq_close(*) AS t, count(*) AS c FROM s <SLICES '1 minute'> WHERE k = 1
            UNION ALL SELECT cq_close(*) AS t, max(n) AS c FROM s <SLICES '1 minute'> WHERE k = 2
        ) GROUP BY t""")
    s.append(rows((1, "a", 1, 0.1), (2, "a", 10, 0.2), (1, "a", 1, 1.5)))
    engine.advance()
    assert [c for _, c in table(engine, "u")] == [11]
    s.append(rows((1, "a", 1, 0.3), (2, "a", 30, 0.4)))
    engine.advance()
    assert [c for _, c in table(engine, "u")] == [32]


def test_an_expression_around_a_qualified_column_is_not_lost(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("""CREATE STREAM q AS SELECT k, struct(n AS c) AS st, count(*) AS c, cq_close(*) AS t
        FROM s <SLICES '1 minute'> GROUP BY k, struct(n AS c)""")
    engine.sql("CREATE STREAM plain AS SELECT sum(c) AS x FROM q <SLICES '5 minutes'>")
    engine.sql("CREATE STREAM more AS SELECT sum(1 + q.c) AS x FROM q <SLICES '5 minutes'>")
    engine.sql("CREATE STREAM inside AS SELECT sum(st.c) AS x FROM q <SLICES '5 minutes'>")
    engine.sql(
        "CREATE STREAM tens AS SELECT 10 * q.k AS k, sum(q.c) AS x FROM q <SLICES '5 minutes'> GROUP BY 10 * q.k"
    )
    s.append(rows((1, "a", 100, 0), (1, "a", 100, 0.1), (2, "a", 100, 1), (2, "a", 0, 6)))
    engine.advance()
    assert [table(engine, name) for name in ("plain", "more", "inside", "tens")] == [
        [(3,)], [(5,)], [(200,)], [(10, 2), (20, 1)],
    ]  # fmt: skip


def test_a_filter_leaves_rows_out_of_first_and_last(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("""CREATE STREAM ends AS
        SELECT first(n) FILTER (WHERE n > 5) AS f, last(10 / n) FILTER (WHERE n <> 0) AS l FROM s""")
    s.append(rows((1, "a", 1, 0), (1, "a", 7, 1), (1, "a", 10, 2), (1, "a", 0, 3)))
    engine.advance()
    assert table(engine, "ends") == [(7, 1.0)]


def test_what_one_query_fails_on_is_nothing_to_another(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(
        "CREATE STREAM a AS SELECT k, sum(CAST(v AS INT)) AS n, count(*) AS c FROM s GROUP BY k ON ERROR QUARANTINE"
    )
    engine.sql("CREATE STREAM a2 AS SELECT k, sum(CAST(v AS INT)) AS n FROM s GROUP BY k ON ERROR QUARANTINE")
    engine.sql("CREATE STREAM b AS SELECT k, count(*) AS c FROM s GROUP BY k ON ERROR QUARANTINE")
    engine.sql("CREATE STREAM m AS SELECT k, max(n) AS m, count(n) AS c FROM s GROUP BY k")
    engine.sql("CREATE STREAM c AS SELECT k, count(n) AS c FROM s GROUP BY k")
    s.append(rows((1, "1", 1, 0), (1, "x", 2, 1)))
    assert engine.advance().halted == ()
    assert (table(engine, "a"), table(engine, "b")) == ([(1, 1, 1)], [(1, 2)])
    assert [engine.stream(q).quarantined().count() for q in ("a", "a2", "b")] == [1, 1, 0]


def test_a_query_over_a_query_takes_what_that_one_said(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM a AS SELECT k, CAST(v AS INT) AS x FROM s ON ERROR QUARANTINE")
    engine.sql("CREATE STREAM over AS SELECT count(*) AS c, sum(x) AS x FROM a")
    engine.sql("""CREATE STREAM w AS SELECT k, sum(CAST(v AS INT)) AS x, cq_close(*) AS t FROM s <SLICES '1 minute'>
        GROUP BY k ON ERROR NULL""")
    engine.sql("CREATE STREAM above AS SELECT max(x) AS x FROM w <SLICES '2 minutes'>")
    s.append(rows((1, "5", 0, 0), (1, "x", 0, 0.5), (1, "7", 0, 3)))
    assert engine.advance().halted == ()
    assert (table(engine, "a"), table(engine, "over")) == ([(1, 5), (1, 7)], [(2, 12)])
    assert table(engine, "above") == [(5,)]
    with pytest.raises(AnabranchError) as caught:
        engine.sql("DROP STREAM a")
    assert (caught.value.id, caught.value.got) == ("STREAM_IN_USE", "query 'over'")


@pytest.mark.usefixtures("no_upkeep")
def test_what_retention_took_from_a_stream_a_query_has_still_said(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM h (k INT, ts TIMESTAMP) EVENT TIME ts HISTORY '1 minute'")
    engine.sql("CREATE STREAM l AS SELECT k FROM h")
    stream = engine.stream("h")
    stream.append([{"k": 1, "ts": at(0)}])
    stream.append([{"k": 2, "ts": at(10)}])
    engine.advance()
    assert stream.retain().rows == 1
    engine.sql("CREATE STREAM c AS SELECT count(*) AS n FROM l")
    engine.advance()
    assert table(engine, "c") == [(2,)]


def test_a_store_that_stood_still_with_a_halted_query_catches_up_for_another(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM other AS SELECT k, max(n) AS m FROM s GROUP BY k")
    engine.sql("CREATE STREAM h AS SELECT k, sum(n) AS n FROM s GROUP BY k HAVING 10 / sum(n) > 0")
    for row in ((1, "", 1, 0.0), (2, "", 0, 1.0), (3, "", 5, 2.0)):
        s.append(rows(row))
        engine.advance()
    assert list(engine.halted()) == ["h"]
    engine.sql("CREATE STREAM q AS SELECT k, sum(n) AS n FROM s GROUP BY k")
    s.append(rows((4, "", 6, 3)))
    engine.advance()
    assert table(engine, "q") == [(1, 1), (2, 0), (3, 5), (4, 6)]


@pytest.mark.parametrize(
    "expression", ["make_date(2024, n, 1)", "url_decode(v)", "from_utc_timestamp(ts, v)", "sequence(1, n, 2 - n)",
                   "split(v, '[')"]
)  # fmt: skip
def test_whatever_an_expression_fails_with_its_query_halts_alone(
    engine: ab.Engine, s: ab.Stream, expression: str
) -> None:
    engine.sql(f"CREATE STREAM bad AS SELECT {expression} AS x FROM s; CREATE STREAM good AS SELECT k FROM s")
    s.append(rows((1, "%zz", 13, 0)))
    assert engine.advance().halted == ("bad",)
    assert table(engine, "good") == [(1,)]
    assert '"v":"%zz"' in engine.halted()["bad"]["got"], "the row is quoted"
    engine.sql("RESUME STREAM bad")
    assert engine.advance().halted == ("bad",), "it has tried again"


def test_names_and_structs_come_out_as_spark_would_call_them(engine: ab.Engine, s: ab.Stream) -> None:
    query = (
        "SELECT to_json(struct(k, count(*))) AS j, concat(v, '!'), count(*) FILTER (WHERE v = 'it''s') AS `a'b` FROM s"
    )
    engine.sql(f"CREATE STREAM q AS {query} GROUP BY k, concat(v, '!')")
    s.append(rows((1, "it's", 1, 0)))
    engine.advance()
    assert table(engine, "q") == [('{"k":1,"col2":1}', "it's!", 1)]
    assert engine.table("q").columns == ["j", "concat(v, '!')", "a'b"]
    assert engine.changes("q").count() == 1


def test_results_on_which_an_expression_fails_are_set_aside(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM q AS SELECT k, CAST(max(v) AS INT) AS n FROM s GROUP BY k ON ERROR QUARANTINE")
    s.append(rows((1, "5", 0, 0), (2, "x", 0, 0)))
    engine.advance()
    (aside,) = engine.stream("q").quarantined().collect()
    assert (table(engine, "q"), aside.row) == ([(1, 5)], '{"k":2,"max(v)":"x"}')


def test_changes_with_maps_are_exact(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM m AS SELECT k, array(map('t', max(ts))) AS m FROM s GROUP BY k")
    for micros in (1, 2, 2):
        s.append([{"k": 1, "v": "", "n": 0, "ts": ZERO + timedelta(microseconds=micros)}])
        engine.advance()
    kinds = [row._change_type for row in engine.changes("m").collect()]
    assert kinds == ["insert", "update_preimage", "update_postimage"]


@pytest.mark.parametrize(
    ("query", "got"),
    [
        ("SELECT k, current_timestamp() AS now, count(*) AS c FROM s GROUP BY k", "another one each time"),
        ("SELECT k, count(*) + rand() AS c FROM s GROUP BY k", "another one each time"),
        ("SELECT map(k, n) AS m, count(*) AS c FROM s GROUP BY map(k, n)", "no order"),
        ("SELECT count(DISTINCT map(k, n)) AS c FROM s", "no order"),
        ("SELECT k AS x FROM s UNION ALL SELECT array(k) AS x FROM s", "UNION can only be performed"),
    ],
)
def test_what_cannot_be_kept_right_is_refused_before_it_runs(
    engine: ab.Engine, s: ab.Stream, query: str, got: str
) -> None:
    with pytest.raises(AnabranchError) as caught:
        engine.sql(f"CREATE STREAM q AS {query}")
    assert caught.value.id == "BAD_EXPRESSION"
    assert got in caught.value.got


def test_aggregates_that_are_one_have_the_types_that_they_had_as_two(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM d (x DECIMAL(10, 2), ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM q1 AS SELECT sum(x) AS x, cq_close(*) AS t FROM d <SLICES '1 minute'>")
    engine.sql("CREATE STREAM q2 AS SELECT sum(x) AS x FROM q1 <SLICES '5 minutes'>")
    assert engine.table("q2").schema["x"].dataType.simpleString() == "decimal(30,2)"


def test_creating_the_same_again_changes_nothing(engine: ab.Engine, s: ab.Stream) -> None:
    declared = "CREATE STREAM s (k INT, v STRING, n INT, ts TIMESTAMP) EVENT TIME ts"
    engine.sql(f"{declared}; CREATE STREAM q AS SELECT k, sum(n) AS n FROM S GROUP BY k")
    engine.sql("create stream q as select k, sum(n) AS n from s group by k -- the same")
    s.where("n > 0").create("f")
    s.where("n > 0").create("f")
    for other in ("CREATE STREAM s (k INT, ts TIMESTAMP) EVENT TIME ts", "CREATE STREAM q AS SELECT k FROM s",
                  "CREATE STREAM S (k INT, ts TIMESTAMP) EVENT TIME ts"):  # fmt: skip
        with pytest.raises(AnabranchError) as caught:
            engine.sql(other)
        assert caught.value.id == "STREAM_EXISTS"
    with pytest.raises(AnabranchError) as caught:
        engine.sql("SELECT * FROM q; DROP STREAM q; SELECT * FROM q")
    assert caught.value.id == "UNKNOWN_STREAM", "no view of it is left behind"


def test_a_hold_may_have_the_name_of_a_query(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM q AS SELECT k FROM s")
    s.hold("q", 0)
    s.append(rows((1, "", 0, 0)))
    assert engine.advance().changes == 1
    assert s.release("q")
    assert not s.release("query q"), "a query lets go of its positions itself"


def test_another_engine_may_drop_what_a_query_is_being_made_of(engine: ab.Engine, s: ab.Stream) -> None:
    queries = engine._queries
    engine.sql("CREATE STREAM q AS SELECT k, sum(n) AS n FROM s GROUP BY k")
    for text in ("CREATE STREAM p AS SELECT k, sum(n) AS n FROM s GROUP BY k", "CREATE STREAM r AS SELECT k FROM s"):
        (statement,) = parse(text)
        definer, defined = queries.define(compile_query(statement, queries.columns_of), statement.source)  # type: ignore[arg-type]
        engine.sql("DROP STREAM q" if "p AS" in text else "DROP STREAM s")
        with pytest.raises(AnabranchError) as caught:
            definer.create([defined], text)
        assert caught.value.id == "POSITION_CONFLICT"
    assert engine._log.register.queries() == []


def test_a_join_that_fails_halts_alone_and_quotes_the_pair(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM z (k INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM j AS SELECT CAST(v AS INT) AS v FROM s JOIN z ON s.k = z.k")
    engine.sql("CREATE STREAM a AS SELECT CAST(v AS INT) AS v FROM s LEFT JOIN z ON s.k = z.k ON ERROR QUARANTINE")
    engine.sql("CREATE STREAM n AS SELECT CAST(v AS INT) AS v FROM s JOIN z ON s.k = z.k ON ERROR NULL")
    s.append(rows((1, "x", 1, 0), (2, "2", 1, 0)))
    engine.stream("z").append([{"k": 1, "ts": at(0)}, {"k": 2, "ts": at(0)}])
    assert engine.advance().halted == ("j",)
    assert '"v":"x"' in engine.halted()["j"]["got"]
    assert (table(engine, "a"), table(engine, "n")) == ([(2,)], [(2,), (None,)])
    (aside,) = engine.stream("a").quarantined().collect()
    assert '"v":"x"' in aside.row


def test_buckets_say_the_same_together_and_apart_across_a_first_deletion(engine: ab.Engine) -> None:
    stories = []
    for together in (False, True):
        name = f"s{together}"
        engine.sql(f"CREATE STREAM {name} (k INT, ts TIMESTAMP) EVENT TIME ts")
        engine.sql(f"CREATE STREAM all_{name} AS SELECT k FROM {name}")
        engine.advance()
        advancer, stream = engine._queries.advancer, engine.stream(name)
        gone = {"k": 2, "ts": at(7), "_change_type": "delete"}
        for part in (
            [(1, 8), (2, 7), (3, 6)],
            [gone, {"k": 8, "ts": at(1), "_change_type": "insert"}],
            [(5, 0), (4, 2)],
        ):
            stream.append([p if isinstance(p, dict) else {"k": p[0], "ts": at(p[1])} for p in part])
            if together:
                with advancer._leased() as lease:
                    advancer.log.register.record_bucket(lease)
            else:
                engine.advance()
        engine.advance()
        said = engine.changes(f"all_{name}").collect()
        first = min(c._bucket for c in said)
        stories.append([(c._bucket - first, c._ordinal, c._change_type, c.k) for c in said])
    assert stories[0] == stories[1]
    assert [change[2] for change in stories[0]].count("delete") == 1


def test_what_a_stage_sets_aside_is_found_with_its_query(engine: ab.Engine, s: ab.Stream) -> None:
    rates = "(SELECT k, 10 / sum(n) AS r FROM s <SLICES '1 minute'> GROUP BY k)"
    engine.sql(f"CREATE STREAM q AS SELECT s.v, x.r FROM s JOIN {rates} AS x ON s.k = x.k WITHIN '1 minute' "
               "ON ERROR QUARANTINE")  # fmt: skip
    s.append(rows((1, "a", 1, 0), (2, "b", 0, 0), (1, "c", 1, 2)))
    engine.advance()
    assert [row.v for row in engine.table("q").collect()] == ["a"]
    (found,) = engine.stream("q").quarantined().collect()
    assert "DIVIDE" in found._reason or "/" in found._reason


def test_queries_over_joins_are_one_job_each_and_fail_apart(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM z (k INT, m INT, ts TIMESTAMP) EVENT TIME ts")
    for name, given in {"sums": "a.n + b.m", "ratios": "a.n / b.m", "products": "a.n * b.m"}.items():
        engine.sql(
            f"CREATE STREAM {name} AS SELECT {given} AS x FROM s AS a JOIN z AS b ON a.k = b.k WITHIN '1 minute'"
        )
    z = engine.stream("z")
    s.append(rows((1, "a", 6, 0)))
    z.append([{"k": 1, "m": 2, "ts": at(0)}])
    engine.advance()
    assert [table(engine, name) for name in ("sums", "ratios", "products")] == [[(8,)], [(3.0,)], [(12,)]]
    context = engine.spark.sparkContext
    context.setJobGroup("joins", "three")
    s.append(rows((1, "a", 9, 0.5)))
    engine.advance()
    assert len(context.statusTracker().getJobIdsForGroup("joins")) == 3
    z.append([{"k": 1, "m": 0, "ts": at(0.6)}])
    engine.advance()
    assert set(engine.halted()) == {"ratios"}
    assert "DIVIDE_BY_ZERO" in str(engine.halted()["ratios"])
    assert table(engine, "sums") == [(11,), (6,), (8,), (9,)]
    assert table(engine, "products") == [(0,), (0,), (12,), (18,)]
