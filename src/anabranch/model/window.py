"""Windows over event time, and the panes of which they are made.

A window is half-open, `[open, close)`, and opens at a multiple of its advance since the epoch. It closes
when progress reaches its end. A pane is the greatest common divisor of size and advance: every window
is a whole number of panes, so partial results kept per pane serve all windows that share it.

Windows may open at a distance after those multiples, their offset. Resampling uses one of a microsecond: the
window of a grid instant holds the rows up to and with it, `(instant - hold, instant]`, so its last
instant, which is the event time of its result, is the grid instant itself.

The result of a window has the window's last instant as its event time, one microsecond before its
close: windows over windows nest, and three results of 5 minutes make one of 15 (TRUVISO, Fig. 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from anabranch.model.time import duration_text


@dataclass(frozen=True)
class Window:
    """Size and advance in microseconds; equal for windows that tumble."""

    size: int
    advance: int
    offset: int = 0

    @property
    def pane(self) -> int:
        return gcd(self.size, self.advance)

    @property
    def tumbles(self) -> bool:
        return self.size == self.advance

    def opens(self, instant: int) -> range:
        """When the windows that hold an instant open.

        >>> list(Window(15, 5).opens(12))
        [0, 5, 10]
        """
        last = instant - (instant - self.offset) % self.advance
        after = instant - self.size  # a window that opens here has just closed
        return range(after - (after - self.offset) % self.advance + self.advance, last + 1, self.advance)

    def next_close(self, progress: int) -> int:
        """The first close that progress has not reached.

        >>> Window(5, 5).next_close(10)
        15
        """
        return progress - (progress - self.size - self.offset) % self.advance + self.advance

    def progress(self, progress: int | None) -> int | None:
        """The progress of the results: every row that is still to come is later than this."""
        return None if progress is None else self.next_close(progress) - 1

    def holds(self, inner: Window) -> bool:
        """Whether each window is made of whole tumbling inner ones."""
        whole = self.size % inner.size == 0 and self.advance % inner.size == 0
        return inner.tumbles and whole and (self.offset - inner.offset) % inner.size == 0

    @classmethod
    def resampling(cls, grid: int, hold: int) -> Window:
        """At each instant of a grid, the rows that came up to a time before it."""
        return cls(hold, grid, 1)

    def __str__(self) -> str:
        if self.offset:
            return f"<RESAMPLE '{duration_text(self.advance)}' HOLD '{duration_text(self.size)}'>"
        if self.tumbles:
            return f"<SLICES '{duration_text(self.size)}'>"
        return f"<VISIBLE '{duration_text(self.size)}' ADVANCE '{duration_text(self.advance)}'>"
