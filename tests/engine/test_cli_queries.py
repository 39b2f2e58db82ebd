"""Continuous queries from the command line: statements, an application that follows a directory, its changes."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import anabranch as ab
from anabranch.cli import main as cli
from anabranch.cli.changes import lines, paired
from anabranch.cli.follow import LINE_US, Directory
from anabranch.cli.run import _Runner
from anabranch.cli.show import console
from anabranch.cli.tail import Feed
from anabranch.cli.values import value_json, value_text
from anabranch.engine.advance import Advanced
from anabranch.log.log import Log
from anabranch.model.errors import AnabranchError

APPLICATION = """-- what people see
CREATE STREAM impsns (campaign INT, ts TIMESTAMP) EVENT TIME ts SLACK '1 second' DRIFT '1 minute';
CREATE STREAM counts AS
    SELECT campaign, count(*) AS n, cq_close(*) AS t FROM impsns <SLICES '1 minute'> GROUP BY campaign;
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.anabranch, words)


def refused(*words: str) -> AnabranchError:
    error = run(*words).exception
    assert isinstance(error, AnabranchError), error
    return error


def good(*words: str) -> str:
    result = run(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An application in the current directory, with a directory to follow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANABRANCH_WAREHOUSE", raising=False)
    (tmp_path / "in" / "web-1").mkdir(parents=True)
    (tmp_path / "app.sql").write_text(APPLICATION)
    return tmp_path


def write(path: Path, minute: int, rows: int, campaign: int = 1) -> None:
    """A file of rows within one minute."""
    times = (f"2026-01-01T12:{minute:02d}:{second:02d}Z" for second in range(rows))
    path.write_text("".join(json.dumps({"campaign": campaign, "ts": ts}) + "\n" for ts in times))


@pytest.mark.parametrize("command", ["sql", "run", "tail"])
def test_help(command: str) -> None:
    assert "Usage: " in good(command, "--help")


def test_statements_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(engine: ab.Engine) -> None:
        raise AssertionError("Spark is not needed for this")

    monkeypatch.setattr("anabranch.engine.session.Session.spark", property(no_spark))
    place = str(tmp_path / "w")
    assert refused("sql", "SELECT 1", "-w", place).id == "WAREHOUSE_MISSING"
    create = "CREATE STREAM a (k INT, ts TIMESTAMP) EVENT TIME ts"
    assert good("sql", create, "-w", place) == "Stream a was created.\n"
    assert good("sql", create.replace("STREAM", "STREAM IF NOT EXISTS"), "-w", place) == "Stream a is there already.\n"
    assert good("sql", f"DROP STREAM a; {create}; DROP STREAM IF EXISTS b", "-w", place).splitlines() == [
        "Stream a was dropped.",
        "Stream a was created.",
        "There is no stream b.",
    ]
    assert good("sql", "DROP STREAM a", "-w", place, "--json") == "[]\n"
    assert run("sql", "-w", place).exit_code == 2
    assert run("sql", "SELECT 1", "-f", "app.sql", "-w", place).exit_code == 2


def test_mistakes_show_where(app: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (app / "bad.sql").write_text("DROP STREAM IF EXISTS x;\n  CREATE STREM y (k INT);")
    monkeypatch.setattr("sys.argv", ["anabranch", "sql", "-f", "bad.sql"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[:4] == [
        "error SYNTAX",
        "  where bad.sql, line 2, column 10:",
        "    CREATE STREM y (k INT)",
        "           ^^^^^",
    ]
    assert refused("sql", "-f", "nothing.sql").id == "FILE_UNREADABLE"


def test_an_application_follows_a_directory(app: Path, warm_spark: Any) -> None:
    files = app / "in"
    write(files / "web-1" / "a.jsonl", 0, 20)
    write(files / "b.json", 1, 10, campaign=2)
    (files / "c.csv").write_text("campaign,ts\n2,2026-01-01T12:03:30Z\n")
    (files / "broken.csv").write_text("campaign,ts\nx,nonsense\n")
    (files / "d.csv.tmp").write_text("not yet")
    (files / "half.csv").write_text("campaign,ts\n2,2026-01-01T12:03")
    first = run("run", "app.sql", "--follow", "in", "--once")
    assert first.exit_code == 1, "a script can tell that something was left out"
    assert "Stream counts was created." in first.stdout
    assert "skipped broken.csv: FILE_UNREADABLE" in first.stderr
    assert "waits half.csv: its last line has no end." in first.stderr
    assert "3 files, 31 rows, 2 changes; 2 files skipped." in first.stdout
    (files / "half.csv").unlink()

    write(files / "web-1" / "late.jsonl", 0, 5)
    (files / "broken.csv").write_text("campaign,ts\n1,2026-01-01T12:03:31Z\n")
    os.utime(files / "c.csv")  # the same as it was
    second = good("run", "app.sql", "--follow", "in", "--once")
    assert "Stream counts is there already." in second
    assert "In all 2 files, 6 rows, 2 changes." in second
    assert "In all 0 files, 0 rows, 0 changes." in good("run", "app.sql", "--follow", "in", "--once")
    with Log("warehouse", create=False) as log:
        sources = [header.source for header in log.headers(log.stream("impsns"))]
    assert sorted(sources, key=str) == [None, None, None, "web-1", "web-1"]

    _ask_and_tail()
    _refusals(app)


def _ask_and_tail() -> None:
    assert json.loads(good("sql", "SELECT n, t FROM counts ORDER BY t", "--json")) == [
        {"n": 25, "t": "2026-01-01 12:01:00Z"},
        {"n": 10, "t": "2026-01-01 12:02:00Z"},
    ]
    cut = good("sql", "-n", "2", "SELECT id, 'a\nb' AS s FROM range(5); EXPLAIN counts")
    assert [line.rstrip() for line in cut.splitlines()[:5]] == [
        "5 rows", "id  s", " 0  a\\nb", " 1  a\\nb", "3 more not shown; --rows shows more, --json all."
    ]  # fmt: skip
    assert "Source impsns" in cut
    assert refused("sql", "SELECT 1 / (id - 1) AS x FROM range(9)").id == "BAD_EXPRESSION"
    assert refused("sql", "SELECT 1 AS a, 2 AS a", "--json").got == "a more than once"

    shown = [line for line in good("tail", "counts", "--once").splitlines() if not line.startswith("position")]
    assert shown == [
        "+  insert  campaign=1  n=20  t=2026-01-01 12:01:00Z",
        "+  insert  campaign=2  n=10  t=2026-01-01 12:02:00Z",
        "~  update  campaign=1  n was 20 -> now 25  t=2026-01-01 12:01:00Z",
    ]
    feed = [json.loads(line) for line in good("tail", "counts", "--once", "--from", "-1", "--json").splitlines()]
    assert [(row["_change_type"], row["n"]) for row in feed] == [("update_preimage", 20), ("update_postimage", 25)]
    assert run("tail", "counts", "--once", "--from", "0").exit_code == 2
    assert refused("tail", "nothing", "--once").id == "UNKNOWN_STREAM"


def _refusals(app: Path) -> None:
    (app / "other.sql").write_text(APPLICATION.replace("count(*)", "count(campaign)"))
    assert refused("run", "other.sql", "--once").id == "STREAM_EXISTS"
    (app / "other.sql").write_text(APPLICATION.replace("INT", "BIGINT"))
    assert "line 2, column 15" in refused("run", "other.sql", "--once").place
    (app / "other.sql").write_text("SELECT 1")
    assert refused("run", "other.sql", "--once").id == "NOT_SUPPORTED"
    (app / "same.sql").write_text(APPLICATION.replace("count(*) AS n", "COUNT(*)  as  n -- all of them\n"))
    assert "is there already" in good("run", "same.sql", "--once")
    assert refused("run", "app.sql", "--once", "--follow", "nowhere").id == "BAD_ARGUMENT"
    assert refused("run", "app.sql", "--once", "--follow", "in", "--into", "counts").id == "NOT_SUPPORTED"
    (app / "two.sql").write_text("CREATE STREAM a (ts TIMESTAMP) EVENT TIME ts; CREATE STREAM b (ts TIMESTAMP CQTIME)")
    assert refused("run", "two.sql", "--once", "--follow", "in").got == "a, b"


def test_what_fails_leaves_no_streams_behind(app: Path, warm_spark: Any) -> None:
    two = "CREATE STREAM a (k INT, ts TIMESTAMP) EVENT TIME ts; CREATE STREAM b (k INT, ts TIMESTAMP) EVENT TIME ts;"
    (app / "two.sql").write_text(two)
    (app / "bad.sql").write_text(f"{two} CREATE STREAM q AS SELECT k FROM a; CREATE STREAM r AS SELECT nobody FROM b")
    assert refused("run", "bad.sql", "--once").id == "BAD_EXPRESSION"
    for wrong in (["in"], ["in", "--into", "nobody"], ["nowhere", "--into", "a"], ["in", "--into", "a", "--into", "b"]):
        refused("run", "two.sql", "--once", "--follow", *wrong)
        with Log("warehouse", create=False) as log:
            assert log.streams() == [], wrong


def test_several_directories_go_into_several_streams(app: Path, warm_spark: Any) -> None:
    create = "CREATE STREAM {} (campaign INT, ts TIMESTAMP) EVENT TIME ts;"
    (app / "two.sql").write_text(create.format("a") + create.format("b"))
    (app / "other").mkdir()
    write(app / "in" / "x.jsonl", 0, 3)
    write(app / "other" / "x.jsonl", 1, 4)
    words = ["run", "two.sql", "--once", "--follow", "in", "--into", "a", "--follow", "other", "--into", "b"]
    assert "In all 2 files, 7 rows" in good(*words)
    with Log("warehouse", create=False) as log:
        assert {stream.name: stream.rows for stream in log.streams()} == {"a": 3, "b": 4}
    error = refused(*words, "--follow", "in")
    assert (error.id, error.got) == ("BAD_ARGUMENT", "3 --follow and 2 --into")


def test_ctrl_c_ends_a_follower_and_a_tail(app: Path, warm_spark: Any) -> None:
    write(app / "in" / "web-1" / "a.jsonl", 0, 20)

    def second_file() -> None:
        wait_for(lambda: runs_of("counts") == 1)
        write(app / "in" / "web-1" / ".b.jsonl", 2, 10)
        (app / "in" / "web-1" / ".b.jsonl").rename(app / "in" / "web-1" / "b.jsonl")
        wait_for(lambda: runs_of("counts") == 2)
        os.kill(os.getpid(), signal.SIGINT)

    said = beside(second_file, lambda: good("run", "app.sql", "--follow", "in", "--interval", "50 ms"))
    assert "In all 2 files, 30 rows, 1 change." in said

    def interrupt() -> None:
        wait_for(lambda: "until_interrupted" in getattr(signal.getsignal(signal.SIGINT), "__qualname__", ""))
        os.kill(os.getpid(), signal.SIGINT)

    shown = beside(interrupt, lambda: good("tail", "counts")).splitlines()
    assert "+  insert  campaign=1  n=20  t=2026-01-01 12:01:00Z" in shown


def test_a_feed_gives_every_change_once(engine: ab.Engine) -> None:
    engine.sql(APPLICATION)
    impsns = engine.stream("impsns")
    with Log(engine.warehouse, create=False) as log:
        feed = Feed(engine, log, "counts", -10)
        assert feed.news() == []
        impsns.append([{"campaign": 1, "ts": f"2026-01-01T12:0{minute}:00Z"} for minute in (0, 0, 2)])
        engine.advance()
        assert [row["n"] for row in feed.news()] == [2]
        assert feed.news() == []
        with impsns.unit_of_work(speculative=True) as work:
            work.append([{"campaign": 1, "ts": "2026-01-01T12:00:30Z"}])
            engine.advance()
            (tentative,) = paired(feed.news())
            assert (tentative.word, tentative.tentative, tentative.said["n"]) == ("update", True, 3)
        engine.advance()  # the unit has committed: what was tentative is taken back, and said for good
        undone, stable = paired(feed.news())
        assert (undone.tentative, undone.said["n"]) == (True, 2)
        assert (stable.tentative, stable.said["n"]) == (False, 3)
        assert feed.news() == []
        assert len(Feed(engine, log, "counts", 2).news()) == 2
        assert Feed(engine, log, "counts", 3).news() == []


def runs_of(name: str) -> int:
    try:
        with Log("warehouse", create=False) as log:
            return log.stream(name).runs
    except AnabranchError:
        return 0


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        threading.Event().wait(0.1)
    os.kill(os.getpid(), signal.SIGINT)  # let the command end, and its assertions say what is missing


def beside(other: Callable[[], None], command: Callable[[], str]) -> str:
    thread = threading.Thread(target=other)
    thread.start()
    try:
        return command()
    finally:
        thread.join()


def test_files_wait_until_they_are_quiet(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    for name in ("new.csv", "_hidden.csv", ".hidden.csv", "x.part", "x.tmp"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "x.csv").write_text("x")
    written = (tmp_path / "new.csv").stat().st_mtime_ns // 1_000
    assert directory.waiting(written, 10) == []
    (file,) = directory.waiting(written, 10)  # as it was at the last look
    assert (file.name, file.source) == ("new.csv", None)
    assert directory.waiting(written + 10, 10) == [file]
    directory.refused(file)
    assert directory.waiting(written + 20, 10) == []
    os.utime(file.path, ns=(0, 5_000))
    (again,) = directory.waiting(written, 10)
    directory.loaded(again, stime=100)
    os.utime(file.path, ns=(0, 200_000))
    assert directory.waiting(written, 10) == []
    assert directory.changed(lambda file: False) == [], "only touched"
    os.utime(file.path, ns=(0, 300_000))
    directory.waiting(written, 10)
    assert [f.name for f in directory.changed(lambda file: True)] == ["new.csv"]
    assert directory.changed(lambda file: True) == [], "each is told once"
    (tmp_path / "half.csv").write_text("x\n1")
    os.utime(tmp_path / "half.csv", ns=(0, written * 1_000))
    assert directory.waiting(written + 20, 10) == []
    assert [f.name for f in directory.unfinished] == ["half.csv"]
    assert [f.name for f in directory.waiting(written + LINE_US, 10)] == ["half.csv"]


def test_changes_are_told_apart_by_colour_too() -> None:
    def row(kind: str, n: int, stability: str = "stable") -> dict[str, Any]:
        return {"k": "a", "n": n, "_change_type": kind, "_stability": stability}

    feed = [
        row("insert", 1), row("update_preimage", 1), row("update_postimage", 2), row("delete", 2),
        row("update_postimage", 3), row("insert", 4, "tentative"), row("update_preimage", 9),
    ]  # fmt: skip
    shown = lines(list(paired(feed)), ("k", "n"))
    assert [line.plain for line in shown] == [
        "+  insert  k=a  n=1",
        "~  update  k=a  n was 1 -> now 2",
        "-  delete  k=a  n=2",
        "~  update  k=a  n=3",
        "+? insert  k=a  n=4",
        "-  delete  k=a  n=9",
    ]
    colours = [{str(span.style) for span in line.spans} for line in shown]
    assert colours[:3] == [{"green"}, {"yellow", "bold yellow"}, {"red"}]
    assert colours[4] == {"green", "dim"}


def test_values_for_scripts_and_people() -> None:
    values = [
        float("nan"), float("-inf"), Decimal("1.50"), datetime(2026, 1, 1, tzinfo=UTC),
        datetime.fromisoformat("2026-01-01"), date(2026, 1, 2), b"\x01", [(1, "a"), (2, None)],
        {"x": [Decimal(1)]}, timedelta(seconds=1),
    ]  # fmt: skip
    assert [value_json(value) for value in values] == [
        "NaN", "-Infinity", "1.50", "2026-01-01 00:00:00Z", "2026-01-01 00:00:00", "2026-01-02", "01",
        {"1": "a", "2": None}, {"x": ["1"]}, "0:00:01",
    ]  # fmt: skip
    assert value_text("[bold]\t\x1b") == "[bold]\\t\\x1b"


def test_a_run_outlives_its_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    class Engine:
        answers = [AnabranchError("CATALOG_UNREACHABLE", place="catalog", need="it", got="none", next_step="Wait.")]

        def advance(self, **_: bool) -> Advanced:
            if self.answers:
                raise self.answers.pop()
            return Advanced(buckets=1)

        def halted(self) -> dict[str, str]:
            return {}

    runner = _Runner(Engine(), None, console(), (), threading.Event())  # type: ignore[arg-type]
    runner.look(0, patient=True)
    assert "tries again CATALOG_UNREACHABLE" in capsys.readouterr().err
    runner.look(0, patient=True)
    assert "tries again" not in capsys.readouterr().err
    Engine.answers = [AnabranchError("FILE_CHANGED", place="x", need="it", got="none", next_step="Mend it.")] * 2
    with pytest.raises(AnabranchError):
        runner.look(0, patient=True)
