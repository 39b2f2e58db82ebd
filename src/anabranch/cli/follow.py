"""Following a directory: each file that is complete becomes one run, and becomes it once.

A run is known by the path of its file, since that is what the log refers to. So a file that was loaded before
is not loaded again, whoever loaded it and however often the follower was restarted. A file that cannot be loaded
is tried again when it has changed.

Of what a directory sink has written, each bucket is a sub-directory: these are taken in their order, none before those
that come before it, and are no sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.api.stream import Stream
from anabranch.log.references import in_order, unit_of
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunHeader, RunId

_UNFINISHED = (".tmp", ".part")
_TEXT = (".csv", ".json", ".jsonl", ".ndjson")
LINE_US = 10_000_000  # how long a text that ends within a line must have been left alone
_LONGEST = 200  # an entry point's name is bounded; longer paths are known by their hash

# What is wrong with one file. Everything else, such as a full disk, ends the follower.
_OF_THE_FILE = frozenset(
    ("BAD_ARGUMENT", "BAD_EVENT_TIME", "BAD_SCHEMA", "BAD_TIME", "FILE_CHANGED", "FILE_UNREADABLE", "NOT_SUPPORTED",
     "NULL_VALUE", "TIME_ZONE", "UNKNOWN_COLUMN", "WRONG_TYPE")
)  # fmt: skip

Mark = tuple[int, int]  # modification time and size: what tells that a file has changed


@dataclass(frozen=True)
class File:
    path: Path
    name: str  # as people know it: below the directory
    mark: Mark

    @property
    def changed_at(self) -> int:
        return self.mark[0] // 1_000

    @property
    def source(self) -> str | None:
        """The sub-directory that the file is in, at the top."""
        first, _, rest = self.name.partition("/")
        return first if rest and not unit_of(first) else None

    @property
    def feed(self) -> str | None:
        """The directory of the sink that wrote the file; None of others."""
        return str(self.path.parent.parent) if unit_of(self.path.parent.name) else None

    @property
    def turn(self) -> tuple[str, int, str]:
        """When it is taken: older files first, and those of a sink in its order."""
        return (self.feed or "", 0 if self.feed else self.mark[0], in_order(self.name))

    def ends_whole(self) -> bool:
        """Whether its last line is complete, if it has lines: somebody may still be writing one that is not."""
        if not self.name.lower().endswith(_TEXT):
            return True
        try:
            with self.path.open("rb") as lines:
                lines.seek(max(self.mark[1] - 1, 0))
                return lines.read(1) in (b"\n", b"")
        except OSError:
            return False

    @property
    def run_id(self) -> RunId:
        path = str(self.path)
        short = len(path) <= _LONGEST and path.isprintable()
        return RunId(f"file:{path if short else hashlib.sha256(os.fsencode(path)).hexdigest()}", 1)


@dataclass
class Directory:
    """A directory into which others put files."""

    root: Path
    taken: dict[str, int] = field(default_factory=dict)  # the entry points that the log has, and when it got them
    unfinished: list[File] = field(default_factory=list)  # at the last look: texts that end within a line
    _done: dict[Path, Mark] = field(default_factory=dict)
    _seen: dict[Path, Mark] = field(default_factory=dict)

    def waiting(self, now: int, quiet: int) -> list[File]:
        """The files to be loaded, oldest first: those that stayed as they are for so many microseconds."""
        found = sorted(self._files(), key=lambda file: file.turn)
        last, self._seen = self._seen, {file.path: file.mark for file in found}
        new = [f for f in found if self._done.get(f.path) != f.mark and f.run_id.entry_point not in self.taken]
        still = [f for f in new if last.get(f.path) == f.mark or now - f.changed_at >= quiet]
        whole = [f for f in still if now - f.changed_at >= LINE_US or f.ends_whole()]
        self.unfinished = [f for f in still if f not in whole]
        early = {f.feed: f.turn for f in reversed(new) if f.feed is not None and f not in whole}
        return [f for f in whole if f.feed not in early or f.turn < early[f.feed]]

    def changed(self, differs: Callable[[File], bool]) -> list[File]:
        """The files that the last look found changed since they were loaded; each is told once.

        A file that was only touched, or put back, is not changed: `differs` looks into it.
        """
        seen = [File(path, path.relative_to(self.root).as_posix(), mark) for path, mark in self._seen.items()]
        known = [f for f in seen if f.changed_at > self.taken.get(f.run_id.entry_point, f.changed_at)]
        told = [f for f in known if self._done.get(f.path) != f.mark]
        self._done |= {f.path: f.mark for f in told}
        return [f for f in told if differs(f)]

    def loaded(self, file: File, stime: int) -> None:
        self._done[file.path] = file.mark
        self.taken[file.run_id.entry_point] = stime

    def refused(self, file: File) -> None:
        self._done[file.path] = file.mark

    def _files(self) -> Iterator[File]:
        for place, directories, names in os.walk(self.root, followlinks=True):
            directories[:] = [d for d in directories if not d.startswith((".", "_")) or unit_of(d)]
            for name in names:
                if name.startswith((".", "_")) or name.endswith(_UNFINISHED):
                    continue
                path = Path(place) / name
                try:
                    facts = path.stat()
                except OSError:  # gone since it was listed
                    continue
                yield File(path, path.relative_to(self.root).as_posix(), (facts.st_mtime_ns, facts.st_size))


def open_directory(path: str, stream: Stream) -> Directory:
    """A directory, and what the stream has of it already."""
    root = Path(path).resolve()
    if not root.is_dir():
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"--follow {path}",
            need="a directory",
            got="a file" if root.exists() else "nothing there",
            next_step="Check the path, or make the directory first.",
        )
    return Directory(root, {header.run_id.entry_point: header.stime for header in stream.runs()})


def load(stream: Stream, file: File, file_format: str | None, on_bad_rows: str) -> RunHeader | AnabranchError:
    """Load one file as one run, or say what is wrong with it."""
    try:
        return stream.load(
            file.path, format=file_format, source=file.source, run_id=file.run_id, on_bad_rows=on_bad_rows
        )
    except AnabranchError as error:
        if error.id not in _OF_THE_FILE:
            raise
        return error
