"""Which kernel computes partial results: the columnar one where it is proven, the Spark kernel everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.drawing import headline
from anabranch.diagram.limits import Limits
from anabranch.diagram.query import Query
from anabranch.diagram.stages import boxes_of
from anabranch.engine.analysis import Analysis
from anabranch.engine.columnar.kernel import ColumnarKernel, Declined, Planned, installed
from anabranch.engine.emit import Written
from anabranch.engine.groups import Recipe
from anabranch.engine.kernel import KernelChoice, PartialJob, PartialsWritten, SparkKernel
from anabranch.engine.relation import Leaves
from anabranch.engine.session import Session
from anabranch.model.errors import AnabranchError

K = TypeVar("K", bound=Hashable)
_LIMITED = "revisions that are not all said"
_NOT_INSTALLED = "DuckDB, which is not installed (pip install 'anabranch[columnar]')"


def columnar(session: Session, root: Path) -> ColumnarKernel | None:
    """The columnar kernel, where it may be used and is installed."""
    if session.kernel is KernelChoice.SPARK or not installed():
        return None
    return ColumnarKernel(session.numbered, root, session.tasks)


def together(
    kernel: ColumnarKernel | None, asked: Mapping[K, Callable[[ColumnarKernel], Planned]]
) -> dict[K, list[Written]]:
    """What the columnar kernel does of what it is asked, in one job. What it declines is Spark's to do or to refuse."""
    planned: dict[K, Planned] = {}
    if kernel is None:
        return {}
    for key, plan in asked.items():
        try:
            planned[key] = plan(kernel)
        except Declined:
            continue
    done = zip(planned, kernel.run(list(planned.values())), strict=True)
    return {key: written for key, written in done if not isinstance(written, Declined)}


def compute_partials(session: Session, spark: SparkSession, root: Path, job: PartialJob) -> PartialsWritten:
    """One job by whichever kernel can do it."""
    done = together(columnar(session, root), {0: lambda kernel: kernel.partials(job)})
    return PartialsWritten(tuple(done[0])) if done else SparkKernel(spark, root).partials(job)


def kernel_lines(choice: KernelChoice, analysis: Analysis, stages: Sequence[Box], limits: Limits) -> list[str]:
    """The kernel of each box that has a choice, and why it is not the columnar one. The last stage has limits."""
    found: dict[Box, tuple[str, str | None]] = {}
    for box, recipe in _recipes(analysis, stages):
        found[box] = "below", _reason(choice, recipe.columnar)
    with Leaves(analysis.spark) as leaves:
        for stage in stages:
            for top in (b for b in boxes_of(stage) if isinstance(b, Consolidate)):
                how = _LIMITED if limits.cut and stage is stages[-1] else analysis.columnar_answer(leaves, stage)
                found[top] = "above", _reason(choice, how)
    lines = []
    for made, (side, reason) in found.items():
        said = f"columnar, with the boxes {side} it" if reason is None else f"spark, because of {reason}"
        lines.append(f"  {headline(made)}: {said}")
    return [*lines, f"  {'all other' if lines else 'all'} boxes: spark"]


def refuse_others(choice: KernelChoice, analysis: Analysis, stages: Iterable[Box], query: Query) -> None:
    """Where only the columnar kernel will do, a query that it cannot compute is not created."""
    if choice is not KernelChoice.COLUMNAR:
        return
    for box, recipe in _recipes(analysis, stages):
        reason = _reason(choice, recipe.columnar)
        if reason is not None:
            raise AnabranchError(
                "NOT_SUPPORTED",
                place=f"query {query.name!r}, {headline(box)}",
                need="what the columnar kernel computes as Spark does, since kernel='columnar'",
                got=reason,
                next_step="Connect with kernel='auto' to let Spark compute it.",
            )


def _recipes(analysis: Analysis, stages: Iterable[Box]) -> list[tuple[Partials, Recipe]]:
    boxes = dict.fromkeys(b for stage in stages for b in boxes_of(stage) if isinstance(b, Partials))
    with Leaves(analysis.spark) as leaves:
        return [(box, analysis.recipe_of(leaves, box)) for box in boxes]


def _reason(choice: KernelChoice, how: object) -> str | None:
    """Why a box is not for the columnar kernel, if what was found out about it says so."""
    if choice is KernelChoice.SPARK:
        return "kernel='spark'"
    if isinstance(how, str):
        return how
    return None if installed() else _NOT_INSTALLED
