"""Functions of texts and times that both engines compute alike."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp

from anabranch.diagram.columnar.casts import modulo, seconds
from anabranch.diagram.columnar.expressions import Node, Rule, Translator, made, met, require, said
from anabranch.diagram.columnar.kinds import BIGINT, BOOLEAN, DATE, INT, STRING, TIMESTAMP, NotProven, Typed

_PARTS: Mapping[type[Node], str] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
    exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second",
}  # fmt: skip
_CLOCK = (exp.Hour, exp.Minute, exp.Second)
_WITHIN: Mapping[type[Node], str] = {
    exp.StartsWith: "STARTS_WITH", exp.EndsWith: "ENDS_WITH", exp.Contains: "CONTAINS",
}  # fmt: skip
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_TRIMMED = {"": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
_SINCE: Mapping[type[Node], int] = {exp.UnixMillis: 1_000, exp.UnixSeconds: 1_000_000}


def _texts(of: Translator, node: Node, *names: str) -> list[Typed]:
    parts = of.operands(node, *names)
    require(all(part.kind == STRING for part in parts), node)
    return parts


def _cased(of: Translator, node: Node) -> Typed:
    (part,) = _texts(of, node, "this")
    word = f"{type(node).__name__.upper()}({part.sql})"
    # Beyond ASCII the two engines know different letters.
    checked = f"CASE WHEN STRLEN({part.sql}) <> LENGTH({part.sql}) THEN ERROR('letters') ELSE {word} END"
    return made(checked, STRING, [part], fails=True)


def _length(of: Translator, node: Node) -> Typed:
    (part,) = _texts(of, node, "this")
    return made(f"CAST(LENGTH({part.sql}) AS INTEGER)", INT, [part])


def _trimmed(of: Translator, node: Node) -> Typed:
    (part,) = [of.of(node.this)]
    require(part.kind == STRING and not node.args.get("expression") and not node.args.get("collation"), node)
    return made(f"{_TRIMMED[node.text('position')]}({part.sql}, ' ')", STRING, [part])


def _strung(of: Translator, node: Node) -> Typed:
    pair = isinstance(node, exp.DPipe)
    require(pair or "safe" in node.args, node)  # two literals side by side are no call
    parts = _texts(of, node, *(("this", "expression") if pair else ("expressions",)))
    return made(f"({' || '.join(part.sql for part in parts)})", STRING, parts)


def _substring(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "start", "length")
    numbers = [n for n in (node.args["start"], node.args.get("length")) if n is not None]
    require(parts[0].kind == STRING and all(isinstance(n, exp.Literal) and not n.is_string for n in numbers), node)
    require(int(numbers[0].name) > 0, node)
    return made(f"SUBSTRING({', '.join(part.sql for part in parts)})", STRING, parts)


def _has_text(of: Translator, node: Node) -> Typed:
    parts = _texts(of, node, "this", "expression")
    return made(f"{_WITHIN[type(node)]}({parts[0].sql}, {parts[1].sql})", BOOLEAN, parts)


def _replaced(of: Translator, node: Node) -> Typed:
    parts = _texts(of, node, "this", "expression", "replacement")
    wanted = node.args["expression"]
    require(len(parts) == 3 and isinstance(wanted, exp.Literal) and wanted.name, node)
    return made(f"REPLACE({', '.join(part.sql for part in parts)})", STRING, parts)


def _alike(of: Translator, node: Node) -> Typed:
    parts = _texts(of, node, "this", "expression")
    pattern = node.args["expression"]
    require(isinstance(pattern, exp.Literal) and "\\" not in pattern.name, node)
    return made(f"({parts[0].sql} LIKE {parts[1].sql})", BOOLEAN, parts)


def _part_of_time(of: Translator, node: Node) -> Typed:
    inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
    part = of.of(inner)
    require((part.kind == TIMESTAMP and of.utc) or (part.kind == DATE and not isinstance(node, _CLOCK)), node)
    return made(f"CAST(EXTRACT({_PARTS[type(node)]} FROM {part.sql}) AS INTEGER)", INT, [part])


def _truncated(of: Translator, node: Node) -> Typed:
    part = of.of(node.this)
    unit = node.args["unit"].name.upper()
    require(part.kind == TIMESTAMP and of.utc and unit in _UNITS and not node.args.get("zone"), node)
    return made(f"DATE_TRUNC('{unit.lower()}', {part.sql})", TIMESTAMP, [part])


def _date_of(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind == DATE or (part.kind == TIMESTAMP and of.utc), node)
    return made(f"CAST({part.sql} AS DATE)", DATE, [part])


def _days_between(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    require(all(part.kind == DATE for part in parts), node)
    return made(f"CAST({parts[0].sql} - {parts[1].sql} AS INTEGER)", INT, parts)


def _micros(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind == TIMESTAMP, node)
    length = _SINCE.get(type(node))
    return made(f"EPOCH_US({part.sql})" if length is None else seconds(part.sql, length), BIGINT, [part])


def _by_name(of: Translator, node: Node) -> Typed:
    name, parts = node.name.upper(), [of.of(part) for part in node.expressions]
    match name, parts:
        case (("ISNULL" | "ISNOTNULL"), [part]):
            return made(f"({part.sql} IS {'NOT ' if name == 'ISNOTNULL' else ''}NULL)", BOOLEAN, [part])
        case "PMOD", [left, right]:
            kind = met(parts, node)
            by = node.expressions[1]
            require(kind.bits and isinstance(by, exp.Literal) and int(by.name) > 0, node)
            return made(modulo(left.as_kind(kind), right.as_kind(kind)), kind, parts, fails=True)
    raise NotProven(f"the function {said(node)}")


RULES: Mapping[type[Node], Rule] = {
    **dict.fromkeys((exp.Upper, exp.Lower), _cased),
    exp.Length: _length,
    exp.Trim: _trimmed,
    **dict.fromkeys((exp.Concat, exp.DPipe), _strung),
    exp.Substring: _substring,
    **dict.fromkeys(_WITHIN, _has_text),
    exp.Replace: _replaced,
    exp.Like: _alike,
    **dict.fromkeys(_PARTS, _part_of_time),
    exp.TimestampTrunc: _truncated,
    exp.TsOrDsToDate: _date_of,
    exp.DateDiff: _days_between,
    **dict.fromkeys((exp.UnixMicros, *_SINCE), _micros),
    exp.Anonymous: _by_name,
}
