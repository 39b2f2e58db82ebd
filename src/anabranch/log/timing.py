"""Where time goes, for whoever listens: blocks of work with a name, told when they end.

Nobody listens in ordinary use, and then a block costs next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, float], None]
_listeners: list[Listener] = []


def listening() -> bool:
    return bool(_listeners)


def tell(what: str, seconds: float) -> None:
    for listener in _listeners:
        listener(what, seconds)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """A block of which listeners are told how long it took."""
    if not _listeners:
        yield
        return
    begin = time.perf_counter()
    try:
        yield
    finally:
        tell(what, time.perf_counter() - begin)


@contextmanager
def listened(listener: Listener) -> Iterator[None]:
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
