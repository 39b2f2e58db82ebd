"""Ctrl-C as a request to finish: the step that is under way is completed, then the command ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, or a request to terminate, sets; a second one ends the block at once.

    Enter it after Spark has started: Spark's start brings a handler of its own, which would cancel the step.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield stop
    except KeyboardInterrupt:
        stop.set()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
