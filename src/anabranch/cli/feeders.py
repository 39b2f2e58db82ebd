"""The directories that an application follows, each with the stream into which its files go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from anabranch.api.engine import Engine
from anabranch.api.stream import Stream
from anabranch.cli.follow import Directory, File, load, open_directory
from anabranch.log.buckets import BASE
from anabranch.log.log import Log
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunHeader


@dataclass(frozen=True)
class Feeder:
    """A directory and the stream that it feeds."""

    directory: Directory
    stream: Stream
    file_format: str | None
    on_bad_rows: str

    def load(self, file: File) -> RunHeader | AnabranchError:
        """Load one file, or answer what is wrong with it; either is remembered."""
        found = load(self.stream, file, self.file_format, self.on_bad_rows)
        if isinstance(found, AnabranchError):
            self.directory.refused(file)
        else:
            self.directory.loaded(file, found.stime)
        return found

    def changed(self, log: Log) -> list[File]:
        """The files that are not any more what the log refers to."""
        stream_id = self.stream.state().id
        return self.directory.changed(lambda file: not log.moments.still_refers_to(stream_id, str(file.path)))


def feeders_of(
    engine: Engine, bases: Sequence[str], follow: Sequence[str], into: Sequence[str], file_format: str | None,
    on_bad_rows: str,
) -> tuple[Feeder, ...]:  # fmt: skip
    """What `--follow` and `--into` ask for: the first directory goes into the first stream, and so on."""
    if into and len(into) != len(follow):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="--follow and --into",
            need="one --into for each --follow, in the same order",
            got=f"{len(follow)} --follow and {len(into)} --into",
            next_step="Name the stream of each directory.",
        )
    if follow and not into and len(bases) != 1:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"--follow {follow[0]}",
            need="one base stream to load into",
            got=", ".join(bases) or "an application that declares none",
            next_step="Name the stream with --into.",
        )
    streams = [_base(engine, name) for name in into or list(bases[:1]) * len(follow)]
    return tuple(
        Feeder(open_directory(path, stream), stream, file_format, on_bad_rows)
        for path, stream in zip(follow, streams, strict=True)
    )


def waiting(feeders: Sequence[Feeder], now: int, quiet: int) -> list[tuple[Feeder, File]]:
    """The files that are to be loaded, in turns of the directories, so that no stream is far ahead of another."""
    each = [[(feeder, file) for file in feeder.directory.waiting(now, quiet)] for feeder in feeders]
    return [found for turn in zip_longest(*each) for found in turn if found is not None]


def _base(engine: Engine, name: str) -> Stream:
    stream = engine.stream(name)
    if stream.state().role != BASE:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"--into {stream.name}",
            need="a base stream, into which rows can be loaded",
            got="a query, which emits its own rows",
            next_step="Name a stream that was created with columns.",
        )
    return stream
