"""Partial results shared out among tasks by time, each task with all that there is of its stretch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from anabranch.engine.columnar.portions import listed_files
from anabranch.model.run import Segment

FOREVER = 1 << 62
_SAID = 12  # what it takes to say a row, in rows that are only read (measured)


@dataclass(frozen=True)
class Share:
    """A stretch of time, from `low` up to `high`, and the segments of partial results that are needed for it."""

    files: tuple[str, ...]
    low: int = -FOREVER
    high: int = FOREVER
    before: int = 0  # how much earlier panes are needed too

    @property
    def rows(self) -> str:
        """What DuckDB reads of the segments; panes elsewhere are left out as far as that spares reading."""
        bounds = [f"_pane >= {instant(self.low - self.before)}"] if self.low > -FOREVER else []
        bounds += [f"_pane < {instant(self.high)}"] if self.high < FOREVER else []
        read = f"FROM read_parquet({listed_files(self.files)})"
        return f"({read} WHERE {' AND '.join(bounds)})" if bounds else f"({read})"


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
        made.append(Share(tuple(str(root / s.path) for s in segments if s.meets(needed)), low, high, before))
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
