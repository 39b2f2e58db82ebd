"""Runs with an identity and a stamp of their own, as other sites have made them, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.log.commit import commit_run
from anabranch.log.intents import end_intents
from anabranch.model.run import ChangeType, RunDraft, RunId
from anabranch.reference.netting import LoggedChange

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
STIME = 1_700_000_000_000_000
COLUMNS = ("id", "v", "ts")


@dataclass(frozen=True)
class CopiedRun:
    run_id: RunId
    stime: int
    changes: tuple[tuple[ChangeType, int, int], ...]  # what, id, v

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{**values(number, v), "_change_type": str(what)} for what, number, v in self.changes]

    @property
    def logged(self) -> list[LoggedChange]:
        found = enumerate(self.changes)
        return [LoggedChange(what, values(n, v), (self.stime, *self.run_id, at)) for at, (what, n, v) in found]


def values(number: int, v: int) -> dict[str, Any]:
    """Rows that are equal in `id` and `v` are equal in all."""
    return {"id": number, "v": v, "ts": ZERO + timedelta(minutes=v)}


def draw_runs(seed: int, many: int = 14) -> list[CopiedRun]:
    """Runs of three entry points, which stamp without knowing of each other: often the same."""
    chance = np.random.default_rng(seed)
    runs, sequences = [], dict.fromkeys(("east", "west", "Zoë"), 0)
    kinds = (
        [ChangeType.INSERT] * 4 + [ChangeType.DELETE] * 3 + [ChangeType.UPDATE_POSTIMAGE, ChangeType.UPDATE_PREIMAGE]
    )
    for _ in range(many):
        name = str(chance.choice(list(sequences)))
        sequences[name] += 1
        size = int(chance.integers(2, 6))
        drawn = [(kinds[chance.integers(len(kinds))], *map(int, chance.integers(0, (4, 3)))) for _ in range(size)]
        # Each entry point's stamps rise; of several entry points they are often equal, also of other sequences.
        stime = STIME + (2 if name == "Zoë" else 1) * sequences[name]
        runs.append(CopiedRun(RunId(name, sequences[name]), stime, tuple(drawn)))
    return runs


def draw_moves(seed: int, many: int = 14) -> list[CopiedRun]:
    """Runs in which no row comes twice, so that `id` and `v` tell rows apart; some go, once or twice, at any time."""
    chance = np.random.default_rng(seed)
    changes: list[list[tuple[ChangeType, int, int]]] = [[] for _ in range(many)]
    for number in range(many):
        for v in range(3):
            changes[chance.integers(many)].append((ChangeType.INSERT, number, v))
            for _ in range(chance.integers(3)):
                changes[chance.integers(many)].append((ChangeType.DELETE, number, v))
    return [CopiedRun(RunId("east", n + 1), STIME + n, tuple(some)) for n, some in enumerate(changes) if some]


def take(engine: ab.Engine, stream: ab.Stream, run: CopiedRun, *, staged: bool = False) -> None:
    """Take a run with the stamp that it has elsewhere; once more changes nothing.

    Staged, it gets its position with its bucket, among other copies by their versions; otherwise at once, by arrival.
    """
    log, state = engine._log, stream.state()
    unit = log.unit_of_work(state, run_id=run.run_id, stime=run.stime)
    unit.append(run.rows)
    if staged:
        unit.commit()
        return
    assert unit._intent is not None
    draft = RunDraft(unit._kind, tuple(unit._segments), run_id=run.run_id, stime=run.stime)
    with log.catalog.write() as connection:
        commit_run(connection, state.id, draft, clock=log.clock(), intent_id=unit._intent.id)
        end_intents(connection, unit._intent.id)
    log.intents.forget(unit._intent)


def logged(runs: Sequence[CopiedRun]) -> list[LoggedChange]:
    return [change for run in runs for change in run.logged]
