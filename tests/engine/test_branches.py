"""Engines on branches: every box steps there as on main, and main does not notice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import anabranch as ab
from anabranch.cli import main as cli
from anabranch.log.tables import segments
from anabranch.model.errors import AnabranchError

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
BOXES = """
    CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts;
    CREATE STREAM o (id INT, k STRING, ts TIMESTAMP) EVENT TIME ts KEY (id);
    CREATE STREAM big AS SELECT k, v, ts FROM s WHERE v > 1;
    CREATE STREAM counts AS SELECT k, count(*) AS c, max(v) AS m, cq_close(*) AS t
        FROM s <SLICES '1 minute'> GROUP BY k;
    CREATE STREAM pairs AS SELECT s.k AS k, s.v AS v, o.id AS id FROM s JOIN o ON s.k = o.k WITHIN '2 minutes';
    CREATE STREAM totals AS SELECT k, sum(v) AS total, count(*) AS n FROM s GROUP BY k;
    CREATE STREAM named AS SELECT t.k AS k, t.total AS total, o.id AS id FROM totals AS t JOIN o ON t.k = o.k;
    CREATE STREAM threes AS SELECT k, sum(v) AS total FROM s <VISIBLE 3 ROWS ADVANCE 3 ROWS> GROUP BY k;
    CREATE STREAM highest AS SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 1
"""
QUERIES = ("big", "counts", "pairs", "totals", "named", "threes", "highest")


def at(minute: float) -> datetime:
    return ZERO + timedelta(minutes=minute)


def feed(engine: ab.Engine, *minutes: float, revise: bool = False) -> None:
    engine.stream("s").append([{"k": "ab"[n % 2], "v": int(m * 10), "ts": at(m)} for n, m in enumerate(minutes)])
    engine.stream("o").append([{"id": int(m * 10) % 4, "k": "ab"[n % 2], "ts": at(m)} for n, m in enumerate(minutes)])
    if revise:
        engine.stream("o").delete([1])
        engine.stream("o").replace([{"id": 2, "k": "a", "ts": at(2)}])
    engine.advance()


def tables(engine: ab.Engine) -> dict[str, list[str]]:
    return {s.name: sorted(map(str, engine.table(s.name).collect())) for s in engine.streams()}


def read_by(engine: ab.Engine) -> set[str]:
    """The files of main to which a catalog refers."""
    with engine._log.catalog.read() as connection:
        return {path for path in connection.execute(sa.select(segments.c.path)).scalars() if path.startswith("data/")}


def files_below(root: Path, part: str) -> set[str]:
    return {str(p.relative_to(root)) for p in (root / part).rglob("*") if p.is_file()}


@pytest.fixture
def main(warm_spark: Any, tmp_path: Path) -> Iterator[ab.Engine]:
    with ab.connect(tmp_path / "w", kernel="auto") as engine:
        yield engine


@pytest.mark.parametrize("kernel", ["auto", pytest.param("spark", marks=pytest.mark.proof)])
def test_every_box_steps_on_a_branch_and_main_does_not_notice(warm_spark: Any, tmp_path: Path, kernel: str) -> None:
    with ab.connect(tmp_path / "w", kernel=kernel) as main:
        main.sql(BOXES)
        feed(main, 0.1, 0.2, 0.3, 1.1, 1.2)
        before, held = tables(main), files_below(main.warehouse, "data")
        with main.branch() as branch:
            assert tables(branch) == before
            feed(branch, 0.5, 2.1, 2.2, 3.3, revise=True)
            assert branch.halted() == {}
            there = tables(branch)
            assert [name for name in QUERIES if there[name] == before[name]] == []
            assert tables(main) == before
            assert files_below(main.warehouse, "data") == held
        assert list((main.warehouse / "branches").iterdir()) == []
        feed(main, 0.5, 2.1, 2.2, 3.3, revise=True)
        assert tables(main) == there


@pytest.mark.usefixtures("no_upkeep")
def test_both_keep_house_and_neither_harms_the_other(main: ab.Engine) -> None:
    main.sql(";".join(BOXES.split(";")[i] for i in (0, 1, 3)))
    for minute in range(9):
        feed(main, minute, minute + 0.1, minute + 0.5)
    with main.branch("b") as branch:
        before, held = tables(main), read_by(branch)
        for engine in (branch, main):
            for name in before:
                engine.stream(name).retain()
                engine.stream(name).compact()
            assert not held <= read_by(engine), "there was something to do"
            engine.collect_garbage("0 seconds")
            assert held <= files_below(main.warehouse, "data"), "the branch may read them"
            assert tables(branch) == before == tables(main)
        feed(branch, 9, 10)
        feed(main, 11)
        main.collect_garbage("0 seconds")
        assert tables(branch)["s"] != tables(main)["s"]
        branch.drop()
    assert set(main.collect_garbage("0 seconds").released) >= held - read_by(main), "nobody holds them any more"
    assert tables(main)["s"]


def test_names_lives_and_what_belongs_to_main(main: ab.Engine, tmp_path: Path) -> None:
    main.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts")
    main.sql("CREATE STREAM big AS SELECT k, v, ts FROM s WHERE v > 1")
    main.create_sink("files", "big", str(tmp_path / "out"), format="json")
    s = main.stream("s")
    s.append([{"k": "a", "v": 5, "ts": at(1)}])
    main.advance()
    written = files_below(tmp_path, "out")
    with main.branch("what-if", expires="1 hour") as branch:
        branch.stream("s").append([{"k": "b", "v": 7, "ts": at(2)}])
        assert branch.advance().changes == 1
        assert [sink.name for sink in branch.sinks()] == ["files"]
        assert files_below(tmp_path, "out") == written
        for refused in (
            lambda: branch.create_sink("more", "big", str(tmp_path / "more"), format="json"),
            lambda: branch.drop_sink("files"),
            lambda: branch.resume("files"),
            lambda: branch.sql("CREATE SINK more FROM big TO '/tmp/more' FORMAT json"),
            lambda: branch.subscribe("big", name="me"),
            lambda: branch.stream("s").ingest(branch.spark.readStream.format("rate").load()),
        ):
            with pytest.raises(AnabranchError) as caught:
                refused()
            assert caught.value.id == "ON_BRANCH"
        with branch.subscribe("big", follow=False) as changes:
            assert [change.row["k"] for change in changes] == ["a", "b"]
        inner = branch.branch("inner")
        assert [(b.name, b.parent) for b in main.branches()] == [("what-if", None), ("inner", "what-if")]
        for drop in (branch.drop, lambda: main.drop_branch("what-if")):
            with pytest.raises(AnabranchError) as caught:
                drop()
            assert "'inner'" in caught.value.got
        inner.drop()
    with main.branch("what-if") as again:
        assert again.table("big").count() == 2
        difference = again.diff("big").collect()
        assert [(row.k, row.v, row._in) for row in difference] == [("b", 7, "branch")]
        s.append([{"k": "c", "v": 9, "ts": at(3)}])
        main.advance()
        assert sorted((row.k, row._in) for row in again.diff("big").collect()) == [("b", "branch"), ("c", "main")]
    with ab.connect(main.warehouse, branch="WHAT-IF") as other:
        assert other.table("big").count() == 2
    main.drop_branch("what-if")
    assert main.branches() == []
    with pytest.raises(AnabranchError) as caught:
        ab.connect(main.warehouse, branch="what-if")
    assert caught.value.id == "UNKNOWN_BRANCH"
    for what in (main.drop, lambda: main.diff("big")):
        with pytest.raises(AnabranchError) as caught:
            what()
        assert caught.value.id == "BAD_ARGUMENT"


def test_branches_in_sql(main: ab.Engine) -> None:
    main.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts")
    main.sql("CREATE BRANCH b EXPIRES '2 days'; CREATE BRANCH IF NOT EXISTS b; CREATE BRANCH `what-if`")
    shown = main.sql("SHOW BRANCHES")
    assert shown is not None
    assert [(row.name, row.parent, row.expires != "") for row in shown.collect()] == [
        ("b", "", True),
        ("what-if", "", False),
    ]
    with main.branch("b") as branch:
        branch.sql("CREATE STREAM only_here (k STRING, ts TIMESTAMP) EVENT TIME ts")
        branch.stream("only_here").append([{"k": "x", "ts": at(1)}])
        assert branch.sql("SELECT * FROM only_here").count() == 1
        with pytest.raises(AnabranchError) as caught:
            main.sql("SELECT * FROM only_here")
        assert caught.value.id == "UNKNOWN_STREAM"
        branch.stream("s").append([{"k": "x", "v": 1, "ts": at(1)}])
        assert branch.sql("SELECT * FROM s").count() == 1
        assert main.sql("SELECT * FROM s").count() == 0
    main.sql("DROP BRANCH b; DROP BRANCH IF EXISTS b; DROP BRANCH `what-if`")
    assert main.branches() == []
    for text in ("CREATE BRANCH b EXPIRE '1 day'", "CREATE BRANCH main", "DROP BRANCH b"):
        with pytest.raises(AnabranchError):
            main.sql(text)


def test_an_engine_that_closes_takes_its_branches_along(warm_spark: Any, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "w") as main:
        main.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts")
        branch = main.branch()
        assert branch.spark is main.spark
    with pytest.raises(AnabranchError) as caught:
        branch.streams()
    assert caught.value.id == "ENGINE_CLOSED"
    assert list((tmp_path / "w" / "branches").iterdir()) == []


def test_a_branch_that_follows_emits_what_main_emitted(main: ab.Engine) -> None:
    main.sql(";".join(BOXES.split(";")[i] for i in (0, 1, 2, 3, 5)))
    feed(main, 0.1, 0.5, 1.2)
    emitted = ("_bucket", "_change_type", "_ordinal", "_stime", "k")
    with main.branch("b") as branch:
        assert branch.follow().runs == 0
        feed(main, 1.5, 2.2)
        feed(main, 0.3, 3.5)
        main.stream("s").append([{"k": "z", "v": 1, "ts": at(4)}])  # in no bucket yet
        found = branch.follow()
        assert (found.streams, found.runs, found.buckets) == (2, 5, 2)
        assert branch.table("s").count() == main.table("s").count()
        assert branch.table("counts").count() < main.table("counts").count(), "it has not advanced"
        for engine in (branch, main):
            assert engine.advance().buckets == (3 if engine is branch else 1)
        assert tables(branch) == tables(main)
        for name in ("counts", "big", "totals"):
            theirs = main.changes(name).select(*emitted).collect()
            assert branch.changes(name).select(*emitted).collect()[: len(theirs)] == theirs
        with pytest.raises(AnabranchError) as caught:
            branch.follow()
        assert caught.value.id == "BRANCH_DIVERGED", "the last bucket was its own"
        assert "buckets of its own" in caught.value.got
    with main.branch() as branch:
        branch.stream("s").append([{"k": "q", "v": 1, "ts": at(4)}])
        with pytest.raises(AnabranchError) as caught:
            branch.follow()
        assert "rows of its own" in caught.value.got
        assert [row.k for row in branch.diff("s").collect()] == ["q"]


@pytest.mark.usefixtures("no_upkeep")
def test_a_branch_follows_a_main_that_was_compacted(main: ab.Engine) -> None:
    main.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts")
    main.sql("CREATE STREAM counts AS SELECT k, count(*) AS c FROM s <SLICES '1 minute'> GROUP BY k")
    s = main.stream("s")
    for minute in range(12):
        s.append([{"k": "a", "v": minute, "ts": at(minute)}])
        main.advance()
        if minute == 4:
            branch = main.branch("b")
    assert s.compact().segments_written
    main.collect_garbage("0 seconds")
    with branch:
        assert branch.follow().buckets == 7
        branch.advance()
        assert tables(branch) == tables(main)
        assert branch.table("counts").count() == 11


def command(*words: str, fails: bool = False) -> str:
    result = CliRunner().invoke(cli.anabranch, words)
    if fails:
        assert isinstance(result.exception, AnabranchError), result.output
        return result.exception.id
    assert result.exit_code == 0, result.output
    return result.output


def test_branches_on_the_command_line(warm_spark: Any, tmp_path: Path) -> None:
    where = ("-w", str(tmp_path / "w"))
    command("sql", "CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts", *where)
    assert "No branches" in command("branch", "list", *where)
    assert "was created" in command("branch", "create", "b", "--expires", "1 hour", *where)
    made = json.loads(command("branch", "create", "inner", "--branch", "b", "--json", *where))
    assert (made["name"], made["parent"], made["expires"]) == ("inner", "b", None)
    assert [b["name"] for b in json.loads(command("branch", "list", "--json", *where))] == ["b", "inner"]
    command("sql", "CREATE STREAM only (k STRING, ts TIMESTAMP) EVENT TIME ts", "--branch", "b", *where)
    with ab.connect(tmp_path / "w", branch="b") as branch:
        branch.stream("only").append([{"k": "x", "ts": at(1)}])
    for words in (("streams",), ("log", "only"), ("tail", "only", "--once"), ("sql", "SELECT * FROM only")):
        assert len(json.loads(command(*words, "--branch", "b", "--json", *where).splitlines()[-1] if words[0] == "tail"
                   else command(*words, "--branch", "b", "--json", *where))) >= 1  # fmt: skip
    (tmp_path / "app.sql").write_text("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts;"
                                      "CREATE STREAM kept AS SELECT k, ts FROM s")  # fmt: skip
    command("run", str(tmp_path / "app.sql"), "--once", "--branch", "b", *where)
    names = [
        [s["name"] for s in json.loads(command("streams", "--json", *where, *on))] for on in ((), ("--branch", "b"))
    ]
    assert names == [["s"], ["kept", "only", "s"]]
    assert command("branch", "drop", "b", *where, fails=True) == "BRANCH_IN_USE"
    assert command("streams", "--branch", "c", *where, fails=True) == "UNKNOWN_BRANCH"
    assert "was dropped" in command("branch", "drop", "inner", *where)
    assert json.loads(command("branch", "drop", "b", "--json", *where))["name"] == "b"
    assert list((tmp_path / "w" / "branches").iterdir()) == []
