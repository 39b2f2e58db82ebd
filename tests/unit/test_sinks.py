"""Sinks without Spark: their statements, the keys of queries, and what the catalog keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.diagram.keys import key_of
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery, CreateSink, DropSink, ResumeSink, ShowSinks
from anabranch.log.log import Log
from anabranch.log.sinks import new_sink_id
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import StreamSpec
from tests.conftest import make_spec, rows_at


def test_statements_of_sinks() -> None:
    full, short, drop, resume, show = parse(
        "CREATE SINK IF NOT EXISTS a FROM s TO 'postgresql://h/d' TABLE 'x.t' KEY (k, `odd name`);"
        "create sink b from s to '/files' format JSON insert only;"
        "DROP SINK IF EXISTS a; RESUME SINK b; SHOW SINKS"
    )
    assert isinstance(full, CreateSink)
    assert (full.name, full.stream, full.to, full.table) == ("a", "s", "postgresql://h/d", "x.t")
    assert (full.key, full.insert_only, full.if_not_exists) == (("k", "odd name"), False, True)
    assert isinstance(short, CreateSink)
    assert (short.format, short.insert_only, short.key, short.table) == ("json", True, (), None)
    assert isinstance(drop, DropSink)
    assert drop.if_exists
    assert isinstance(resume, ResumeSink)
    assert isinstance(show, ShowSinks)


@pytest.mark.parametrize(
    ("text", "marked", "need"),
    [
        ("CREATE SINK a s TO 'x'", "s", "FROM"),
        ("CREATE SINK a FROM s 'x'", "'x'", "TO"),
        ("CREATE SINK a FROM s TO x", "x", "where to, in quotes"),
        ("CREATE SINK a FROM s TO ''", "''", "where to, in quotes"),
        ("CREATE SINK a FROM s TO 'x' KEY (a", "", ")"),
        ("CREATE SINK a FROM s TO 'x' KEY ()", ")", "the name of a column"),
        ("CREATE SINK a FROM s TO 'x' FORMAT xml", "xml", "PARQUET, JSON or CSV"),
        ("CREATE SINK a FROM s TO 'x' INSERT", "", "ONLY"),
        ("CREATE SINK a FROM s TO 'x' TABEL t", "TABEL", "TABLE, KEY, FORMAT or INSERT ONLY"),
        ("CREATE SINK a FROM s TO 'x' INSERT ONLY INSERT ONLY", "INSERT ONLY", "each clause once"),
        ("CREATE SINK `a b` FROM s TO 'x'", "`a b`", "a letter, then letters, digits and underscores, 128 at most"),
        ("DROP SINK a b", "b", "the end of the statement"),
        ("SHOW SINK", "SINK", "STREAMS"),
    ],
)
def test_mistakes_in_statements_point_at_the_place(text: str, marked: str, need: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        parse(text)
    assert caught.value.need == need
    line, carets = caught.value.place.splitlines()[-2:]
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == marked
    if marked == "TABEL":
        assert caught.value.next_step.startswith("Did you mean TABLE?")


@pytest.mark.parametrize(
    ("select", "key"),
    [
        ("SELECT k, count(*) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k", ("k", "t")),
        ("SELECT count(*) AS c, cq_open(*) AS o, k AS g FROM s <SLICES '1 minute'> GROUP BY k", ("o", "g")),
        ("SELECT k, count(*) AS c FROM s <SLICES '1 minute'> GROUP BY k", None),
        ("SELECT count(*) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k", None),
        ("SELECT k, count(*) AS c FROM s GROUP BY k HAVING count(*) > 1", ("k",)),
        ("SELECT upper(k) AS u, count(*) AS c FROM s GROUP BY k", None),
        ("SELECT count(*) AS c FROM s", ()),
        ("SELECT q.k, c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q WHERE c > 1", ("k",)),
        ("SELECT v, id FROM keyed WHERE v > 1", ("id",)),
        ("SELECT v FROM keyed", None),
        ("SELECT k, v FROM s", None),
        ("SELECT k, v FROM s UNION ALL SELECT k, v FROM s", None),
    ],
)
def test_keys_of_queries(select: str, key: tuple[str, ...] | None) -> None:
    statement = parse(f"CREATE STREAM q AS {select}")[0]
    assert isinstance(statement, CreateQuery)
    columns = {"s": ("k", "v", "ts"), "keyed": ("id", "v", "ts")}
    box = compile_query(statement, columns.__getitem__).box
    assert key_of(box, lambda name: ("id",) if name == "keyed" else None) == key


def test_a_sink_holds_what_has_not_arrived(log: Log, spec: StreamSpec) -> None:
    stream = log.create_stream(spec)
    for second in range(3):
        with log.unit_of_work(stream) as unit:
            unit.append(rows_at(second))
    log.sinks.create("out", stream.id, {"to": "x"}, new_sink_id())
    sink = log.sinks.find("out")
    assert (sink.position, sink.waiting, sink.stream, sink.halted) == (0, 3, "impsns", None)
    assert [(p.name, p.kind, p.position) for p in log.positions_of(stream)] == [("out", "sink", 0)]
    assert not log.release(stream, "out"), "only its sink lets go of it"
    lease = log.leases.acquire()
    log.sinks.moved(lease, sink, 2)
    assert log.plan_compaction(stream, least_segments=2).up_to == 2
    error = AnabranchError("SINK_REFUSED", place="p", need="n", got="g", next_step="s")
    log.sinks.halt(lease, sink, error)
    assert (log.sinks.find("out").tries, log.sinks.find("out").halted) == (False, error.parts())
    log.sinks.halt(lease, sink, AnabranchError(**{**error.parts(), "error_id": "SINK_UNREACHABLE"}))
    assert log.sinks.find("out").tries, "a server that is away comes back"
    log.sinks.resume(sink)
    assert log.sinks.find("out").halted is None
    with pytest.raises(AnabranchError) as caught:
        log.drop_stream("impsns")
    assert caught.value.got == "sink 'out'"
    log.sinks.drop(sink)
    log.drop_stream("impsns")


def test_an_engine_that_was_replaced_moves_no_sink(log: Log, spec: StreamSpec, clock: Any) -> None:
    stream = log.create_stream(spec)
    log.sinks.create("out", stream.id, {"to": "x"}, new_sink_id())
    sink = log.sinks.find("out")
    old = log.leases.acquire("elsewhere:1")
    clock.pass_seconds(60)
    log.leases.acquire("elsewhere:2")
    for act in (lambda: log.sinks.moved(old, sink, 0), lambda: log.sinks.halt(old, sink, _error())):
        with pytest.raises(AnabranchError) as caught:
            act()
        assert caught.value.id == "FENCED"


def _error() -> AnabranchError:
    return AnabranchError("SINK_REFUSED", place="p", need="n", got="g", next_step="s")


def test_names_are_shared_by_streams_and_sinks(log: Log, spec: StreamSpec) -> None:
    stream = log.create_stream(spec)
    log.sinks.create("out", stream.id, {"to": "x"}, new_sink_id())
    attempts: list[Callable[[], object]] = [
        lambda: log.create_stream(make_spec("OUT")),
        lambda: log.sinks.create("Impsns", stream.id, {"to": "x"}, new_sink_id()),
        lambda: log.sinks.create("out", stream.id, {"to": "x"}, new_sink_id()),
    ]
    for attempt in attempts:
        with pytest.raises(AnabranchError) as caught:
            attempt()
        assert caught.value.id == "STREAM_EXISTS"
    with pytest.raises(AnabranchError) as caught:
        log.sinks.find("nothing")
    assert (caught.value.id, caught.value.need) == ("UNKNOWN_SINK", "one of out")
