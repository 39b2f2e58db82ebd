"""Retention in the log: what readers need, who was asked, and what reading then insists on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from anabranch.log import reading
from anabranch.log.commit import commit_run
from anabranch.log.log import Log, StreamState
from anabranch.log.references import Unchanged
from anabranch.log.register import NewQuery, NewStore
from anabranch.log.retention import ALL, Readers
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, Role, RunDraft, RunKind, Segment
from tests.conftest import SECOND, START_US, make_spec, rows_at
from tests.unit.test_references import parquet

HOUR = 3600


def at(hour: float) -> int:
    return START_US + int(hour * HOUR * SECOND)


@pytest.fixture
def stream(log: Log) -> StreamState:
    """A row an hour, for ten hours; what is older than five need not be held."""
    stream = log.create_stream(make_spec(history="5 hours"))
    put(log, stream, *range(10))
    return stream


def put(log: Log, stream: StreamState, *hours: float, source: str | None = None) -> None:
    for hour in hours:
        with log.unit_of_work(stream, source=source) as work:
            work.append(rows_at(hour * HOUR))


def a_bucket(log: Log) -> None:
    lease = log.leases.acquire()
    log.register.record_bucket(lease, force=True)
    log.leases.release(lease)


def query(log: Log, name: str) -> tuple[str, int]:
    log.register.create_queries([NewQuery(make_spec(name), {})])
    return "query", next(q.id for q in log.register.queries() if q.name == name)


def test_what_a_reader_needs_stays(log: Log, stream: StreamState) -> None:
    a_bucket(log)
    asked = frozenset([query(log, "q")])
    assert log.retain(stream, Readers(asked, {stream.id: ALL})).rows == 0, "a reader that has not begun needs all"
    assert log.retain(stream, Readers(asked, {stream.id: at(2)})).rows == 2
    assert log.retain(stream, Readers(asked, {stream.id: at(9)})).rows == 2, "what people declared is more"


def test_a_reader_that_has_come_since_must_be_asked(log: Log, stream: StreamState) -> None:
    a_bucket(log)
    known = query(log, "q")
    readers = Readers(frozenset([known]), {stream.id: at(4)})
    store = NewStore(make_spec().schema, "ts", {})
    log.register.create_queries([NewQuery(make_spec("later"), {}, [store])])
    refused = log.retain(stream, readers)
    assert (refused.rows, refused.more) == (0, True)
    later = ("query", next(q.id for q in log.register.queries() if q.name == "later"))
    assert log.retain(stream, Readers(frozenset([known, later]), readers.needs)).more, "its store is a reader too"
    asked = frozenset([known, later, *(("store", s.id) for s in log.register.stores())])
    assert log.retain(stream, Readers(asked, readers.needs)).rows == 4


def test_buckets_say_how_far_progress_has_come(log: Log) -> None:
    """By runs it is where A is, once that has come first; by buckets where B is."""
    stream = log.create_stream(make_spec(history="5 hours"))
    put(log, stream, 20, source="A")
    put(log, stream, 10, 11, source="B")
    a_bucket(log)
    assert log.stream("impsns").progress == at(20)
    assert log.retain(stream).rows == 0
    put(log, stream, 16.5, source="B")
    assert log.retain(stream).rows == 0, "it is in no bucket yet"
    a_bucket(log)
    assert log.retain(stream).rows == 2


def test_so_much_at_a_time(log: Log, stream: StreamState) -> None:
    turns = [log.retain(stream, most=3) for _ in range(3)]
    assert [(turn.segments, turn.more) for turn in turns] == [(3, True), (1, False), (0, False)]


def test_what_is_promised_and_missing_is_an_error(log: Log, stream: StreamState) -> None:
    log.retain(stream)
    hours = [(at(0), at(10))]
    assert len(log.plan_panes(stream, hours)) == 6, "as far as it is held"
    assert len(log.plan_panes(stream, hours, whole_from=at(4))) == 6
    with pytest.raises(AnabranchError) as caught:
        log.plan_panes(stream, hours, whole_from=at(3))
    assert caught.value.id == "HISTORY_GONE"
    assert log.plan_panes(stream, [(at(5), at(6))], whole_from=at(0)), "nothing is missing there"


def test_readers_note_what_was_gone_when_they_were_made(log: Log, stream: StreamState) -> None:
    query(log, "before")
    needs = {stream.id: at(4)}
    log.retain(stream, Readers(frozenset(("query", q.id) for q in log.register.queries()), needs))
    query(log, "after")
    noted = {q.name: q.definition["gone"] for q in log.register.queries()}
    a_bucket(log)
    assert noted == {"before": {}, "after": {}}, "there had been no bucket"
    log.retain(stream, Readers(frozenset(("query", q.id) for q in log.register.queries()), needs))
    query(log, "last")
    assert next(q for q in log.register.queries() if q.name == "last").definition["gone"] == {str(stream.id): at(3)}


def test_what_was_ignored_is_found_by_its_times(log: Log, stream: StreamState, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(hour: int) -> None:
        aside = Segment(f"data/{hour}", 1, 1, at(hour), at(hour) + SECOND, role=Role.IGNORED)
        with log.catalog.write() as connection:
            commit_run(connection, stream.id, RunDraft(RunKind.ROWS, (aside,), bucket=1), clock=0)

    for hour in range(100, 400):
        ignore(hour)
    looked_at: list[str] = []
    whole = reading.logged_from
    monkeypatch.setattr(reading, "logged_from", lambda row: looked_at.append(row.path) or whole(row))
    found = log.plan_panes(stream, [(at(200), at(201))], role=Role.IGNORED)
    assert [s.segment.path for s in found] == ["data/200", "data/201"]
    assert len(looked_at) <= 4
    assert log.plan_panes(stream, [(at(0), at(9))], role=Role.IGNORED) == []


def test_a_reference_that_looks_the_same_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.log import references

    path = parquet(tmp_path / "f.parquet")
    size, footer = references.fingerprint(path, "parquet")
    segment = Segment(path, 3, size, reference=True, footer=footer)
    opened: list[str] = []
    verify = references.verify
    monkeypatch.setattr(references, "verify", lambda s, stream: opened.append(s.path) or verify(s, stream))
    unchanged = Unchanged()
    for _ in range(3):
        unchanged.check([LoggedSegment(segment, 1, 1)], "impsns")
    assert opened == [path]
    facts = os.stat(path)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:-20] + b"x" * 12 + content[-8:])
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(AnabranchError) as caught:
        unchanged.check([LoggedSegment(segment, 1, 1)], "impsns")
    assert caught.value.id == "FILE_CHANGED"
    os.remove(path)
    with pytest.raises(AnabranchError) as caught:
        unchanged.check([LoggedSegment(segment, 1, 1)], "impsns")
    assert caught.value.id == "FILE_UNREADABLE"


def test_what_is_due_is_found_through_an_index(log: Log, stream: StreamState) -> None:
    if log.catalog.engine.dialect.name != "sqlite":
        pytest.skip("SQLite says its plans in words")
    from anabranch.log import tables

    table = tables.segments
    due = sa.select(table).where(
        table.c.stream_id == stream.id, table.c.role == "rows", table.c.event_max < at(4)
    )  # fmt: skip
    with log.catalog.read() as connection:
        text = str(due.compile(compile_kwargs={"literal_binds": True}))
        plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))
    assert "segments_by_age (stream_id=? AND role=? AND event_max<?)" in plan
