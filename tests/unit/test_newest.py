"""The n-th newest row: the catalog knows between which event times it lies, however the log is cut."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.log.log import Log
from anabranch.log.newest import newest_between
from tests.conftest import SECOND, START_US, make_spec, rows_at
from tests.unit.test_mishaps import Compactor


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=5), min_size=1, max_size=8),
    st.integers(1, 12),
    st.booleans(),
)
def test_it_lies_between_what_the_catalog_says(log: Log, runs: list[list[int]], rows: int, compacted: bool) -> None:
    stream = log.create_stream(make_spec(f"s{log.clock()}", history=rows))
    log.clock.pass_seconds(1)  # type: ignore[attr-defined]
    for run in runs:
        with log.unit_of_work(stream) as work:
            work.append(rows_at(*run))
    reached = len(runs) // 2  # by a reader: below that, nobody asks
    if compacted:
        log.hold(stream, "reader", reached)
        Compactor(log, stream).commit()
    for end in range(max(reached, 1) if compacted else 1, len(runs) + 1):
        times = sorted((second for run in runs[:end] for second in run), reverse=True)
        with log.catalog.read() as connection:
            found = newest_between(connection, stream.id, rows, end)
        if len(times) < rows:
            assert found is None
            continue
        assert found is not None
        assert found[0] <= START_US + times[rows - 1] * SECOND <= found[1]
