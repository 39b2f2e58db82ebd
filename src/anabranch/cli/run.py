"""`anabranch run`: an application at work, fed from directories."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import click
from rich.console import Console

from anabranch.api.engine import Engine, connect
from anabranch.cli.application import Application, create, undone_on_error
from anabranch.cli.feeders import Feeder, feeders_of, waiting
from anabranch.cli.follow import LINE_US, File
from anabranch.cli.interrupt import until_interrupted
from anabranch.cli.show import branch_option, console, count, warehouse_options, warn, warn_of_halted
from anabranch.cli.texts import read_text
from anabranch.diagram.sql.parse import parse
from anabranch.engine.advance import Advanced
from anabranch.engine.retries import OUTAGES
from anabranch.log.clock import system_clock
from anabranch.log.log import Log
from anabranch.model.errors import AnabranchError
from anabranch.model.time import duration_text, duration_us, instant_text

_AT_ONCE = 100  # files in one bucket at most, so that a long backlog shows progress


@click.command()
@click.argument("app")
@click.option("--follow", metavar="DIR", multiple=True, help="Load each new file of this directory as one run.")
@click.option(
    "--into",
    metavar="STREAM",
    multiple=True,
    help="The stream to load into, if APP has not exactly one base stream; one for each --follow, in their order.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "json", "csv"]),
    help="What the files are, if their names do not tell.",
)
@click.option(
    "--on-bad-rows",
    type=click.Choice(["refuse", "quarantine"]),
    default="refuse",
    show_default=True,
    help="Refuse a file that has rows without an event time, or set these rows aside.",
)
@click.option("--interval", default="1 second", show_default=True, help="How often to look for new files.")
@click.option("--once", is_flag=True, help="Process what is there and end.")
@warehouse_options
@branch_option
def run(
    app: str, follow: tuple[str, ...], into: tuple[str, ...], file_format: str | None, on_bad_rows: str, interval: str,
    once: bool, warehouse: str, catalog: str | None, branch: str | None,
) -> None:  # fmt: skip
    """Create the streams that the file APP declares, and keep their answers up to date.

    Streams that are there already, as APP declares them, stay as they are, so running it again goes on where it
    stopped. What is wrong with the rest of APP, or with a directory, leaves none of them behind. With --follow,
    every file of a directory (Parquet, JSON lines or CSV) is loaded once, by reference; the name of a sub-directory
    becomes the source of its files. With several --follow, each has its --into. Names that begin with . or _ or
    end in .tmp or .part are not yet complete: rename a file when it is. A file that cannot be loaded is reported
    and tried again when it changes; with --once, the exit code is 1 then. A catalog that does not answer, or a disk
    that is full, is tried again, unless with --once. Ctrl-C ends it after the step that is under way.
    """
    pause = duration_us(interval, "--interval")
    statements = parse(read_text(app), app)
    out = console()
    with (
        connect(warehouse, catalog=catalog, branch=branch) as engine,
        Log(warehouse, catalog, create=False, branch=branch) as log,
    ):
        with out.status("Starting Spark ..."):
            with undone_on_error(engine) as made:
                application = create(engine, log, statements, made)
                feeders = feeders_of(engine, application.bases, follow, into, file_format, on_bad_rows)
            _ = engine.spark
        _tell(out, application, feeders)
        with until_interrupted() as stop:
            runner = _Runner(engine, log, out, feeders, stop)
            while True:
                runner.look(0 if once else pause, patient=not once)
                if once or stop.wait(pause / 1_000_000):
                    break
        runner.summary()
    if once and runner.skipped:
        sys.exit(1)


def _tell(out: Console, made: Application, feeders: Sequence[Feeder]) -> None:
    for name in (*made.bases, *made.queries):
        out.print(f"Stream {name} {'was created.' if name in made.made else 'is there already.'}")
    for feeder in feeders:
        out.print(f"Files of {feeder.directory.root} go into {feeder.stream.name}.")


class _Runner:
    """Loads and advances in turns, and keeps count."""

    def __init__(self, engine: Engine, log: Log, out: Console, feeders: Sequence[Feeder], stop: Event) -> None:
        self.engine = engine
        self.log = log
        self.out = out
        self.feeders = feeders
        self.stop = stop
        self.files = self.rows = self.changes = 0
        self.skipped: set[Path] = set()  # files that could not be loaded so far
        self.halted: set[str] = set()

    def look(self, quiet: int, *, patient: bool) -> None:
        """A turn; what passes by itself, such as a catalog that is restarted, is reported and left to the next one."""
        try:
            self.turn(quiet, patient=patient)
        except AnabranchError as error:
            if error.id not in OUTAGES or not patient:
                raise
            warn("tries again", f"{error.id}, {error.place}: {error.got}")

    def turn(self, quiet: int, *, patient: bool) -> None:
        """Take in what is waiting, a bucket at a time."""
        for files in self._portions(quiet):
            with self.out.status("Loading ...") as status:
                rows, loaded = 0, 0
                for number, (feeder, file) in enumerate(files, 1):
                    status.update(f"Loading {file.name} ({number} of {len(files)}) ...")
                    found = self._load(feeder, file)
                    rows, loaded = rows + (found or 0), loaded + (found is not None)
                status.update("Processing ...")
                # Revisions that queries defer wait while files keep coming.
                done = self._advance(patient, release=not files or not patient)
            self._report(loaded, rows, done)
            if self.stop.is_set():
                return

    def _portions(self, quiet: int) -> Iterator[Sequence[tuple[Feeder, File]]]:
        """What goes into each bucket; at least one, since others may have appended too."""
        found = waiting(self.feeders, system_clock(), quiet)
        for feeder in self.feeders:
            for file in feeder.changed(self.log):
                warn("changed", f"{file.name}: the log refers to the file as it was when it was loaded, and its stream "
                     "cannot be read until it is that again. Put it back, and new rows into a new file")  # fmt: skip
            for file in feeder.directory.unfinished:
                if file.path not in self.skipped:
                    self.skipped.add(file.path)
                    warn("waits", f"{file.name}: its last line has no end. It is loaded when it has one, or when the "
                         f"file was left alone for {duration_text(LINE_US)}")  # fmt: skip
        for start in range(0, max(len(found), 1), _AT_ONCE):
            yield found[start : start + _AT_ONCE]

    def _load(self, feeder: Feeder, file: File) -> int | None:
        """How many rows a file brought; None if it was skipped, or there before."""
        found = feeder.load(file)
        if isinstance(found, AnabranchError):
            self.skipped.add(file.path)
            warn("skipped", f"{file.name}: {found.id}, need {found.need}; got {found.got}")
            return None
        self.skipped.discard(file.path)
        return None if found.duplicate else found.rows

    def _advance(self, patient: bool, *, release: bool) -> Advanced:
        try:
            return self.engine.advance(release=release)
        except AnabranchError as error:
            if error.id != "LEASE_HELD" or not patient:
                raise
            return Advanced()  # another engine is at it: what was loaded is processed there, or in the next turn

    def _report(self, files: int, rows: int, done: Advanced) -> None:
        self.files, self.rows, self.changes = self.files + files, self.rows + rows, self.changes + done.changes
        if files or done.buckets:
            text = f"{_many(files, 'file'):>9}  {_many(rows, 'row'):>14}  {_many(done.changes, 'change'):>15}"
            came = [feeder.stream.state().progress for feeder in self.feeders]
            progress = min((p for p in came if p is not None), default=None)
            known = progress is not None and None not in came
            self.out.print(text + (f"  progress {instant_text(progress)}" if known else ""))
        halted = {name: error for name, error in self.engine.halted().items() if name not in self.halted}
        warn_of_halted(halted, {name.lower() for name in halted})
        self.halted |= set(halted)

    def summary(self) -> None:
        did = ", ".join((_many(self.files, "file"), _many(self.rows, "row"), _many(self.changes, "change")))
        skipped = f"; {_many(len(self.skipped), 'file')} skipped" if self.skipped else ""
        self.out.print(f"In all {did}{skipped}.", style="dim")


def _many(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"
