"""A random history of a log, against a model that is a plain list.

Appends, retries, aborts, speculation, punctuation, collection, compaction and reopening, in any order,
by two writers. After each step the log must hold exactly the committed rows, at dense positions,
with the progress that the committed runs define; and the disk must hold no file that nobody needs once
everything has been collected.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.log.rewrite import piece_of, rewrite
from anabranch.log.segments import SegmentLayout
from anabranch.log.units import UnitOfWork
from anabranch.model.progress import Progress
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at

SECONDS = st.lists(st.integers(0, 20_000), min_size=1, max_size=4)
SOURCES = st.sampled_from([None, "a", "b"])
WRITERS = st.integers(0, 1)


class LogHistory(RuleBasedStateMachine):
    @initialize(drift=st.sampled_from([None, "1 hour"]))
    def start(self, drift: str | None) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="anabranch-law-"))
        self.clock = FakeClock()
        self.logs = [Log(self.place, clock=self.clock) for _ in range(2)]
        self.stream = self.logs[0].create_stream(make_spec(slack="10 seconds", drift=drift))
        self.progress = Progress(10 * SECOND, self.stream.spec.drift)
        self.rows: Counter[tuple[int, int]] = Counter()  # (position, second) of every committed row
        self.position = 0
        self.retries: dict[int, int] = {}  # sequence of a foreign run, and how often it was sent
        self.open: list[UnitOfWork] = []
        self.open_rows: dict[int, list[int]] = {}
        self.open_source: dict[int, str | None] = {}
        self.speculative: set[int] = set()

    def committed(self, seconds: list[int], source: str | None) -> None:
        self.position += 1
        self.rows.update((self.position, s) for s in seconds)
        self.progress.advance({source or "": START_US + max(seconds) * SECOND} if seconds else {})

    @rule(seconds=SECONDS, source=SOURCES, writer=WRITERS)
    def append(self, seconds: list[int], source: str | None, writer: int) -> None:
        with self.logs[writer].unit_of_work(self.stream, single=True, source=source) as work:
            work.append(rows_at(*seconds))
        self.committed(seconds, source)

    @rule(sequence=st.integers(1, 4), writer=WRITERS)
    def append_or_retry(self, sequence: int, writer: int) -> None:
        with self.logs[writer].unit_of_work(self.stream, single=True, run_id=("far", sequence)) as work:
            work.append(rows_at(sequence))
            header = work.commit()
        assert header.duplicate == (sequence in self.retries)
        if not header.duplicate:
            self.committed([sequence], None)
        self.retries[sequence] = self.retries.get(sequence, 0) + 1

    @rule(writer=WRITERS, source=SOURCES, speculative=st.booleans())
    @precondition(lambda self: len(self.open) < 3)
    def begin(self, writer: int, source: str | None, speculative: bool) -> None:
        unit = self.logs[writer].unit_of_work(self.stream, source=source, speculative=speculative)
        self.open.append(unit)
        self.open_rows[id(unit)] = []
        self.open_source[id(unit)] = source
        if speculative:
            self.speculative.add(id(unit))

    @rule(seconds=SECONDS, which=st.integers(0, 2))
    @precondition(lambda self: self.open)
    def add(self, seconds: list[int], which: int) -> None:
        unit = self.open[which % len(self.open)]
        unit.append(rows_at(*seconds))
        self.open_rows[id(unit)] += seconds

    @rule(which=st.integers(0, 2), commit=st.booleans())
    @precondition(lambda self: self.open)
    def end(self, which: int, commit: bool) -> None:
        unit = self.open.pop(which % len(self.open))
        self.speculative.discard(id(unit))
        if commit:
            unit.commit()
            self.committed(self.open_rows[id(unit)], self.open_source[id(unit)])
        else:
            unit.abort()

    @rule(second=st.integers(0, 20_000), source=SOURCES)
    def punctuate(self, second: int, source: str | None) -> None:
        self.logs[0].punctuate(self.stream, START_US + second * SECOND, source)
        self.position += 1
        self.progress.advance({}, {source: START_US + second * SECOND})

    @rule(seconds=st.integers(1, 50))
    def time_passes(self, seconds: int) -> None:
        self.clock.pass_seconds(seconds)
        for log in self.logs:
            log.intents.renew()

    @rule(writer=WRITERS)
    def collect(self, writer: int) -> None:
        self.logs[writer].collect_garbage(grace_us=0)

    @rule(writer=WRITERS)
    def compact(self, writer: int) -> None:
        log = self.logs[writer]
        plan = log.plan_compaction(self.stream, least_segments=2)
        if not plan.segments:
            log.commit_compaction(plan, [], None)
            return
        intent = log.intents.begin(self.stream.id)
        directory = log.storage.directory(self.stream.id, intent.id)
        log.storage.make_directory(directory)
        layout = SegmentLayout(str(log.root), directory, "ts", least_rows=2)
        written = [
            s for group in plan.groups for s in rewrite(layout, self.stream.spec.schema, list(map(piece_of, group)))
        ]
        log.commit_compaction(plan, written, intent.id)
        log.intents.forget(intent)

    @rule()
    @precondition(lambda self: not self.open)
    def reopen(self) -> None:
        for log in self.logs:
            log.close()
        self.logs = [Log(self.place, clock=self.clock) for _ in range(2)]

    def read(self, wanted: ReadRange) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        plan = self.logs[0].plan("impsns", wanted)
        for logged in plan.segments:
            table = pq.read_table(self.place / logged.segment.path)
            seconds = [(t - START_US) // SECOND for t in pa.compute.cast(table["ts"], pa.int64()).to_pylist()]
            if logged.compacted:
                positions = table["_position"].to_pylist()
            else:
                positions = [logged.last_position or 0] * table.num_rows
            found.update(zip(positions, seconds, strict=True))
        return found

    @invariant()
    def the_log_holds_what_was_committed(self) -> None:
        assert self.read(ReadRange()) == self.rows
        state = self.logs[0].stream("impsns")
        assert (state.rows, state.last_position) == (sum(self.rows.values()), self.position)
        assert state.progress == self.progress.value

    @invariant()
    def every_position_has_a_header(self) -> None:
        covered = [
            position
            for header in self.logs[1].headers(self.stream)
            for position in range(header.first_position, header.position + 1)
        ]
        assert covered == list(range(1, self.position + 1))

    @invariant()
    def ranges_open_what_they_must(self) -> None:
        low, high = START_US + 5_000 * SECOND, START_US + 9_000 * SECOND
        wanted = {row for row in self.rows if 5_000 <= row[1] < 9_000}
        assert wanted <= set(self.read(ReadRange(from_time=low, to_time=high)))
        middle = range(self.position // 3 + 1, self.position * 2 // 3 + 1)
        if middle:
            found = self.read(ReadRange(first_position=middle[0], last_position=middle[-1]))
            assert {row for row in self.rows if row[0] in middle} <= set(found)

    @invariant()
    def tentative_rows_are_those_of_open_speculations(self) -> None:
        tentative = self.read(ReadRange(tentative=True))
        expected = sum(len(self.open_rows[unit]) for unit in self.speculative)
        assert sum(n for row, n in tentative.items() if row[0] == 0) == expected

    def teardown(self) -> None:
        if not hasattr(self, "place"):
            return
        for unit in self.open:
            unit.abort()
        for log in self.logs:
            log.close()
        with Log(self.place, clock=self.clock) as log:
            log.collect_garbage(grace_us=0)
            kept = {self.place / s.segment.path for s in log.plan("impsns", ReadRange()).segments}
        assert set((self.place / "data").rglob("*.parquet")) == kept
        shutil.rmtree(self.place)


class TestShortHistories(LogHistory.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=25, stateful_step_count=25)


@pytest.mark.proof
class TestLongHistories(LogHistory.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=300, stateful_step_count=50)
