"""`bench step --profile`: where the milliseconds of a small step go.

catalog      transactions before the commit: what is new, what is kept, intents, the lease
planning     everything else in the driver: plans, SQL, bookkeeping
scheduling   Spark: from a job given to its reports back, less its longest task
kernel       reading and computing in that task
writing      segments written and synced in tasks
commit       the step's own transaction
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from anabranch.bench.histories import StepSize, Warehouse
from anabranch.log.timing import listened
from anabranch.model.report import Claim, Report

PHASES = ("catalog", "planning", "scheduling", "kernel", "writing", "commit")


class Clockwork:
    """Adds up what is told by the thread that made it."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._thread = threading.get_ident()

    def __call__(self, what: str, seconds: float) -> None:
        if threading.get_ident() == self._thread:  # reducing goes on beside the steps
            self.spent[what] += seconds

    def phases(self, total: float) -> dict[str, float]:
        spent = self.spent
        return {
            "catalog": spent["catalog"] - spent["commit"],
            "planning": total - spent["catalog"] - spent["jobs"],
            "scheduling": spent["jobs"] - spent["tasks"],
            "kernel": spent["tasks"] - spent["writing"],
            "writing": spent["writing"],
            "commit": spent["commit"],
        }


def bench_profile(title: str, minutes: int, size: StepSize, warm: int, steps: int, *, quiet: bool) -> Report:
    """Take steps over a history, and say where the time of each goes."""
    report = Report("step --profile", {"history": title, "rows": size.rows, "steps": steps})
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    warehouse = Warehouse.open(place / "warehouse", title, minutes)
    console = Console(stderr=True)
    try:
        warehouse.build(size.campaigns, lambda rows: None)
        found: list[Mapping[str, float]] = []
        for number in track(range(warm + steps), "taking steps", console=console, transient=True, disable=quiet):
            path = size.write(place / f"{number:05}.parquet", number, 60)
            clockwork = Clockwork()
            with listened(clockwork):
                total = warehouse.step(path, size.rows)
            found += [{**clockwork.phases(total), "whole step": total}] if number >= warm else []
        report.rows += _rows(found)
        faults = warehouse.faults(warm + steps)
        report.claims.append(Claim("results that differ from a batch over all rows", 0, faults, faults == 0))
    finally:
        warehouse.engine.close()
        shutil.rmtree(place)
    return report


def _rows(found: Sequence[Mapping[str, float]]) -> list[dict[str, object]]:
    whole = statistics.median(step["whole step"] for step in found)
    rows: list[dict[str, object]] = []
    for phase in (*PHASES, "whole step"):
        median = statistics.median(step[phase] for step in found)
        share = round(100 * median / whole, 1)
        rows.append({"where": phase, "median ms": round(median * 1000, 1), "% of a step": share})
    return rows
