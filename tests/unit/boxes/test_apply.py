"""Functions of the user's own: values, and rows, of windows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from anabranch.diagram import functions
from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.expression import Expression
from anabranch.diagram.rewrites import WHOLE, rewrite
from anabranch.diagram.rewrites.known import Known
from tests.unit.boxes.tools import box, refused, row, said

HERE = "tests.unit.boxes.test_apply"


def spread(rows: pd.DataFrame) -> Any:
    return rows["v"].max() - rows["v"].min()


def values(rows: pa.Table) -> Any:
    return rows["v"]


def moves(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"v": rows["v"], "move": rows["v"].diff().fillna(0.0)})


def test_a_function_is_an_aggregate_among_others() -> None:
    made = box(f"SELECT k, apply('{HERE}:spread', 'INT', v) AS v FROM s <SLICES '5 seconds'> GROUP BY k")
    assert isinstance(made, Map)
    assert isinstance(made.input, Aggregate)
    texts = ("v", "'v'", f"'{HERE}:spread'", "'INT'")
    assert made.input.calls == (Call("_a0", "apply", tuple(map(Expression, texts))),)
    assert said(made, [row(1, v, v) for v in (0, 3, 4, 7)], 5) == [(1, 4)]
    listed = box(f"SELECT apply('{HERE}:values', 'ARRAY<INT>', v) AS v FROM s <SLICES 2 ROWS>")
    assert said(listed, [row(1, v, 9 - v) for v in (3, 4, 7, 8)]) == [([8, 7],), ([4, 3],)], "in order of event time"


def test_a_function_makes_rows_of_a_window() -> None:
    made = box(f"SELECT v FROM s <SLICES '5 seconds'> GROUP BY k APPLY '{HERE}:moves' RETURNS (v INT, move DOUBLE)")
    assert isinstance(made, Apply)
    assert made.columns == ("v", "move")
    assert said(made, [row(1, v, v) for v in (0, 3, 4)]) == [(0, 0.0), (3, 3.0), (4, 1.0)]
    plan = rewrite(made, Known(), WHOLE).box
    assert isinstance(plan, Map)
    assert isinstance(plan.input, Explode)
    rows = box(f"SELECT v FROM s <SLICES 2 ROWS> GROUP BY k APPLY '{HERE}:moves' RETURNS (v INT, move DOUBLE)")
    assert said(rows, [row(1, v, v) for v in (0, 3, 4)]) == [(0, 0.0), (3, 3.0)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT apply(m, 'INT', v) AS v FROM s", "SELECT apply('a:b', v) AS v FROM s",
        "SELECT apply('a:b', 1, v) AS v FROM s", "SELECT v FROM s APPLY 'a:b' RETURNS (v INT)",
        "SELECT v FROM s <SLICES '1 second'> APPLY 'a:b' RETURNS v INT",
        "SELECT v FROM s <SLICES '1 second'> APPLY 'a:b'",
        "SELECT sum(v) AS v FROM s <SLICES '1 second'> APPLY 'a:b' RETURNS (v INT)",
        "SELECT v FROM s <SLICES '1 second'> APPLY 'a:b' RETURNS (v INT) HAVING v > 1",
    ],
)  # fmt: skip
def test_calls_of_functions_that_are_refused(text: str) -> None:
    assert refused(f"CREATE STREAM q AS {text}").id == "SYNTAX"


@pytest.mark.parametrize("path", ["spread", f"{HERE}:nothing", "no.such.module:f", ":f"])
def test_functions_that_are_not_there(path: str) -> None:
    with pytest.raises(functions.NotFound):
        functions.find(path)


def test_results_of_functions_are_plain_values() -> None:
    table = pa.table({"event_time": [2, 1], "v": [20, 10]})
    assert functions.call(f"{HERE}:values", table) == [10, 20]
    assert functions.as_json(functions.call(f"{HERE}:spread", table)) == '{"v": 10}'
    assert functions.call(f"{HERE}:moves", table) == [{"v": 10, "move": 0.0}, {"v": 20, "move": 10.0}]
