"""The answer of a query at a moment, computed again from its partial results.

It is the table that people read, and the history of what a query has said wherever that is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.progress import progress_into, top_aggregate
from anabranch.diagram.reach import END, EVERYTHING, Interval, needed
from anabranch.engine.answers import Answers, Kept, Version
from anabranch.engine.changes import OF_GROUP
from anabranch.engine.guard import FAILED
from anabranch.engine.kept import Shelf
from anabranch.engine.live import Live, LiveQuery
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed, quoted
from anabranch.engine.zeros import unsigned
from anabranch.log.log import Log
from anabranch.model.run import Segment

Fresh = Callable[[Partials], Sequence[Segment]]


def recomputed(
    log: Log,
    live: Live,
    leaves: Leaves,
    query: LiveQuery,
    version: Version,
    times: Sequence[Interval] = EVERYTHING,
    fresh: Fresh = lambda box: (),
) -> Relation:
    """The results of a query in a version, all that there are at some event times.

    `fresh` are partial results that a step has written and not committed yet.
    """
    ranges = needed(query.plan, closed_times(query, version, times))
    shelf = Shelf(log, live, query, leaves)

    def kept(box: Partials) -> Kept:
        return shelf.read(box, shelf.choose(box, ranges[box], fresh(box)))

    answer = Answers([version], kept, shelf.recipe, query.guard).lower(query.plan)
    where = f" WHERE {FAILED} IS NULL" if query.guard.aside else ""
    kinds = {f.name: f.dataType for f in spark_schema(live.state(query.stored.stream_id).spec.schema)}
    columns = [f"{unsigned(quoted(n), kinds[n])} AS {quoted(n)}" if n in kinds else quoted(n) for n in answer.columns]
    chosen = ", ".join([*map(quoted, answer.carried), *columns])
    return replace(answer, sql=f"SELECT {chosen} FROM {answer.source}{where}")


def closed_times(query: LiveQuery, version: Version, times: Sequence[Interval] = EVERYTHING) -> tuple[Interval, ...]:
    """The event times of results that count."""
    top = top_aggregate(query.plan)
    last: int | None = END
    if not version.open and top is not None and top.window is not None:
        last = progress_into(top, version.progress)
    return () if last is None else tuple((low, min(high, last - 1 if last < END else END)) for low, high in times)


def as_rows(answer: Relation, query: LiveQuery, bucket: int) -> Relation:
    """Results as the rows of a log that came in a bucket."""
    made = {"_event_time": "_event_time", "_weight": "1", "_bucket": f"{bucket}L", "_of": OF_GROUP}
    carried = ", ".join(f"{sql} AS {name}" for name, sql in made.items())
    sql = f"SELECT {listed(query.columns)}, {carried} FROM {answer.source}"
    return Relation(sql, tuple(made), query.columns, "_kept")
