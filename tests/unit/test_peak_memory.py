"""What a process and its children hold, and children that have not begun their own program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

psutil = pytest.importorskip("psutil")

from anabranch.bench import memory  # noqa: E402


@dataclass
class Process:
    rss: int
    vms: int
    below: list[Any] = field(default_factory=list)
    gone: bool = False

    def memory_info(self) -> Any:
        if self.gone:
            raise psutil.NoSuchProcess(1)
        return self

    def children(self) -> list[Any]:
        return self.below


def test_a_child_that_shows_its_parents_memory_counts_once() -> None:
    worker = Process(40, 400)
    forked = Process(2_000, 9_000)  # of the JVM, and as large as it
    jvm = Process(2_000, 9_000, [worker, forked, Process(7, 70, gone=True)])
    assert memory._held(Process(100, 500, [jvm])) == 100 + 2_000 + 40  # type: ignore[arg-type]


def test_what_is_held_is_found() -> None:
    with memory.PeakMemory() as peak:
        held = bytearray(50_000_000)
        held[::4096] = b"x" * len(held[::4096])
    assert peak.bytes is not None
    assert peak.bytes > 50_000_000
