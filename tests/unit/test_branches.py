"""Branches: another catalog over the same segments, held in main, and ended in the right order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from anabranch.log import fork as forking
from anabranch.log import tables
from anabranch.log.fork import fork, schema_of
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from tests.conftest import START_US, FakeClock, make_spec, rows_at


def append(log: Log, *seconds: float, name: str = "impsns") -> None:
    with log.unit_of_work(log.stream(name)) as work:
        work.append(rows_at(*seconds))


def paths(log: Log, name: str = "impsns") -> list[str]:
    """The files of a stream, all of which must be there."""
    found = sorted(logged.segment.path for logged in log.plan(name, ReadRange()).segments)
    assert all((log.root / path).exists() for path in found), found
    return found


def files_below(root: Path, part: str) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in (root / part).rglob("*") if p.is_file())


def release_all(log: Log, name: str = "impsns") -> list[str]:
    """What compaction does to the files of a stream, in short: they are given to the collector."""
    released = paths(log, name)
    log.drop_stream(name)
    return released


@pytest.fixture
def main(log: Log) -> Log:
    log.create_stream(make_spec())
    append(log, 1, 2)
    append(log, 3)
    return log


@pytest.mark.parametrize("name", [None, "what-if"])
def test_a_branch_begins_as_main_and_goes_its_own_way(main: Log, name: str | None) -> None:
    with main.fork(name) as branch:
        assert paths(branch) == paths(main)
        assert branch.entry_point != main.entry_point
        before = paths(main)
        append(branch, 4)
        assert paths(main) == before
        (new,) = set(paths(branch)) - set(before)
        assert new.startswith(f"branches/{branch.generation}/data/")
        append(main, 5)
        assert branch.stream("impsns").rows == 4 == main.stream("impsns").rows
        made = branch.create_stream(make_spec("others"))
        assert made.id > main.stream("impsns").id


def test_numbers_go_on_after_those_of_main(main: Log) -> None:
    """Also after those of streams that main has dropped: their old writers must not find another one."""
    dropped = main.create_stream(make_spec("dropped")).id
    main.drop_stream("dropped")
    with main.fork("b") as branch:
        assert branch.create_stream(make_spec("others")).id > dropped


@pytest.mark.parametrize("name", [None, "b"])
def test_what_is_mains_alone_is_not_in_the_copy(main: Log, name: str | None) -> None:
    stream = main.stream("impsns")
    main.hold(stream, "s", 1, "subscription")
    main.hold(stream, "kept", 1, "hold")
    main.leases.acquire()
    work = main.unit_of_work(stream, speculative=True)
    work.append(rows_at(9))
    with main.fork(name) as branch:
        with branch.catalog.read() as connection:
            for table in (tables.leases, tables.intents, tables.garbage, tables.overlay, tables.branches):
                assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() == 0, table.name
            segments = tables.segments
            open_ones = sa.select(segments.c.id).where(segments.c.overlay_id.is_not(None))
            assert connection.execute(open_ones).first() is None
        assert [p.name for p in branch.positions_of(branch.stream("impsns"))] == ["kept"]
    work.abort()
    assert [p.name for p in main.positions_of(stream)] == ["kept", "s"]


def test_main_is_whole_after_its_branch_was_collected(main: Log, clock: FakeClock) -> None:
    """Fork while a unit of work is open in main; what was copied of its intent must not let the branch sweep it."""
    work = main.unit_of_work(main.stream("impsns"))
    work.append(rows_at(4))
    with main.fork() as branch:
        append(main, 5)
        release_all(branch)
        main.intents.renew()
        for _ in range(3):
            clock.pass_seconds(50)
            main.intents.renew()
            main.branches.renew()
            branch.intents.renew()
        collected = branch.collect_garbage(0)
        assert collected.orphans == () == collected.released
        with branch.catalog.read() as connection:
            assert connection.execute(sa.select(tables.garbage)).all() == []
        work.commit()
        assert len(paths(main)) == 4


def test_a_branch_is_whole_after_main_was_collected(main: Log) -> None:
    with main.fork("b") as branch:
        before = paths(branch)
        released = release_all(main)
        assert main.collect_garbage(0).released == ()
        assert paths(branch) == before
        main.branches.drop(branch.branch)
    assert set(main.collect_garbage(0).released) == set(released)
    assert files_below(main.root, "data") == []


def test_files_that_were_released_before_a_fork_go_as_ever(main: Log) -> None:
    released = release_all(main)
    with main.fork():
        assert set(main.collect_garbage(0).released) == set(released)


def test_an_older_branch_holds_what_a_younger_one_does_not(main: Log) -> None:
    with main.fork() as older:
        released = release_all(main)
        with main.fork():
            assert main.collect_garbage(0).released == ()
            assert len(paths(older)) == 2
    assert set(main.collect_garbage(0).released) == set(released)


def test_branches_of_branches(main: Log) -> None:
    with main.fork("outer") as outer:
        append(outer, 4)
        with outer.fork("inner") as inner:
            append(inner, 5)
            assert len(paths(inner)) == 4
            released = release_all(outer)
            release_all(main)
            assert outer.collect_garbage(0).released == () == main.collect_garbage(0).released
            assert len(paths(inner)) == 4
            with pytest.raises(AnabranchError) as caught:
                main.branches.drop(outer.branch)
            assert caught.value.id == "BRANCH_IN_USE"
            assert "'inner'" in caught.value.got
        main.branches.drop(inner.branch)
        own = [path for path in released if path.startswith("branches/")]
        assert list(outer.collect_garbage(0).released) == own
        assert len(own) == 1


def test_an_unnamed_branch_leaves_nothing(main: Log) -> None:
    with main.fork() as branch:
        append(branch, 4)
        home = main.root / "branches" / str(branch.generation)
        assert home.exists()
    assert not home.exists()
    with main.catalog.read() as connection:
        assert connection.execute(sa.select(tables.branches)).all() == []


def test_an_unnamed_branch_stays_until_those_of_it_are_gone(main: Log) -> None:
    with main.fork() as outer:
        append(outer, 4)
        inner = outer.fork("inner")
    assert len(paths(inner)) == 3
    assert main.collect_garbage(0).branches == ()
    inner.close()
    main.branches.drop(inner.branch)
    assert main.collect_garbage(0).branches == (outer.generation,)
    assert list((main.root / "branches").iterdir()) == []


def test_a_named_branch_stays(main: Log, open_log: Callable[..., Log]) -> None:
    with main.fork("b") as branch:
        append(branch, 4)
    with open_log(branch="B") as again:
        assert len(paths(again)) == 3
        assert again.branch.name == "b"
    main.collect_garbage(0)
    assert [b.name for b in main.branches.all()] == ["b"]


def test_a_branch_expires(main: Log, clock: FakeClock) -> None:
    main.fork("b", 10_000_000).close()
    clock.pass_seconds(9)
    assert main.collect_garbage(0).branches == ()
    clock.pass_seconds(1)
    with pytest.raises(AnabranchError) as caught:
        main.branches.find("b")
    assert caught.value.id == "UNKNOWN_BRANCH"
    main.fork("b").close()  # the name is free
    assert len(main.collect_garbage(0).branches) == 1
    assert [b.name for b in main.branches.all()] == ["b"]


def test_a_silent_branch_lapses(main: Log, clock: FakeClock) -> None:
    branch = main.fork()
    clock.pass_seconds(59)
    main.branches.renew()
    clock.pass_seconds(59)
    assert main.collect_garbage(0).branches == ()
    clock.pass_seconds(2)
    assert main.collect_garbage(0).branches == (branch.generation,)
    with pytest.raises(AnabranchError) as caught:
        append(branch, 4)
    assert caught.value.id == "BRANCH_GONE"
    assert files_below(main.root, "branches") == []


def test_names_of_branches(main: Log) -> None:
    main.fork("b").close()
    for name, error in (("B", "BRANCH_EXISTS"), ("main", "BAD_NAME"), ("a b", "BAD_NAME")):
        with pytest.raises(AnabranchError) as caught:
            main.fork(name)
        assert caught.value.id == error
    with pytest.raises(AnabranchError) as caught:
        main.branches.find("other")
    assert caught.value.id == "UNKNOWN_BRANCH"
    assert "one of b" in caught.value.need


def test_a_fork_that_fails_leaves_nothing(main: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("as asked")

    monkeypatch.setattr("anabranch.log.fork.make_own", fail)
    with pytest.raises(RuntimeError):
        main.fork("b")
    assert main.branches.all() == []
    assert files_below(main.root, "branches") == []
    monkeypatch.undo()
    main.fork("b").close()


def test_a_branch_that_was_dropped_says_so(main: Log) -> None:
    with main.fork("b") as branch:
        main.branches.drop(branch.branch)
        with pytest.raises(AnabranchError) as caught:
            branch.stream("impsns")
        assert caught.value.id == "BRANCH_GONE"


def advance(log: Log) -> None:
    lease = log.leases.acquire()
    log.register.record_bucket(lease)
    log.leases.release(lease)


def test_following_brings_runs_marks_and_buckets(main: Log) -> None:
    stream = main.stream("impsns")
    with main.fork() as branch:
        append(main, 4)
        advance(main)
        main.punctuate(stream, START_US + 60_000_000, "a")
        with main.unit_of_work(stream, run_id=("mine", 7)) as work:
            work.append(rows_at(5))
        found = branch.follow()
        assert (found.streams, found.runs, found.buckets) == (1, 3, 1)
        assert branch.headers(stream) == main.headers(stream)
        assert paths(branch) == paths(main)
        assert branch.stream("impsns") == main.stream("impsns")
        assert branch.register.bounds_at(stream.id, 1) == main.register.bounds_at(stream.id, 1)
        with branch.unit_of_work(stream, run_id=("mine", 7)) as work:
            work.append(rows_at(6))
        assert branch.stream("impsns").rows == main.stream("impsns").rows, "it is known as committed"
        append(main, 8)
        assert branch.follow().runs == 1
        advance(branch)
        with pytest.raises(AnabranchError) as caught:
            branch.follow()
        assert caught.value.id == "BRANCH_DIVERGED"


def test_rows_that_were_let_go_cannot_be_followed(main: Log) -> None:
    stream = main.create_stream(make_spec("short", history="1 minute"))
    append(main, 0, name="short")
    with main.fork() as branch:
        append(main, 1, name="short")
        append(main, 3600, name="short")
        assert main.retain(stream).rows == 2
        before = branch.stream("short")
        with pytest.raises(AnabranchError) as caught:
            branch.follow()
        assert caught.value.id == "HISTORY_GONE"
        assert branch.stream("short") == before
        assert len(paths(branch, "short")) == 1


def test_no_right_to_make_a_schema(tmp_path: Path, postgres: Callable[[], str]) -> None:
    """A branch with a name is refused, with what to do about it; one without a name needs no schema."""
    url = sa.make_url(postgres())
    with Log(tmp_path, url.render_as_string(hide_password=False)) as log:
        with log.catalog.write() as connection:
            schema = schema_of(connection)
            connection.exec_driver_sql("CREATE ROLE lowly LOGIN PASSWORD 'lowly'")
            connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO lowly")
            connection.exec_driver_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO lowly")
            connection.exec_driver_sql(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO lowly")
        log.create_stream(make_spec())
    lowly = url.set(username="lowly", password="lowly").render_as_string(hide_password=False)
    with Log(tmp_path, lowly) as log:
        append(log, 1)
        with pytest.raises(AnabranchError) as caught:
            log.fork("b")
        assert caught.value.id == "CATALOG_REFUSED"
        assert "GRANT CREATE ON DATABASE" in caught.value.next_step
        assert "TO lowly" in caught.value.next_step
        assert log.branches.all() == []
        with log.catalog.read() as connection:
            assert connection.execute(sa.select(tables.branches)).all() == []
        with log.fork() as branch:
            assert len(paths(branch)) == 1


def test_where_the_catalogs_of_branches_are(main: Log, tmp_path: Path) -> None:
    """A file below the branch's directory, but on PostgreSQL a schema for what others can open."""
    in_files = main.catalog.is_sqlite
    for name, published in ((None, False), ("b", False), (None, True)):
        branch = fork(main.catalog, main.branches, None, name, published=published)
        with main.open_branch(branch) as opened:
            assert opened.catalog.is_sqlite == (in_files or (name is None and not published))
            with opened.catalog.read() as connection:
                found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() if (
                    name or published or in_files
                ) else "0005"  # fmt: skip
            assert found == "0005"


def test_appends_go_on_while_a_catalog_is_copied(main: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold is committed before the copy, and the copy is one state of the catalog."""
    copied = forking.copy_catalog

    def beside(source: Any, target: Any) -> None:
        assert [row.state for row in registered(main)] == ["forking"]
        append(main, 4)
        released = release_all(main, "others")
        copied(source, target)
        append(main, 5)
        assert main.collect_garbage(0).released == ()
        assert all((main.root / path).exists() for path in released), "the hold is older than the copy"

    main.create_stream(make_spec("others"))
    append(main, 1, name="others")
    monkeypatch.setattr(forking, "copy_catalog", beside)
    with main.fork() as branch:
        assert branch.stream("impsns").rows == 4
        assert len(paths(branch)) == 3
        assert main.stream("impsns").rows == 5


def registered(log: Log) -> list[Any]:
    with log.catalog.read() as connection:
        return list(connection.execute(sa.select(tables.branches)).all())
