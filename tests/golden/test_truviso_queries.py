"""TRUVISO, Figures 3 to 12: late rows counted, rewrites, and what is legal over partials."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.engine.live import Live, LiveQuery
from anabranch.model.progress import Progress

MINUTE = timedelta(minutes=1)
ZERO = datetime(2026, 1, 1, tzinfo=UTC)

# Fig. 3: data in the order of arrival, and the control tuples between them.
ARRIVALS = [1, 3, 2, 4, 2, 1, "5", 6, 2, 9, 7, 3, "10", 12, 8, 4, 3, 9, "15"]
DATA = [a for a in ARRIVALS if isinstance(a, int)]
# Fig. 4: the partitions in which the figure processes them, each with its own windows.
FIGURE_RUNS = ((1, 3, 2, 4, 2, 1), (6, 9, 7), (2, 3), (12,), (8, 9), (4, 3))

IMPSNS = "CREATE STREAM impsns (user INT, campaign INT, price INT, ts TIMESTAMP) EVENT TIME ts"
COUNT = """CREATE STREAM impsn_count AS (
    SELECT campaign, count(*) c, cq_close(*) t FROM impsns <SLICES '1 minute'> GROUP BY campaign
) ARCHIVE INTO impsn_count_ar"""


def at(minute: float) -> datetime:
    return ZERO + minute * MINUTE


def counted(engine: ab.Engine, name: str) -> list[tuple[int, float]]:
    """(count, close) pairs, closes in minutes."""
    rows = engine.table(name).orderBy("t").collect()
    return [(row.c, (row.t.replace(tzinfo=UTC) - ZERO) / MINUTE) for row in rows]


def five_and_fifteen(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM five AS SELECT count(*) AS c, cq_close(*) AS t FROM s <SLICES '5 minutes'>")
    engine.sql("CREATE STREAM fifteen AS SELECT sum(c) AS c, cq_close(*) AS t FROM five <SLICES '15 minutes'>")
    return engine.stream("s")


def rows_of(minutes: Sequence[float]) -> list[dict[str, Any]]:
    return [{"ts": at(minute)} for minute in minutes]


def test_figure_3_in_order_processing_would_drop_six_of_sixteen() -> None:
    progress, kept, counts, dropped = Progress(), 0, [], 0
    for arrival in ARRIVALS:
        if isinstance(arrival, str):
            progress.advance({}, {None: int(arrival)})
            counts.append((kept, int(arrival)))
            kept = 0
        elif progress.is_late(arrival):
            dropped += 1
        else:
            kept += 1
    assert counts == [(6, 5), (3, 10), (1, 15)]
    assert (dropped, len(DATA)) == (6, 16)
    assert sum(count for count, _ in counts) == 10, "what the 15-minute roll-up would say"


def test_figure_4_every_row_is_counted_as_it_arrives(engine: ab.Engine) -> None:
    """The figure's own story: windows close by control tuples, late rows revise them, the roll-up says 16."""
    stream = five_and_fifteen(engine)
    for arrival in ARRIVALS:
        if isinstance(arrival, str):
            stream.punctuate(at(int(arrival)))
        else:
            stream.append(rows_of([arrival]))
        if arrival in ("5", "10", "15"):
            engine.advance()
    assert counted(engine, "five") == [(10, 5), (5, 10), (1, 15)]
    assert counted(engine, "fifteen") == [(16, 15)]
    said = [(row._change_type, row.c) for row in engine.changes("five").collect()]
    assert said[:4] == [("insert", 6), ("update_preimage", 6), ("update_postimage", 8), ("insert", 3)]
    assert [row.c for row in engine.changes("fifteen").collect()] == [16], (
        "it waits for its window, and is right at once"
    )


def test_figure_4_the_figures_own_partials(engine: ab.Engine) -> None:
    """Partials (6,5) (3,10) (2,5) (1,15) (2,10) (2,5), in the figure's cut into runs."""
    stream = five_and_fifteen(engine)
    for run in FIGURE_RUNS:
        stream.append(rows_of(run))
        engine.advance()
    stream.punctuate(at(15))
    engine.advance()
    live = Live(engine._log)
    (store,) = [s for s in live.stores.values() if isinstance(s.box, Partials)]
    kept = engine._log.stream_by_id(store.stored.stream_id)
    paths = [str(engine.warehouse / s.segment.path) for s in engine._log.plan_panes(kept, ((-(1 << 62), 1 << 62),))]
    rows = engine.spark.read.parquet(*paths).orderBy("_bucket").collect()
    partials = [(row._n, (row._pane.replace(tzinfo=UTC) - ZERO) / MINUTE + 5) for row in rows]
    assert partials == [(6, 5), (3, 10), (2, 5), (1, 15), (2, 10), (2, 5)]
    assert counted(engine, "five") == [(10, 5), (5, 10), (1, 15)]
    assert counted(engine, "fifteen") == [(16, 15)]


CUTS = range(6)


def cut_figure_4(seed: int) -> list[tuple[list[int], int | None]]:
    """The figure's rows in another order and cut, each part a bucket, with the control tuples 5 and 10 among them."""
    chance = np.random.default_rng(seed)
    rows = chance.permutation(DATA).tolist()
    ends = sorted(chance.choice(range(1, len(rows)), size=4, replace=False).tolist())
    parts = [rows[a:b] for a, b in itertools.pairwise([0, *ends, len(rows)])]
    five, ten = sorted(chance.choice(len(parts) - 1, size=2, replace=False).tolist())
    return [(part, {five: 5, ten: 10}.get(n)) for n, part in enumerate(parts)]


def late_in_another_bucket(parts: list[tuple[list[int], int | None]]) -> int:
    """How many rows come in a bucket after the one in which their window was closed."""
    closed, late = 0, 0
    for rows, control in parts:
        late += sum(row < closed for row in rows)
        closed = max(closed, control or 0)
    return late


def test_the_cuts_of_figure_4_have_late_rows_in_other_buckets() -> None:
    assert all(late_in_another_bucket(cut_figure_4(seed)) >= 3 for seed in CUTS)


@pytest.mark.parametrize("seed", CUTS)
def test_figure_4_any_other_cut_and_order(engine: ab.Engine, seed: int) -> None:
    stream = five_and_fifteen(engine)
    for rows, control in cut_figure_4(seed):
        stream.append(rows_of(rows))
        if control is not None:
            stream.punctuate(at(control))
        engine.advance()
    stream.punctuate(at(15))
    engine.advance()
    assert counted(engine, "five") == [(10, 5), (5, 10), (1, 15)]
    assert counted(engine, "fifteen") == [(16, 15)]
    corrected = engine.changes("five").where("_change_type = 'update_postimage'").count()
    assert corrected, "what was answered before all rows were there is corrected"


@pytest.fixture
def impsns(engine: ab.Engine) -> ab.Stream:
    engine.sql(IMPSNS)
    engine.sql(COUNT)
    return engine.stream("impsns")


def plan(engine: ab.Engine, name: str) -> LiveQuery:
    return Live(engine._log).queries[name]


def boxes(query: LiveQuery, kind: type) -> list[Any]:
    return [box for box in query.plan.walk() if isinstance(box, kind)]


def fill(stream: ab.Stream) -> None:
    rows = [(u, u % 3, 10 * u, at(u / 10)) for u in range(60)]
    stream.append(rows[40:] + rows[:10])
    stream.append(rows[10:40])
    stream.punctuate(at(30))


def test_figures_5_to_7_count_becomes_partials_and_a_consolidating_view(engine: ab.Engine, impsns: ab.Stream) -> None:
    query = plan(engine, "impsn_count")
    (partials,), (consolidated,) = boxes(query, Partials), boxes(query, Consolidate)
    assert [str(key.expression) for key in partials.keys] == ["campaign"]
    assert [str(call) for call in partials.calls] == ["count(*)"]
    assert partials.pane == 60_000_000
    assert consolidated.window.size == 60_000_000
    fill(impsns)
    engine.advance()
    expected = [(c, 3 if c else 4) for c in range(3)]
    first = engine.table("impsn_count").where("t = '2026-01-01 00:01:00'").orderBy("campaign").collect()
    assert [(row.campaign, row.c) for row in first] == [(c, len(range(c, 10, 3))) for c, _ in expected]
    archive = engine.sql("SELECT campaign, c, t FROM impsn_count_ar ORDER BY t, campaign")
    view = engine.table("impsn_count").orderBy("t", "campaign")
    assert archive.collect() == view.collect(), "the archive is the same view under its own name"


def test_figure_8_a_sum_over_counts_reads_the_partials_below(engine: ab.Engine, impsns: ab.Stream) -> None:
    engine.sql("CREATE STREAM impsn_sum AS (SELECT sum(c) s, cq_close(*) t FROM impsn_count <SLICES '1 min'>)")
    query = plan(engine, "impsn_sum")
    assert boxes(query, Aggregate) == [], "no gather point"
    assert boxes(query, Partials) == boxes(plan(engine, "impsn_count"), Partials)
    assert len(Live(engine._log).stores) == 1, "the partials are shared"
    fill(impsns)
    engine.advance()
    assert [row.s for row in engine.table("impsn_sum").orderBy("t").collect()] == [10] * 6


def test_figure_9_max_over_count_and_having_gather(engine: ab.Engine, impsns: ab.Stream) -> None:
    engine.sql("CREATE STREAM impsn_max AS (SELECT max(c) m, cq_close(*) t FROM impsn_count <SLICES '1 min'>)")
    engine.sql("""CREATE STREAM impsn_thresh AS (SELECT campaign, sum(c) c, cq_close(*) t
        FROM impsn_count <SLICES '5 min'> GROUP BY campaign HAVING sum(c) > 16)""")
    assert len(boxes(plan(engine, "impsn_max"), Aggregate)) == 1, "max over count gathers"
    having, consolidated = (boxes(plan(engine, "impsn_thresh"), kind) for kind in (Filter, Consolidate))
    assert consolidated, "sum over count reads partials"
    assert all(box in list(having[0].walk()) for box in consolidated), "HAVING is decided above the gather point"
    assert len(having) == 1
    rows = [(u, u % 3, 10 * u, at(u / 10)) for u in range(60)]
    for part in (rows[::2], rows[1::2]):  # every minute's rows in both runs, and each run in a bucket of its own
        impsns.append(part)
        engine.advance()
    impsns.punctuate(at(30))
    engine.advance()
    apart = [[sum(u // 10 == minute and u % 3 == c for u, *_ in part) for c in range(3)]
             for part in (rows[::2], rows[1::2]) for minute in range(6)]  # fmt: skip
    assert max(max(counts) for counts in apart) < 4, "a max over partial counts would be another one"
    assert [row.m for row in engine.table("impsn_max").orderBy("t").collect()] == [4] * 6
    counts = {c: len(range(c, 50, 3)) for c in range(3)}
    rows = engine.table("impsn_thresh").where("t = '2026-01-01 00:05:00'").collect()
    assert {row.campaign: row.c for row in rows} == {c: n for c, n in counts.items() if n > 16}


def test_figure_9_having_is_decided_on_consolidated_results(engine: ab.Engine) -> None:
    """Partial counts below the threshold that together exceed it."""
    engine.sql("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM many AS SELECT count(*) c, cq_close(*) t FROM s <SLICES '5 min'> HAVING count(*) > 50")
    stream = engine.stream("s")
    for _ in range(3):
        stream.append(rows_of([1] * 20))
        engine.advance()
    stream.punctuate(at(5))
    engine.advance()
    assert counted(engine, "many") == [(60, 5)]


def test_figure_10_a_roll_up_of_counts_reduces_kept_partials(engine: ab.Engine, impsns: ab.Stream) -> None:
    engine.sql("""CREATE STREAM impsn_count_5min AS (SELECT campaign, count(*) c, cq_close(*) t
        FROM impsns <SLICES '5 min'> GROUP BY campaign)""")
    query = plan(engine, "impsn_count_5min")
    assert boxes(query, Partials) == boxes(plan(engine, "impsn_count"), Partials)
    fill(impsns)
    engine.advance()
    assert {row.campaign: row.c for row in engine.table("impsn_count_5min").where("minute(t) = 5").collect()} == {
        c: len(range(c, 50, 3)) for c in range(3)
    }


def test_figures_11_and_12_a_roll_up_of_averages_keeps_sums_and_counts(engine: ab.Engine) -> None:
    engine.sql(IMPSNS)
    for name, size in (("impsn_avg", "1 min"), ("impsn_avg_5min", "5 min")):
        engine.sql(f"""CREATE STREAM {name} AS (SELECT campaign, avg(price) p, cq_close(*) t
            FROM impsns <SLICES '{size}'> GROUP BY campaign)""")
    (store,) = Live(engine._log).stores.values()
    columns = engine._log.stream_by_id(store.stored.stream_id).spec.schema.names
    assert sum(name.startswith("_m") for name in columns) == 2, "a partial average is a pair <sum, count>"
    fill(engine.stream("impsns"))
    engine.advance()
    rows = engine.table("impsn_avg_5min").where("minute(t) = 5").collect()
    prices = {c: [10 * u for u in range(50) if u % 3 == c] for c in range(3)}
    assert {row.campaign: row.p for row in rows} == {c: sum(p) / len(p) for c, p in prices.items()}
    minutes = engine.table("impsn_avg").where("t <= '2026-01-01 00:05:00'").collect()
    assert len({row.p for row in minutes}) > 3, "an average of averages would be another number"
