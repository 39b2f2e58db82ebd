"""The one place where this package reads the time of day."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """Microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1_000
