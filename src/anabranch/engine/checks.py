"""What is refused before anything is created: what Spark rejects, and what could not be kept right."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pyspark.errors import AnalysisException, ParseException, PySparkException

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression
from anabranch.diagram.functions import NotFound, find
from anabranch.diagram.limits import KEPT
from anabranch.diagram.progress import has_event_time, top_aggregate
from anabranch.diagram.query import Query
from anabranch.diagram.stages import boxes_of
from anabranch.diagram.taxonomy import arbitrary_in
from anabranch.engine.aggregates import has_map
from anabranch.engine.analysis import Analysis
from anabranch.engine.join import sources
from anabranch.engine.mistakes import ExpressionRefused, quietly
from anabranch.engine.relation import Leaves, Relation
from anabranch.model.errors import AnabranchError

_ORDERED = (
    "min",
    "max",
    "first",
    "last",
    "count_distinct",
    "median",
    "percentile",
    "approx_percentile",
    "approx_count_distinct",
)


def check_expressions(analysis: Analysis, leaves: Leaves, box: Box) -> None:
    """Let Spark look at each expression by itself, from the sources up, so that a mistake has a place."""
    if isinstance(box, Keep):
        return
    for part in box.inputs:
        check_expressions(analysis, leaves, part)
    expressions = expressions_of(box)
    if not expressions or not box.inputs:
        return
    if isinstance(box, Map | Filter) and any(isinstance(b, Aggregate | Consolidate) for b in boxes_of(box)):
        _refuse_arbitrary(expressions)
    _require_functions(box)
    parts = [analysis.answer(leaves, part) for part in box.inputs]
    pairs = box.pairs if isinstance(box, Lookup) else box
    source = sources(pairs, parts[0], parts[1]) if isinstance(pairs, Join) else parts[0].source
    if isinstance(box, Aggregate | Partials | Counts):
        _refuse_maps(leaves, box, parts[0])
    whole = ", ".join(f"({expression})" for expression in expressions)
    if _refusal(leaves, f"SELECT {whole} FROM {source}") is None:
        return
    for expression in expressions:
        refusal = _refusal(leaves, f"SELECT ({expression}) FROM {source}")
        if refusal is not None:
            raise ExpressionRefused(expression, refusal) from refusal


def _require_functions(box: Box) -> None:
    """Functions of the user's own must be there before anything asks for them."""
    for call in box.calls if isinstance(box, Aggregate | Partials | Counts) else ():
        if call.function == "apply":
            try:
                find(call.arguments[-2].text.strip("'"))
            except NotFound as why:
                raise ExpressionRefused(call.arguments[-2], str(why)) from why


def _refuse_maps(leaves: Leaves, box: Aggregate | Partials | Counts, below: Relation) -> None:
    """Maps have no order, so there are no groups, no extremes and no distinct values of them."""
    ordered = [key.expression for key in box.keys]
    ordered += [call.arguments[0] for call in box.calls if call.function in _ORDERED and call.arguments]
    made = ", ".join(f"({expression}) AS x{n}" for n, expression in enumerate(ordered))
    sql = f"SELECT {made} FROM {below.source}"
    if not ordered or _refusal(leaves, sql) is not None:
        return  # what is wrong otherwise is said by itself
    for expression, field in zip(ordered, leaves.frame(sql).schema, strict=True):
        if has_map(field.dataType):
            raise ExpressionRefused(expression, "a map, which has no order; map_entries(...) has one")


def _refusal(leaves: Leaves, sql: str) -> PySparkException | None:
    try:
        with quietly():
            leaves.frame(sql)
    except (AnalysisException, ParseException) as error:
        return error
    return None


def _refuse_arbitrary(expressions: Sequence[Expression]) -> None:
    """Results of aggregates are computed again to be compared with what was said: they must come out the same."""
    for expression in expressions:
        function = arbitrary_in(expression)
        if function is not None:
            reason = (
                f"{function}, which is another one each time, over results that are computed again when they change"
            )
            raise ExpressionRefused(expression, reason)


def expressions_of(box: Box) -> list[Expression]:
    """What a box asks Spark to evaluate over its input."""
    match box:
        case Filter():
            return [box.predicate]
        case Split():
            return list(box.conditions)
        case Map():
            return [output.expression for output in box.outputs]
        case Lookup():
            return [box.on] if box.on else []
        case Join():
            bounds = [box.between.low, box.between.high] if box.between else []
            return [*([box.on] if box.on else []), *bounds]
        case Aggregate() | Partials() | Counts():
            keys = [key.expression for key in box.keys]
            return [*keys, *(e for call in box.calls for e in call.expressions)]
    return []


def refuse_lookups(box: Box, keyed: Container[str], query: Query) -> None:
    """What was looked up can only be told apart by the key of the table."""
    for lookup in box.walk():
        if not isinstance(lookup, Lookup):
            continue
        table = lookup.parts[1].input if isinstance(lookup.parts[1], View) else lookup.parts[1]
        if not isinstance(table, Source) or table.stream not in keyed:
            raise AnabranchError(
                "NOT_SUPPORTED",
                place=f"query {query.name!r}, LOOKUP {lookup.sides[1].name}",
                need="a stream with a KEY as the table of a lookup WITHOUT REVISION",
                got="a stream without one" if isinstance(table, Source) else "a sub-query",
                next_step="Declare the KEY of the table, or leave out WITHOUT REVISION.",
            )


def refuse_waiting(box: Box, query: Query) -> None:
    """Only windows have results that are new, and can be said, beside those that are revised; each group one."""
    top = top_aggregate(box)
    alone = top is not None and top.window is not None and not any(isinstance(b, Explode) for b in boxes_of(box))
    if query.revise_every == KEPT and not alone:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"query {query.name!r}, REVISE WHEN KEPT",
            need="an aggregate over windows, each group of which has one result",
            got="another query",
            next_step="Leave it out; ON REVISION IGNORE works for any query.",
        )


def refuse_windows_over_running(box: Box, query: Query) -> None:
    for above in box.walk():
        timed = isinstance(above, Sort | Counts) or (isinstance(above, Aggregate) and above.window is not None)
        if timed and not has_event_time(above.inputs[0]):
            what = "ORDER BY EVENT TIME" if isinstance(above, Sort) else above.window  # type: ignore[attr-defined]
            raise AnabranchError(
                "NO_EVENT_TIME",
                place=f"query {query.name!r}, {what}",
                need="an input whose rows have event times",
                got="a running aggregate, whose rows have none",
                next_step="Give the inner aggregate a window, or leave out this one.",
            )
