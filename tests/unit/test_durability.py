"""Nothing is referred to before it is on the disk: what is synced, and in which order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from anabranch.log import units
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from tests.conftest import make_spec, rows_at


def test_segments_and_directories_are_synced_before_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_path / "w") as log:
        stream = log.create_stream(make_spec())
        happened: list[str] = []
        sync, commit = os.fsync, units.commit_run

        def fsync(descriptor: int) -> None:
            happened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            sync(descriptor)

        def commit_run(*args: Any, **options: Any) -> Any:
            happened.append("header")
            return commit(*args, **options)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(units, "commit_run", commit_run)
        for single in (True, False):
            happened.clear()
            with log.unit_of_work(stream, single=single) as work:
                work.append(rows_at(1, 100_000))
            segments = [str(log.root / s.segment.path) for s in log.plan("impsns", ReadRange()).segments][-2:]
            before = happened[: happened.index("header")]
            directory = str(Path(segments[0]).parent)
            for path in (*segments, directory, str(Path(directory).parent), str(log.root / "data"), str(log.root)):
                assert path in before, f"{path} was not synced before the header was written"
            last_segment = max(before.index(path) for path in segments)
            assert directory in before[last_segment:], "the directory is synced once its files are there"
