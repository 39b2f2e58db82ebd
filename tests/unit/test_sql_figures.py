"""The statements of TRUVISO's figures 3 and 5 to 11, in the paper's spelling, as far as the engine's own rewrites
do not stand in for them. The paper prints `cptime` and `<lices` in places; the words meant are used here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.query import Query
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery, CreateStream
from anabranch.model.window import Window

MINUTE = 60_000_000

SCRIPT = """
-- Figure 5
create stream impsns(
    user      int,
    campaign  int,
    price     int,
    ts        timestamp cqtime
);
create stream impsn_count as
(select campaign, count(*) c, cq_close(*) t
 from impsns <slices '1 minute'>
 group by campaign)
archive into impsn_count_ar;

-- Figure 3
create stream every_five as
select count(*), cq_close(*) t from impsns <slices '5 minutes'>;

-- Figure 6
create stream i_c_p as
(select campaign, count(*) pc, cq_close(*) t
 from impsns <slices '1 minute'>
 group by campaign) archive into i_c_p_ar;

-- Figure 7, the streaming view
create stream consolidated as
(select campaign, sum(pc) c, cq_close(*) t
 from i_c_p <slices '1 minute'>
 group by campaign);

-- Figure 7, the static view
create stream consolidated_ar as
(select campaign, sum(pc) as c, t
 from i_c_p
 group by campaign, t);

-- Figure 8
create stream impsn_sum as
(select sum(c) s, cq_close(*) t
 from impsn_count <slices '1 min'>);

-- Figure 9
create stream impsn_max as
(select max(c) m, cq_close(*) t
 from impsn_count <slices '1 min'>);

create stream impsn_thresh as
(select campaign, sum(c) c, cq_close(*) t
 from impsn_count <slices '5 min'>
 group by campaign
 having sum(c) > 50);

-- Figure 10
create stream impsn_count_5min as
(select campaign, count(*) c, cq_close(*) t
 from impsns <slices '5 min'>
 group by campaign);

-- Figure 11
create stream impsn_avg as
(select campaign, avg(price)p, cq_close(*) t
 from impsns <slices '1 min'>
 group by campaign);

create stream impsn_avg_5min as
(select campaign, avg(price) p, cq_close(*) t
 from impsns <slices '5 min'>
 group by campaign);
"""


@pytest.fixture
def queries() -> dict[str, Query]:
    """All queries of the script, each compiled over the streams before it."""
    columns: dict[str, tuple[str, ...]] = {}
    found: dict[str, Query] = {}
    look_up: Callable[[str], tuple[str, ...]] = columns.__getitem__
    for statement in parse(SCRIPT):
        if isinstance(statement, CreateStream):
            columns[statement.name] = tuple(name for name, _ in statement.columns)
        elif isinstance(statement, CreateQuery):
            found[statement.name] = compile_query(statement, look_up)
            columns[statement.name] = found[statement.name].box.columns
    return found


def described(query: Query) -> tuple[Window | None, list[str], list[str], tuple[str, ...]]:
    assert isinstance(query.box, Map)
    below = query.box.input
    while isinstance(below, Filter):
        below = below.input
    assert isinstance(below, Aggregate)
    return below.window, [str(k.expression) for k in below.keys], [str(c) for c in below.calls], query.box.columns


ONE, FIVE = Window(MINUTE, MINUTE), Window(5 * MINUTE, 5 * MINUTE)


@pytest.mark.parametrize(
    ("name", "window", "keys", "calls", "columns"),
    [
        ("impsn_count", ONE, ["campaign"], ["count(*)"], ("campaign", "c", "t")),
        ("every_five", FIVE, [], ["count(*)"], ("count(*)", "t")),
        ("i_c_p", ONE, ["campaign"], ["count(*)"], ("campaign", "pc", "t")),
        ("consolidated", ONE, ["campaign"], ["sum(pc)"], ("campaign", "c", "t")),
        ("consolidated_ar", None, ["campaign", "t"], ["sum(pc)"], ("campaign", "c", "t")),
        ("impsn_sum", ONE, [], ["sum(c)"], ("s", "t")),
        ("impsn_max", ONE, [], ["max(c)"], ("m", "t")),
        ("impsn_thresh", FIVE, ["campaign"], ["sum(c)"], ("campaign", "c", "t")),
        ("impsn_count_5min", FIVE, ["campaign"], ["count(*)"], ("campaign", "c", "t")),
        ("impsn_avg", ONE, ["campaign"], ["avg(price)"], ("campaign", "p", "t")),
        ("impsn_avg_5min", FIVE, ["campaign"], ["avg(price)"], ("campaign", "p", "t")),
    ],
)
def test_the_figures_read(
    queries: dict[str, Query],
    name: str,
    window: Window | None,
    keys: list[str],
    calls: list[str],
    columns: tuple[str, ...],
) -> None:
    assert described(queries[name]) == (window, keys, calls, columns)


def test_the_archives_are_named(queries: dict[str, Query]) -> None:
    archives = {name: query.archive for name, query in queries.items() if query.archive}
    assert archives == {"impsn_count": "impsn_count_ar", "i_c_p": "i_c_p_ar"}


def test_the_threshold_is_a_filter_above_the_sum(queries: dict[str, Query]) -> None:
    box = queries["impsn_thresh"].box
    assert isinstance(box, Map)
    assert isinstance(box.input, Filter)
    assert box.input.predicate.text == "_a0 > 50"
