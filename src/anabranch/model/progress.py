"""Progress: how far in event time a stream has come.

Progress is a low-water mark. Each source s has a mark m_s, its highest event time minus the slack;
`punctuate(t, s)` raises m_s to t without slack. After each bucket, from the whole of it,

    progress = max(previous, min_s m_s, max_s m_s - drift)

where the last term is absent without a drift. Slack waits for rows that are a little late; drift
stops waiting for a source that is silent. A source that appears late cannot lower progress, and
punctuation without a source raises progress itself. Nothing is dropped for being late: progress says
when to answer, not what to keep (TRUVISO 2.1, Figs 1 and 2).

The law: marks and progress only ever rise, and marks do not depend on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def evaluate(previous: int | None, lowest: int | None, highest: int | None, drift: int | None) -> int | None:
    """Progress after a bucket, from the lowest and highest mark over all sources."""
    terms = [term for term in (previous, lowest) if term is not None]
    if highest is not None and drift is not None:
        terms.append(highest - drift)
    return max(terms, default=None)


@dataclass
class Progress:
    """The progress of one stream, bucket by bucket. The catalog keeps the same state in tables."""

    slack: int = 0
    drift: int | None = None
    marks: dict[str, int] = field(default_factory=dict)
    value: int | None = None

    def advance(
        self,
        latest: Mapping[str, int],
        punctuation: Mapping[str | None, int] | None = None,
    ) -> int | None:
        """Take a bucket: the highest event time of each source in it, and its punctuation."""
        for source, event_time in latest.items():
            self._raise(source, event_time - self.slack)
        for promiser, mark in (punctuation or {}).items():
            if promiser is None:
                self.value = mark if self.value is None else max(self.value, mark)
            else:
                self._raise(promiser, mark)
        lowest = min(self.marks.values(), default=None)
        highest = max(self.marks.values(), default=None)
        self.value = evaluate(self.value, lowest, highest, self.drift)
        return self.value

    def _raise(self, source: str, mark: int) -> None:
        self.marks[source] = max(mark, self.marks.get(source, mark))

    def is_late(self, event_time: int) -> bool:
        """Whether a row comes after its time was passed: in-order processing would drop it."""
        return self.value is not None and event_time < self.value
