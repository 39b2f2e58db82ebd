"""How much memory a process and all its children hold at once, at most: the JVM, and the Python workers beside it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

try:
    import psutil
except ImportError:  # then it is not measured
    psutil = None

_EVERY_SECONDS = 0.1


class PeakMemory:
    """Looks at this process and its children while the block runs. Pages that several share count for each."""

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="anabranch-memory", daemon=True)

    def _watch(self) -> None:
        if psutil is None:
            return
        here = psutil.Process()
        while True:
            held = _held(here)
            self.bytes = max(self.bytes or 0, held)
            if self._stop.wait(_EVERY_SECONDS):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def _held(process: psutil.Process, parents: int | None = None) -> int:
    """What a process and its children hold."""
    try:
        found = process.memory_info()
        # A child that has not begun its own program yet shows its parent's memory as its own.
        mine = 0 if found.vms == parents else int(found.rss)
        return mine + sum(_held(child, found.vms) for child in process.children())
    except psutil.Error:  # it ended while we looked
        return 0
