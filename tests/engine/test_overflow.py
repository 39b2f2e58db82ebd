"""Results that are too large for their type: null, set aside, or the end of a query; never their partial results.

What is added up is exact in both kernels, whatever the order, the cuts and the deletions; only the result itself
may be too large, and then what `ON ERROR` says happens to its group alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.engine import exact
from anabranch.log.reduction import plan_reduction
from tests.engine.test_reach_of_steps import ZERO

BIG = Decimal("9" * 36 + ".99")
SMALL = BIG.copy_negate()
MOST = (1 << 63) - 1


@pytest.fixture(params=["spark", "auto"])
def engine(request: pytest.FixtureRequest, warm_spark: Any, tmp_path: Path) -> Iterator[ab.Engine]:
    with ab.connect(tmp_path / "warehouse", kernel=request.param) as opened:
        yield opened


def row(k: str, x: Decimal | None, b: int | None = 1, minute: float = 0.5) -> dict[str, Any]:
    return {"k": k, "x": x, "b": b, "ts": ZERO + timedelta(minutes=minute)}


def gone(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "_change_type": "delete"} for row in rows]


def table(engine: ab.Engine, name: str) -> dict[str, tuple[Any, ...]]:
    return {found[0]: tuple(found)[1:] for found in engine.table(name).collect()}


def replayed(engine: ab.Engine, name: str) -> dict[str, tuple[Any, ...]]:
    """What the changes of a query come to, where each group has one result."""
    kept: dict[str, tuple[Any, ...]] = {}
    for change in engine.changes(name).drop("_stime", "_position", "_bucket", "_ordinal", "_stability").collect():
        *values, kind = tuple(change)
        if kind in ("delete", "update_preimage"):
            assert kept.pop(values[0]) == tuple(values[1:])
        else:
            kept[values[0]] = tuple(values[1:])
    return kept


def test_a_result_that_is_too_large_is_null_or_its_group_is_set_aside(
    engine: ab.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_reduction, "__defaults__", (2,))  # partial results are merged after every step
    engine.sql("CREATE STREAM s (k STRING, x DECIMAL(38, 2), b BIGINT, ts TIMESTAMP) EVENT TIME ts")
    calls = "SELECT k, sum(x) AS t, sum(b) AS w, count(*) AS c FROM s"
    engine.sql(f"CREATE STREAM nulls AS {calls} <SLICES '1 minute'> GROUP BY k ON ERROR NULL")
    engine.sql(f"CREATE STREAM aside AS {calls} <SLICES '1 minute'> GROUP BY k ON ERROR QUARANTINE")
    engine.sql(f"CREATE STREAM running AS {calls} GROUP BY k ON ERROR NULL")
    engine.sql("CREATE STREAM means AS SELECT k, avg(x) AS a FROM s <SLICES '1 minute'> GROUP BY k ON ERROR QUARANTINE")
    engine.sql(f"CREATE STREAM halts AS {calls} <SLICES '1 minute'> GROUP BY k")
    s = engine.stream("s")
    s.append([row("large", BIG), row("whole", Decimal("1.50"), MOST), row("small", Decimal("-0.01"))])
    s.append([row("back", BIG), row("back", BIG)])
    s.punctuate(ZERO + timedelta(minutes=1))
    engine.advance()
    s.append([row("large", BIG), row("whole", Decimal("0.50"), 1), row("back", SMALL)])  # late, so that results change
    engine.advance()
    s.append([row("small", Decimal("0.02"))])
    engine.advance()
    fine = {"small": (Decimal("0.01"), 2, 2), "back": (BIG, 3, 3)}
    nulls = {"large": (None, 2, 2), "whole": (Decimal("2.00"), None, 2)}
    for name in ("nulls", "running"):
        assert table(engine, name) == replayed(engine, name) == {**fine, **nulls}, name
    assert table(engine, "aside") == replayed(engine, "aside") == fine
    reasons = sorted(found._reason for found in engine.stream("aside").quarantined().collect())
    assert reasons == ["fails: sum(b)", "fails: sum(x)", "fails: sum(x)"], "each where it came to be too large"
    means = {"small": (Decimal("0.005"),), "whole": (Decimal("1"),)}
    assert table(engine, "means") == replayed(engine, "means") == means, "an average has six digits after the point"
    assert list(engine.halted()) == ["halts"]
    s.append(gone(row("large", BIG), row("whole", Decimal("0.50"), 1)))
    engine.advance()
    again = {"large": (BIG, 1, 1), "whole": (Decimal("1.50"), MOST, 1)}
    for name in ("nulls", "aside", "running"):
        assert table(engine, name) == replayed(engine, name) == {**fine, **again}, name
    assert engine.retrying() == {}, "no partial result has failed"


def test_windows_of_rows_that_are_too_large(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k STRING, x DECIMAL(38, 2), b BIGINT, ts TIMESTAMP) EVENT TIME ts")
    for name, policy in (("nulls", "NULL"), ("aside", "QUARANTINE")):
        engine.sql(f"CREATE STREAM {name} AS SELECT k, sum(x) AS t FROM s <SLICES 2 ROWS> GROUP BY k ON ERROR {policy}")
    s = engine.stream("s")
    s.append([row("a", BIG, minute=1), row("a", BIG, minute=2), row("b", BIG, minute=1), row("b", SMALL, minute=2)])
    s.append([row("z", BIG, minute=10)])
    engine.advance()
    s.append([row("a", Decimal("1.00"), minute=3), row("a", Decimal("1.00"), minute=4)])
    engine.advance()
    found = sorted(tuple(r) for r in engine.table("aside").collect())
    assert found == [("a", Decimal("2.00")), ("b", Decimal("0.00"))]
    found = sorted((tuple(r) for r in engine.table("nulls").collect()), key=repr)
    assert found == [("a", Decimal("2.00")), ("a", None), ("b", Decimal("0.00"))]
    (failed,) = engine.stream("aside").quarantined().collect()
    assert failed._reason == "fails: sum(x)"


def test_partial_results_of_older_warehouses_go_on(
    warm_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before format 5 the sum of a long decimal was one measure. What was made then is added to as it is."""
    with ab.connect(tmp_path) as engine, monkeypatch.context() as patch:
        patch.setattr(exact, "PLAIN_DIGITS", 38)
        engine.sql("CREATE STREAM s (k STRING, x DECIMAL(38, 2), b BIGINT, ts TIMESTAMP) EVENT TIME ts")
        engine.sql("CREATE STREAM q AS SELECT k, sum(x) AS t FROM s GROUP BY k ON ERROR NULL")
        engine.stream("s").append([row("a", Decimal("1.50")), row("a", Decimal("2.00"))])
        engine.advance()
    with ab.connect(tmp_path) as engine:
        engine.stream("s").append([row("a", Decimal("-0.25")), row("b", BIG)])
        engine.advance()
        assert table(engine, "q") == replayed(engine, "q") == {"a": (Decimal("3.25"),), "b": (BIG,)}


SHAPES = ((38, 0), (38, 2), (33, 20), (38, 28), (38, 33), (38, 38), (29, 29), (28, 4))


def test_sums_of_decimals_are_exact_in_any_order_and_after_deletions(
    engine: ab.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of all is small, those of parts are not: no order of adding may notice."""
    monkeypatch.setattr(plan_reduction, "__defaults__", (2,))
    columns = ", ".join(f"x{n} DECIMAL({p}, {s})" for n, (p, s) in enumerate(SHAPES))
    engine.sql(f"CREATE STREAM s ({columns}, ts TIMESTAMP) EVENT TIME ts")
    sums = ", ".join(f"sum(x{n}) AS t{n}" for n in range(len(SHAPES)))
    engine.sql(f"CREATE STREAM q AS SELECT {sums} FROM s <SLICES '1 hour'>")
    chance = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for at in range(12):
        values = {f"x{n}": drawn(chance, p, s) for n, (p, s) in enumerate(SHAPES)}
        minus = {name: value.copy_negate() for name, value in values.items()}
        rows += [{**v, "ts": ZERO + timedelta(minutes=at)} for v in (values, minus)]
    rows.append({f"x{n}": Decimal(7).scaleb(-s) for n, (_, s) in enumerate(SHAPES)} | {"ts": ZERO})
    rows = [rows[at] for at in chance.permutation(len(rows))]
    s = engine.stream("s")
    for at in range(0, len(rows), 7):
        s.append(rows[at : at + 7])
        engine.advance()
    s.append([{**rows[3], "_change_type": "delete"}, {**rows[3], "_change_type": "insert"}])
    s.punctuate(ZERO + timedelta(hours=1))
    engine.advance()
    (found,) = engine.table("q").collect()
    assert tuple(found) == tuple(Decimal(7).scaleb(-s) for _, s in SHAPES)
    without = rows[5]
    s.append([{**without, "_change_type": "delete"}])
    engine.advance()
    (found,) = engine.table("q").collect()
    with localcontext(Context(prec=80)):
        assert tuple(found) == tuple(Decimal(7).scaleb(-s) - without[f"x{n}"] for n, (_, s) in enumerate(SHAPES))


def drawn(chance: np.random.Generator, precision: int, scale: int) -> Decimal:
    """A number of all its digits, near the largest."""
    digits = "9" + "".join(str(d) for d in chance.integers(0, 10, size=precision - 1))
    found = Decimal(digits).scaleb(-scale, Context(prec=80))
    return found if chance.random() < 0.5 else found.copy_negate()
