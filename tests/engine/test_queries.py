"""Continuous queries as people use them: SQL and the fluent form, tables, changes, errors, the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.live import Live
from anabranch.model.errors import AnabranchError

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = "CREATE STREAM counts AS SELECT k, count(*) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k"


def at(minute: float) -> datetime:
    return ZERO + timedelta(minutes=minute)


def rows(*minutes: float, k: str | None = "a", v: str = "1") -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "ts": at(minute)} for minute in minutes]


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, v STRING, ts TIMESTAMP) EVENT TIME ts")
    return engine.stream("s")


def counts(engine: ab.Engine, name: str = "counts", **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row)[:2] for row in engine.table(name, **options).collect())


def said(engine: ab.Engine, name: str = "counts", **options: Any) -> list[tuple[Any, ...]]:
    return [(row._bucket, row._change_type, row.k, row.c) for row in engine.changes(name, **options).collect()]


def test_a_late_row_revises_the_window_that_it_belongs_to(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    s.append(rows(0.5, 1.5))
    assert engine.advance().changes == 1
    s.append(rows(0.1))
    s.append(rows(0.2, k="b"))
    engine.advance()
    assert said(engine) == [
        (1, "insert", "a", 1),
        (2, "update_preimage", "a", 1),
        (2, "update_postimage", "a", 2),
        (2, "insert", "b", 1),
    ]
    assert counts(engine) == [("a", 2), ("b", 1)]
    assert engine.advance().buckets == 0, "nothing is waiting"
    ordinals = [row._ordinal for row in engine.changes("counts", starting_position=2).collect()]
    assert ordinals == [0, 1, 2]


def test_open_windows_are_shown_when_asked_and_marked(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    s.append(rows(0.5, 1.5))
    engine.advance()
    assert counts(engine) == [("a", 1)]
    shown = engine.table("counts", include_open=True).collect()
    assert sorted((row.t.minute, row.c, row._open) for row in shown) == [(1, 1, False), (2, 1, True)]


def test_the_past_is_what_had_been_said_then(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    s.append(rows(0.5, 1.5))
    engine.advance()
    stime = engine.changes("counts").collect()[0]._stime.replace(tzinfo=UTC)
    s.append(rows(0.1, 0.2))
    engine.advance()
    assert counts(engine) == [("a", 3)]
    assert counts(engine, position_as_of=1) == [("a", 1)]
    assert counts(engine, position_as_of=0) == []
    assert counts(engine, timestamp_as_of=stime) == [("a", 1)]
    assert counts(engine, timestamp_as_of=stime - timedelta(seconds=1)) == []
    assert len(engine.table("s", position_as_of=1).collect()) == 2
    with pytest.raises(AnabranchError) as caught:
        engine.table("counts", position_as_of=9)
    assert caught.value.need == "a position from 0 to 2"
    with pytest.raises(AnabranchError):
        engine.table("counts", position_as_of=1, include_open=True)


def test_a_query_created_later_says_its_consolidated_answer_at_once(engine: ab.Engine, s: ab.Stream) -> None:
    for minute in (0.5, 0.2, 3):
        s.append(rows(minute))
    engine.sql(COUNTS)
    engine.advance()
    assert said(engine) == [(1, "insert", "a", 2)]
    engine.sql(COUNTS.replace("counts", "again").replace("1 minute", "2 minutes"))
    assert len(Live(engine._log).stores) == 1
    engine.advance()
    assert said(engine, "again") == [(2, "insert", "a", 2)]


def test_revisions_wait_for_their_bucket(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(f"{COUNTS} REVISE EVERY 3 BUCKETS")
    for minutes in ((0.5, 1.5), (0.1, 2.5), (0.2, 1.2), (0.3,), (0.4,)):
        s.append(rows(*minutes))
        engine._queries.advance(release=False)
    inserts = [item for item in said(engine) if item[1] == "insert"]
    assert inserts == [(1, "insert", "a", 1), (2, "insert", "a", 1)], "what closes is said at once"
    revisions = [item for item in said(engine) if item[1] != "insert"]
    assert revisions == [
        (4, "update_preimage", "a", 1),
        (4, "update_postimage", "a", 4),
        (4, "update_preimage", "a", 1),
        (4, "update_postimage", "a", 2),
    ]
    engine.advance()
    assert [item[1:] for item in said(engine)][-2:] == [("update_preimage", "a", 4), ("update_postimage", "a", 5)]


def test_the_fluent_form_gives_the_same_diagram(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    s.window("1 minute").groupBy("k").agg("count(*) AS c", "cq_close(*) AS t").create("fluent")
    live = Live(engine._log)
    assert live.queries["fluent"].asked == live.queries["counts"].asked
    s.where("v > 0").select("k", "upper(k) AS u").create("upper", on_error="null")
    s.union(s).agg("count(*) AS n").create("twice")
    s.append(rows(0.5, 2))
    engine.advance()
    assert counts(engine, "fluent") == counts(engine)
    assert [tuple(row) for row in engine.table("upper").collect()] == [("a", "A")] * 2
    assert [row.n for row in engine.table("twice").collect()] == [4]
    with pytest.raises(AnabranchError) as caught:
        s.where(engine.spark.range(1).id).create("column")  # type: ignore[arg-type]
    assert "SQL" in caught.value.need


def test_a_query_whose_expression_fails_halts_and_the_others_go_on(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    engine.sql("CREATE STREAM sums AS SELECT sum(CAST(v AS INT)) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'>")
    s.append(rows(0.5, v="7") + rows(0.6, v="seven", k="bad") + rows(2))
    done = engine.advance()
    assert done.halted == ("sums",)
    assert counts(engine) == [("a", 1), ("bad", 1)]
    halted = Live(engine._log).queries["sums"].stored.halted
    assert halted is not None
    assert halted["error_id"] == "EXPRESSION_FAILED"
    assert '"v":"seven"' in halted["got"]
    assert "CAST(v AS INT)" in halted["got"]
    assert "halted" in [row.state for row in engine.sql("SHOW STREAMS").collect()]  # type: ignore[union-attr]
    s.append(rows(0.7))
    assert engine.advance().halted == (), "it stays where it is"
    engine.resume("sums")
    assert engine.advance().halted == ("sums",), "the row is still there"
    engine.sql("DROP STREAM sums")


def test_a_query_that_was_halted_catches_up_with_all_it_missed(engine: ab.Engine, s: ab.Stream) -> None:
    """The partial results went on without it, since another query uses them too."""
    engine.sql(COUNTS)
    engine.sql(COUNTS.replace("counts", "behind"))
    assert len(Live(engine._log).stores) == 1
    s.append(rows(0.5, 1.5))
    engine.advance()
    lease = engine._log.leases.acquire()
    error = AnabranchError("EXPRESSION_FAILED", place="here", need="a test", got="one", next_step="Resume.")
    engine._log.register.halt(lease, [Live(engine._log).queries["behind"].stored.id], error)
    engine._log.leases.release(lease)
    for minutes in ((0.1, 2.5), (0.2,), (1.1, 3.5)):
        s.append(rows(*minutes))
        engine.advance()
    assert counts(engine, "behind") != counts(engine)
    engine.resume("behind")
    engine.advance()
    assert counts(engine, "behind") == counts(engine)
    assert said(engine, "behind") == said(engine), "bucket by bucket, what it would have said in time"


@pytest.mark.parametrize(("policy", "expected"), [("NULL", 7), ("QUARANTINE", 7)])
def test_on_error_says_otherwise(engine: ab.Engine, s: ab.Stream, policy: str, expected: int) -> None:
    engine.sql(f"""CREATE STREAM sums AS SELECT count(*) AS n, sum(CAST(v AS INT)) AS c, cq_close(*) AS t
        FROM s <SLICES '1 minute'> ON ERROR {policy}""")
    s.append(rows(0.5, v="7") + rows(0.6, v="seven") + rows(2))
    assert engine.advance().halted == ()
    (row,) = engine.table("sums").collect()
    assert (row.n, row.c) == (2 if policy == "NULL" else 1, expected)
    aside = engine.stream("sums").quarantined().collect()
    assert [("seven" in row.row, "CAST(v AS INT)" in row._reason) for row in aside] == (
        [] if policy == "NULL" else [(True, True)]
    )


def test_equal_queries_under_other_terms_keep_results_of_their_own(engine: ab.Engine, s: ab.Stream) -> None:
    sums = "SELECT sum(CAST(v AS INT)) AS c, count(*) AS n, cq_close(*) AS t FROM s <SLICES '1 minute'>"
    engine.sql(f"CREATE STREAM strict AS {sums}")
    engine.sql(f"CREATE STREAM kind AS {sums} ON ERROR NULL")
    engine.sql(f"CREATE STREAM careful AS {sums} ON ERROR QUARANTINE")
    s.append(rows(0.5, v="7") + rows(0.6, v="seven") + rows(2))
    assert engine.advance().halted == ("strict",)
    assert [counts(engine, name) for name in ("strict", "kind", "careful")] == [[], [(7, 2)], [(7, 1)]]


def test_a_query_keeps_the_time_zone_in_which_it_was_created(engine: ab.Engine, s: ab.Stream) -> None:
    days = """SELECT date_format(ts, 'd') AS d, count(*) AS c, date_format(cq_open(*), 'HH:mm') AS t
        FROM s <SLICES '1 hour'> GROUP BY date_format(ts, 'd')"""
    engine.sql(f"CREATE STREAM greenwich AS {days}")
    engine.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        engine.sql(f"CREATE STREAM tokyo AS {days}")
        s.append(rows(16 * 60, 18 * 60))
        engine.advance()
        for name, expected in (("greenwich", ("1", 1, "16:00")), ("tokyo", ("2", 1, "01:00"))):
            assert [tuple(row) for row in engine.table(name).collect()] == [expected]
            assert [(row.d, row.c, row.t) for row in engine.changes(name).collect()] == [expected]
            snapshot = engine.sql(f"SELECT *, date_format(timestamp'2026-01-01 00:00:00Z', 'H') AS here FROM {name}")
            assert [tuple(row) for row in snapshot.collect()] == [(*expected, "9")]
    finally:
        engine.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_on_error_reaches_filters_and_finished_results(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM few AS SELECT k, v FROM s WHERE CAST(v AS INT) > 0 ON ERROR NULL")
    engine.sql("CREATE STREAM some AS SELECT k, v FROM s WHERE CAST(v AS INT) BETWEEN 1 AND 7 ON ERROR NULL")
    engine.sql("""CREATE STREAM odd AS SELECT k, 1 / (count(*) - 1) AS c, cq_close(*) AS t
        FROM s <SLICES '1 minute'> GROUP BY k ON ERROR NULL""")
    s.append(rows(0.5, v="7") + rows(0.6, v="x", k="b") + rows(0.7, k="b") + rows(2))
    assert engine.advance().halted == ()
    for name in ("few", "some"):
        assert sorted(tuple(row) for row in engine.table(name).collect()) == [("a", "1"), ("a", "7"), ("b", "1")]
    assert sorted(counts(engine, "odd")) == [("a", None), ("b", 1.0)]


def test_speculation_is_said_tentatively_and_undone_by_an_abort(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    s.append(rows(0.5, 1.5))
    engine.advance()
    work = s.unit_of_work(speculative=True)
    work.append(rows(0.1, 2.5))
    engine.advance()
    feed = [(r._stability, r._change_type, r.c) for r in engine.changes("counts").collect()]
    assert feed == [
        ("stable", "insert", 1),
        ("tentative", "update_preimage", 1),
        ("tentative", "update_postimage", 2),
        ("tentative", "insert", 1),
    ]
    assert counts(engine) == [("a", 1)], "the table is stable"
    work.abort()
    engine.advance()
    feed = [(r._stability, r._change_type, r.c) for r in engine.changes("counts").collect()]
    assert feed[4:] == [
        ("tentative", "delete", 1),
        ("tentative", "update_preimage", 2),
        ("tentative", "update_postimage", 1),
    ]
    assert counts(engine) == [("a", 1)]


def test_speculation_over_all_of_time(engine: ab.Engine, s: ab.Stream) -> None:
    """Running totals have no event time by which what is tentative could be found."""
    engine.sql("CREATE STREAM total AS SELECT count(*) AS c FROM s")
    engine.sql("CREATE STREAM totals AS SELECT k, count(*) AS c FROM s GROUP BY k")
    s.append(rows(0.5, 1.5))
    engine.advance()
    with s.unit_of_work(speculative=True) as work:
        work.append(rows(0.1, 2.5))
        engine.advance()
        for name in ("total", "totals"):
            said = [(r._change_type, r.c) for r in engine.changes(name).collect() if r._stability == "tentative"]
            assert said == [("update_preimage", 2), ("update_postimage", 4)], name
    engine.advance()
    assert [row.c for name in ("total", "totals") for row in engine.table(name).collect()] == [4, 4]


def test_speculation_that_commits_becomes_stable(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    engine.sql("CREATE STREAM linear AS SELECT k, v FROM s")
    s.append(rows(0.5, 1.5))
    engine.advance()
    with s.unit_of_work(speculative=True) as work:
        work.append(rows(0.1))
        engine.advance()
        work.append(rows(0.2))
        engine.advance()
    engine.advance()
    assert counts(engine) == [("a", 3)]
    tentative = [r for r in engine.changes("counts").collect() if r._stability == "tentative"]
    weights = [1 if r._change_type in ("insert", "update_postimage") else -1 for r in tentative]
    assert len(tentative) == 8
    assert sum(weights) == 0
    assert len(engine.table("linear").collect()) == 4


def test_the_archive_of_a_serial_query_is_repaired(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    engine.sql("""CREATE STREAM most AS SELECT max(c) AS m, cq_close(*) AS t FROM counts <SLICES '1 minute'>
        ARCHIVE INTO most_ar""")
    s.append(rows(0.5, 1.5))
    engine.advance()
    s.append(rows(0.1, 0.2))
    engine.advance()
    archive = engine.sql("SELECT m FROM most_ar")
    assert archive is not None
    assert [row.m for row in archive.collect()] == [3]
    assert [(r._change_type, r.m) for r in engine.changes("most").collect()] == [
        ("insert", 1),
        ("update_preimage", 1),
        ("update_postimage", 3),
    ]


def test_streams_in_use_are_not_dropped(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(f"{COUNTS} ARCHIVE INTO kept")
    engine.sql("CREATE STREAM most AS SELECT max(c) AS m, cq_close(*) AS t FROM counts <SLICES '1 minute'>")
    for name, reader in (("s", "query 'counts'"), ("counts", "query 'most'")):
        with pytest.raises(AnabranchError) as caught:
            engine.sql(f"DROP STREAM {name}")
        assert (caught.value.id, caught.value.got.split(",")[0]) == ("STREAM_IN_USE", reader)
    s.append(rows(0.5, 1.5))
    engine.advance()
    assert engine.sql("SELECT sum(c) AS n FROM kept").collect()[0].n == 1  # type: ignore[union-attr]
    for name in ("most", "counts", "s"):
        engine.sql(f"DROP STREAM {name}")
    engine.sql("DROP STREAM IF EXISTS counts")
    assert engine.streams() == []
    assert Live(engine._log).stores == {}


def test_statements_that_answer(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    shown = engine.sql("SHOW STREAMS")
    assert shown is not None
    assert [(row.name, row.kind) for row in shown.collect()] == [("counts", "query"), ("s", "base")]
    described = engine.sql("DESCRIBE s")
    assert described is not None
    assert ("ts", "TIMESTAMP", "event time") in [tuple(row) for row in described.collect()]
    drawn = engine.sql(f"EXPLAIN {COUNTS.replace('counts', 'more')} HAVING count(*) > 3")
    assert drawn is not None
    text = "\n".join(row.plan for row in drawn.collect())
    assert "Partials in panes of 1 minute by k" in text
    assert "roll up" in text, "it would use what is kept already"
    by_name = engine.sql("EXPLAIN counts")
    assert by_name is not None
    assert any("Consolidate" in row.plan for row in by_name.collect())
    assert engine.sql("CREATE STREAM IF NOT EXISTS s (a INT, b TIMESTAMP) EVENT TIME b") is None


def test_mistakes_point_into_the_text(engine: ab.Engine, s: ab.Stream) -> None:
    with pytest.raises(AnabranchError) as caught:
        engine.sql("CREATE STREAM x AS SELECT k, sum(pice) AS c FROM s <SLICES '1 minute'> GROUP BY k", name="app.sql")
    assert caught.value.id == "BAD_EXPRESSION"
    assert caught.value.place.startswith("app.sql, line 1, column 34:")
    assert caught.value.place.splitlines()[2].index("^") == caught.value.place.splitlines()[1].index("pice")
    with pytest.raises(AnabranchError) as caught:
        engine.sql("CREATE STREAM x AS SELECT count(*) AS c FROM s <SLICES '1 month'>")
    assert caught.value.id == "BAD_DURATION"
    with pytest.raises(AnabranchError) as caught:
        engine.sql("SELECT nothing FROM s")
    assert caught.value.id == "BAD_EXPRESSION"
    engine.sql("CREATE STREAM r AS SELECT k, count(*) AS c FROM s GROUP BY k")
    with pytest.raises(AnabranchError) as caught:
        engine.sql("CREATE STREAM x AS SELECT sum(c) AS n FROM r <SLICES '1 minute'>")
    assert caught.value.id == "NO_EVENT_TIME"
    with pytest.raises(AnabranchError) as caught:
        engine.stream("r").append(rows(1))
    assert caught.value.got == "a query, which says its own rows"
    assert [q.name for q in engine._log.register.queries()] == ["r"], "nothing else was created"


def test_background_advancing_says_what_comes(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(COUNTS)
    engine.start()
    s.append(rows(0.5, 1.5))
    for _ in range(600):
        if engine.stream("counts").state().rows:
            break
        engine._loop._stop.wait(0.1)  # type: ignore[union-attr]
    engine.stop()
    assert counts(engine) == [("a", 1)]
    engine._log.leases.acquire("other")
    assert engine.advance().buckets == 0, "nothing is waiting: no lease is needed"
    s.append(rows(2.5))
    with pytest.raises(AnabranchError) as caught:
        engine.advance()
    assert caught.value.id == "LEASE_HELD"


def test_two_warehouse_settings_are_remembered(engine: ab.Engine, s: ab.Stream) -> None:
    engine.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    engine.sql("CREATE STREAM days AS SELECT date(ts) AS c, count(*) AS n FROM s GROUP BY date(ts)")
    engine.spark.conf.set("spark.sql.session.timeZone", "UTC")
    s.append(rows(16 * 60))
    engine.advance()
    (row,) = engine.changes("days").collect()
    assert str(row.c) == "2026-01-02", "16:00 UTC is the next day in Tokyo, where the query was created"
