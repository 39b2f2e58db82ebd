"""Works of Spark's at once: each is planned in a thread of the driver, and their tasks share the executors.

A small job takes longer to plan than to run. One after the other, the plans of many queries would keep one core of the
driver busy and all executors waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_A_CORE = 2  # while one waits for its tasks, another is planned
_MOST = 16


def abreast(spark: SparkSession, works: Mapping[K, Callable[[], V]]) -> dict[K, V | Exception]:
    """What each work gives, or the exception that it raises. Whoever calls is done when all are."""
    if len(works) < 2:
        return {key: _outcome(work) for key, work in works.items()}
    begun: list[Callable[[], V | Exception]] = [partial(_outcome, work) for work in works.values()]
    if "connect" not in type(spark).__module__:
        # Jobs belong to the group of whoever calls. Each thread has its own properties: Spark writes into them.
        begun = [inheritable_thread_target(spark)(work) for work in begun]
    with ThreadPoolExecutor(min(_A_CORE * (os.cpu_count() or 1), _MOST, len(works)), "anabranch-spark") as pool:
        return dict(zip(works, pool.map(lambda work: work(), begun), strict=True))


def _outcome(work: Callable[[], V]) -> V | Exception:
    try:
        return work()
    except Exception as error:
        return error
