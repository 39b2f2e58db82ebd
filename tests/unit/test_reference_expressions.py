"""The reference's expressions against what Spark says of the same text, in ANSI mode and UTC."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from anabranch.diagram.expression import Expression
from anabranch.model.errors import AnabranchError
from anabranch.reference.expressions import ExpressionFailed, compile_expression
from anabranch.reference.values import Timestamp

ROW: dict[str, Any] = {
    "a": 7,
    "b": -3,
    "z": 0,
    "n": None,
    "x": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "price": Decimal("12.50"),
    "s": "River",
    "t": True,
    "f": False,
    "big": (1 << 63) - 1,
    "ts": datetime(2026, 1, 1, 12, tzinfo=UTC),
    "d": date(2026, 1, 1),
    "User": "ann",
}
NOON = 1_767_268_800_000_000


def value(text: str) -> Any:
    row = {**ROW, "ts": Timestamp(NOON)}
    return compile_expression(Expression(text), list(row))(row)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type: 1, 1.0 and TRUE are three different answers."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right and str(left) == str(right)


CASES: dict[str, list[tuple[str, Any]]] = {
    "literals": [
        ("1", 1),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", Decimal(1 << 63)),
        ("1.50", Decimal("1.50")),
        ("1.5D", 1.5),
        ("1e0", 1.0),
        ("-1.5", Decimal("-1.5")),
        ("10L", 10),
        ("1.5BD", Decimal("1.5")),
        ("'it\\'s'", "it's"),
        ("TRUE", True),
        ("NULL", None),
        ("TIMESTAMP '2026-01-01 12:00:00'", Timestamp(NOON)),
        ("TIMESTAMP '2026-01-01T13:00:00.000000+01:00'", Timestamp(NOON)),
        ("DATE '2026-01-01'", date(2026, 1, 1)),
        ("INTERVAL '5' MINUTE", timedelta(minutes=5)),
        ("INTERVAL -5 MINUTES", timedelta(minutes=-5)),
        ("INTERVAL 1 HOUR 30 MINUTES", timedelta(minutes=90)),
    ],
    "columns": [
        ("A", 7),
        ("impsns.a", 7),
        ("`a`", 7),
        ("user", "ann"),
        ("t.USER", "ann"),
    ],
    "arithmetic": [
        ("a + b", 4),
        ("a - b * 2", 13),
        ("(a - b) * 2", 20),
        ("a / 2", 3.5),
        ("a DIV 2", 3),
        ("b DIV 2", -1),
        ("b % 2", -1),
        ("a % b", 1),
        ("pmod(b, 2)", 1),
        ("pmod(-7, -3)", -1),
        ("mod(b, 2)", -1),
        ("-b", 3),
        ("a + n", None),
        ("n / 0", None),
        ("a + x", 9.5),
        ("a + 0.25", Decimal("7.25")),
        ("price * 2", Decimal("25.00")),
        ("price * 1.5", Decimal("18.750")),
        ("price / 2", Decimal("6.250000")),
        ("1.0 / 3", Decimal("0.333333")),
        ("price + x", 15.0),
        ("price % 5", Decimal("2.50")),
        ("inf - inf", math.nan),
        ("inf % 2", math.nan),
        ("x % 2", 0.5),
        ("ts + INTERVAL '1' HOUR", Timestamp(NOON + 3_600_000_000)),
        ("INTERVAL '1' SECOND + ts", Timestamp(NOON + 1_000_000)),
        ("ts - INTERVAL '1' HOUR", Timestamp(NOON - 3_600_000_000)),
        ("ts - TIMESTAMP '2026-01-01 11:00:00'", timedelta(hours=1)),
    ],
    "comparisons": [
        ("a > b", True),
        ("a = 7.0", True),
        ("a <> 7", False),
        ("a == n", None),
        ("n <=> NULL", True),
        ("a <=> n", False),
        ("a IS DISTINCT FROM n", True),
        ("nan = nan", True),
        ("nan > inf", True),
        ("0.0D = -0.0D", True),
        ("s < 'a'", True),
        ("a = '7'", True),
        ("ts >= '2026-01-01'", True),
        ("ts > DATE '2026-01-01'", True),
        ("d = '2026-01-01'", True),
        ("a BETWEEN 7 AND 8", True),
        ("a NOT BETWEEN 7 AND 8", False),
        ("a BETWEEN n AND 6", False),
        ("a BETWEEN n AND 8", None),
        ("a IN (1, 7)", True),
        ("a IN (1, n)", None),
        ("a IN (7, n)", True),
        ("a NOT IN (1, n)", None),
        ("a NOT IN (1, 2)", True),
        ("n IN (1)", None),
    ],
    "logic": [
        ("t AND n", None),
        ("f AND n", False),
        ("n AND f", False),
        ("t OR n", True),
        ("n OR f", None),
        ("NOT n", None),
        ("NOT t", False),
        ("f AND 1 / z > 0", False),
        ("n IS NULL", True),
        ("a IS NOT NULL", True),
        ("isnull(n)", True),
        ("n IS TRUE", False),
        ("f IS NOT TRUE", True),
    ],
    "choices": [
        ("CASE a WHEN 7 THEN 'seven' ELSE 'other' END", "seven"),
        ("CASE n WHEN NULL THEN 1 ELSE 2 END", 2),
        ("CASE WHEN n THEN 1 WHEN a > 0 THEN 2 END", 2),
        ("CASE WHEN f THEN 1 END", None),
        ("CASE WHEN z = 0 THEN 0 ELSE a / z END", 0),
        ("IF(a > 0, 'up', 'down')", "up"),
        ("IF(n, 1, 2)", 2),
        ("COALESCE(n, n, a)", 7),
        ("COALESCE(a, 1 / z)", 7),
        ("NVL(n, 1)", 1),
        ("NULLIF(a, 7)", None),
        ("NULLIF(a, n)", 7),
        ("least(a, n, b)", -3),
        ("greatest(a, n, b)", 7),
        ("greatest(x, nan)", math.nan),
        ("least(n, n)", None),
    ],
    "functions": [
        ("abs(b)", 3),
        ("upper(s) || lower('X')", "RIVERx"),
        ("concat(s, 1, TRUE)", "River1true"),
        ("concat(s, n)", None),
        ("length('äb')", 2),
        ("substring(s, 2, 3)", "ive"),
        ("substring(s, 0, 2)", "Ri"),
        ("substring(s, -3)", "ver"),
        ("substring(s, -7, 3)", "R"),
        ("substr(s, 9)", ""),
        ("floor(x)", 2),
        ("ceil(-2.5D)", -2),
        ("floor(-2.5)", Decimal("-3")),
        ("floor(1e300)", (1 << 63) - 1),
        ("round(x)", 3.0),
        ("round(-2.5D)", -3.0),
        ("round(2.345, 2)", Decimal("2.35")),
        ("round(2.3, 2)", Decimal("2.3")),
        ("round(1250, -2)", 1300),
        ("round(0.285D, 2)", 0.29),
        ("s LIKE 'R%r'", True),
        ("s LIKE '_iver'", True),
        ("s NOT LIKE 'r%'", True),
        ("'50%' LIKE '50\\%'", True),
        ("'50x' LIKE '50\\%'", False),
        ("'a_b' LIKE 'a!_b' ESCAPE '!'", True),
        ("'a\nb' LIKE 'a%'", True),
        ("n LIKE '%'", None),
    ],
    "casts": [
        ("CAST(x AS INT)", 2),
        ("CAST(-2.9D AS BIGINT)", -2),
        ("CAST(' 12 ' AS INT)", 12),
        ("CAST(t AS INT)", 1),
        ("CAST(ts AS BIGINT)", NOON // 1_000_000),
        ("CAST(n AS INT)", None),
        ("CAST('1.5e1' AS DOUBLE)", 15.0),
        ("CAST('-Infinity' AS DOUBLE)", -math.inf),
        ("CAST('NaN' AS DOUBLE)", math.nan),
        ("a::double", 7.0),
        ("CAST(a AS STRING)", "7"),
        ("CAST(1e7 AS STRING)", "1.0E7"),
        ("CAST(1234567.5D AS STRING)", "1234567.5"),
        ("CAST(1.5e-5 AS STRING)", "1.5E-5"),
        ("CAST(0.001D AS STRING)", "0.001"),
        ("CAST(100D AS STRING)", "100.0"),
        ("CAST(price AS STRING)", "12.50"),
        ("CAST(t AS STRING)", "true"),
        ("CAST(ts AS STRING)", "2026-01-01 12:00:00"),
        ("CAST(ts + INTERVAL '1 millisecond' AS STRING)", "2026-01-01 12:00:00.001"),
        ("CAST('Yes' AS BOOLEAN)", True),
        ("CAST(z AS BOOLEAN)", False),
        ("CAST('2026-1-1 12:00' AS TIMESTAMP)", Timestamp(NOON)),
        ("CAST(0 AS TIMESTAMP)", Timestamp(0)),
        ("CAST(d AS TIMESTAMP)", Timestamp(NOON - 43_200_000_000)),
        ("CAST(ts AS DATE)", date(2026, 1, 1)),
        ("CAST(x AS DECIMAL(4,1))", Decimal("2.5")),
        ("CAST('2.345' AS DECIMAL(4,2))", Decimal("2.35")),
        ("TRY_CAST('x' AS INT)", None),
        ("bigint('4')", 4),
    ],
}


@pytest.mark.parametrize(
    ("text", "expected"), [case for cases in CASES.values() for case in cases], ids=lambda part: str(part)
)
def test_values(text: str, expected: Any) -> None:
    assert same(value(text), expected), repr(value(text))


@pytest.mark.parametrize(
    "text",
    [
        "a / z",
        "a / 0.0D",
        "a % z",
        "a DIV 0",
        "pmod(a, 0)",
        "price / 0",
        "big + 1",
        "-(-9223372036854775808)",
        "abs(-big - 1)",
        "2147483647 + 1",
        "CAST(a AS TINYINT) * CAST(100 AS TINYINT)",
        "CAST(300 AS TINYINT)",
        "CAST('1.5' AS INT)",
        "CAST('' AS INT)",
        "CAST('1_0' AS DOUBLE)",
        "CAST(nan AS INT)",
        "CAST('maybe' AS BOOLEAN)",
        "CAST('2026-02-30' AS TIMESTAMP)",
        "CAST(price AS DECIMAL(3,2))",
        "a = 'x'",
        "s LIKE 'a\\\\b'",
        "TRY_CAST(a / z AS INT)",
    ],
)
def test_failures_name_the_expression_and_the_row(text: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        value(text)
    assert caught.value.expression == text
    assert caught.value.values["a"] == 7


@pytest.mark.parametrize(
    "text",
    [
        "count(*)",
        "a b",
        "a & b",
        "current_timestamp()",
        "CAST(a AS FLOAT)",
        "CAST(s AS ARRAY<INT>)",
        "CAST(ts AS TIMESTAMP_NTZ)",
        "a IN (SELECT 1)",
        "floor(x, 1)",
        "INTERVAL '1' MONTH",
        "'it''s'",
        "s RLIKE 'x'",
        "my_function(a)",
        "a BETWEEN SYMMETRIC 8 AND 7",
        "a +",
        "",
        "*",
        "a AND t",
        "s + 1",
        "d + 1",
        "t > 1",
        "x DIV 2",
    ],
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        value(text)
    assert caught.value.id == "NOT_SUPPORTED"
    assert repr(text) in caught.value.place


def test_an_unknown_column_is_said_before_any_row() -> None:
    with pytest.raises(AnabranchError) as caught:
        compile_expression(Expression("campain + 1"), ["campaign"])
    assert caught.value.id == "UNKNOWN_COLUMN"
