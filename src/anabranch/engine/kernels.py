"""Which kernel computes partial results: the columnar one where it is proven, the Spark kernel everywhere else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.drawing import headline
from anabranch.diagram.query import Query
from anabranch.diagram.stages import boxes_of
from anabranch.engine.analysis import Analysis
from anabranch.engine.columnar.kernel import ColumnarKernel, Declined, installed
from anabranch.engine.groups import Recipe
from anabranch.engine.kernel import KernelChoice, PartialJob, PartialsWritten, SparkKernel
from anabranch.engine.relation import Leaves
from anabranch.model.errors import AnabranchError

_NOT_INSTALLED = "DuckDB, which is not installed (pip install 'anabranch[columnar]')"


def compute_partials(choice: KernelChoice, spark: SparkSession, root: Path, job: PartialJob) -> PartialsWritten:
    """A job by whichever kernel can do it. Rows on which an expression fails are the Spark kernel's to tell."""
    if choice is not KernelChoice.SPARK and installed():
        try:
            tasks = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
            return ColumnarKernel(spark, root, tasks).partials(job)
        except Declined:
            pass
    return SparkKernel(spark, root).partials(job)


def kernel_lines(choice: KernelChoice, analysis: Analysis, stages: Iterable[Box]) -> list[str]:
    """The kernel of each box that has a choice, and why it is not the columnar one."""
    lines = []
    for box, recipe in _recipes(analysis, stages):
        reason = _reason(choice, recipe)
        said = "columnar, with the boxes below it" if reason is None else f"spark, because of {reason}"
        lines.append(f"  {headline(box)}: {said}")
    return [*lines, f"  {'all other' if lines else 'all'} boxes: spark"]


def refuse_others(choice: KernelChoice, analysis: Analysis, stages: Iterable[Box], query: Query) -> None:
    """Where only the columnar kernel will do, a query that it cannot compute is not created."""
    if choice is not KernelChoice.COLUMNAR:
        return
    for box, recipe in _recipes(analysis, stages):
        reason = _reason(choice, recipe)
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


def _reason(choice: KernelChoice, recipe: Recipe) -> str | None:
    if choice is KernelChoice.SPARK:
        return "kernel='spark'"
    if isinstance(recipe.columnar, str):
        return recipe.columnar
    return None if installed() else _NOT_INSTALLED
