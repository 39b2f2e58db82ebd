"""Partial results shared out among tasks by time, each task with all that there is of its stretch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from anabranch.diagram.reach import EVERYTHING, Interval, join
from anabranch.engine.columnar.portions import listed_files
from anabranch.model.run import Segment

FOREVER = 1 << 62
_STRETCHES = 4  # of one segment: more are read together, with what lies between them
_SAID = 12  # what it takes to say a row, in rows that are only read (measured)


class Kept(NamedTuple):
    """A segment of partial results, and the panes that it has, where it has any."""

    path: str
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Share:
    """A stretch of time, from `low` up to `high`, and the segments of partial results that are needed for it."""

    files: tuple[Kept, ...]
    low: int = -FOREVER
    high: int = FOREVER
    before: int = 0  # how much earlier panes are needed too

    def rows(self, panes: Sequence[Interval] = EVERYTHING) -> str | None:
        """What DuckDB reads for some panes; others are among them where leaving them out would spare no reading."""
        first, last = max(self.low - self.before, -FOREVER), self.high - 1
        wanted = [(max(low, first), min(high, last)) for low, high in panes]
        whole: list[str] = []
        parts: list[str] = []
        for file in self.files:
            mine = _inside(file, wanted)
            if mine is None:
                whole.append(file.path)
            else:
                parts += [f"FROM read_parquet({listed_files([file.path])}) WHERE {_between(*range)}" for range in mine]
        if whole:
            parts.append(f"FROM read_parquet({listed_files(whole)}) WHERE {_between(first, last)}")
        return f"({' UNION ALL '.join(parts)})" if parts else None


def _inside(file: Kept, wanted: Sequence[Interval]) -> tuple[Interval, ...] | None:
    """The few stretches that are needed of a segment; None if it is best read whole."""
    if file.low is None or file.high is None:
        return None
    low, high = file.low, file.high
    mine = join([(max(a, low), min(b, high)) for a, b in wanted], _STRETCHES)
    return None if 2 * sum(b - a for a, b in mine) > high - low else mine


def _between(low: int, high: int) -> str:
    """Plain comparisons, which DuckDB compares with the statistics of files even where its optimisers are off."""
    bounds = [f"_pane >= {instant(low)}"] if low > -FOREVER else []
    bounds += [f"_pane <= {instant(high)}"] if high < FOREVER - 1 else []
    return " AND ".join(bounds) or "TRUE"


def shares(
    segments: Sequence[Segment], root: Path, tasks: int, before: int = 0, closed: int | None = None
) -> tuple[Share, ...]:
    """Stretches for so many tasks at most, with about as much to do for each.

    Windows up to `closed` were said before: of their rows most are only read.
    """
    cuts = [-FOREVER, *(_cuts(segments, tasks, closed) if tasks > 1 else ()), FOREVER]
    made = []
    for low, high in pairwise(cuts):
        needed = [(low - before, high - 1)]
        files = tuple(Kept(str(root / s.path), s.event_min, s.event_max) for s in segments if s.meets(needed))
        made.append(Share(files, low, high, before))
    return tuple(share for share in made if share.files) or (Share(()),)


def instant(micros: int) -> str:
    return f"MAKE_TIMESTAMPTZ({micros})"


def _cuts(segments: Sequence[Segment], tasks: int, closed: int | None) -> list[int]:
    """Instants between which there is about as much to do, if the rows of a segment lie evenly."""
    known = []
    for s in segments:
        if s.event_min is None or s.event_max is None:
            continue
        if closed is not None and s.event_max >= closed:  # but for few late ones, its rows are new
            known.append((max(s.event_min, closed), s.event_max + 1, s.rows * _SAID))
        else:
            known.append((s.event_min, s.event_max + 1, s.rows))
    if not known:
        return []
    edges = np.unique([edge for low, high, _ in known for edge in (low, high)])
    change = np.zeros(len(edges))
    for low, high, rows in known:
        each = rows / (high - low)
        change[np.searchsorted(edges, low)] += each
        change[np.searchsorted(edges, high)] -= each
    rows_before = np.concatenate([[0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(edges))])
    wanted = rows_before[-1] * np.arange(1, tasks) / tasks
    return sorted({int(cut) for cut in np.interp(wanted, rows_before, edges)})
