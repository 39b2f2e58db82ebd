"""`anabranch tail STREAM`: what a stream says, as it says it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import click
from rich.console import Console

from anabranch.api.engine import Engine, connect
from anabranch.cli.changes import lines, paired
from anabranch.cli.interrupt import until_interrupted
from anabranch.cli.show import branch_option, console, json_option, warehouse_options, warn_of_halted
from anabranch.cli.values import Row, rows_of, value_json, value_text
from anabranch.log.log import Log

_PAUSE = 0.5  # seconds between looks at the catalog


@click.command()
@click.argument("stream")
@click.option(
    "--from",
    "first",
    default=-10,
    show_default=True,
    help="The position of the stream's log to begin with; -N for the last N positions.",
)
@click.option("--once", is_flag=True, help="Print what is there and end.")
@warehouse_options
@branch_option
@json_option
def tail(
    stream: str, first: int, once: bool, warehouse: str, catalog: str | None, branch: str | None, as_json: bool
) -> None:
    """Print the changes of STREAM as they happen: + insert, ~ update, - delete; with ? while tentative.

    It only looks: it does not advance the warehouse, which `anabranch run` or another engine does. With --json,
    each change is an object on a line of its own. Ctrl-C ends it.
    """
    if first == 0:
        raise click.BadParameter("positions begin at 1; -N counts from the newest.", param_hint="--from")
    out = console()
    with (
        Log(warehouse, catalog, create=False, branch=branch) as log,
        connect(warehouse, catalog=catalog, create=False, branch=branch) as engine,
    ):
        feed = Feed(engine, log, stream, first)
        with out.status("Starting Spark ..."):
            _ = engine.spark
        warn_of_halted(engine.halted(), {stream.lower()})
        with until_interrupted() as stop:
            while True:
                news = feed.news()
                if as_json:
                    _print_json(news)
                else:
                    _print(out, news, feed.columns)
                if once or stop.wait(_PAUSE):
                    break


class Feed:
    """The changes of one stream, each of them once."""

    def __init__(self, engine: Engine, log: Log, name: str, first: int) -> None:
        state = log.stream(name)
        self.engine = engine
        self.log = log
        self.name = name
        self.columns = [c for c in state.spec.schema.names if not c.startswith("_")]
        self._first = first if first > 0 else max(state.last_position + 1 + first, 1)
        self._seen = self._first - 1  # the last position whose changes were given
        self._tentative: Counter[int] = Counter()  # by the bucket that they rest on
        self._looked: tuple[int, int] | None = None

    def news(self) -> list[Row]:
        """What was said since the last call; nothing is read unless something was."""
        state = self.log.stream(self.name)
        now = (state.last_position, self._tentative_position())
        if now in (self._looked, (0, 0)):
            return []
        # Tentative changes rest on the newest bucket, so the last position that is known is read once more.
        begin = self._first if self._looked is None else self._seen
        self._looked = now
        begin = max(min(begin, state.last_position), 1)
        rows = rows_of(self.engine.changes(self.name, starting_position=begin), f"tail {self.name!r}")
        new = self._unseen(rows)
        self._seen = max([self._seen, state.last_position, *(r["_position"] or 0 for r in rows)])
        return new

    def _tentative_position(self) -> int:
        feeds = [q.feed_id for q in self.log.register.queries() if q.name == self.name]
        return self.log.stream_by_id(feeds[0]).last_position if feeds else 0

    def _unseen(self, rows: Sequence[Row]) -> list[Row]:
        """Tentative changes have no position: in each bucket, the first ones are those that were there before."""
        new, met = [], Counter[int]()
        for row in rows:
            if row["_position"] is not None:
                if row["_position"] > self._seen:
                    new.append(row)
                continue
            met[row["_bucket"]] += 1
            if met[row["_bucket"]] > self._tentative[row["_bucket"]]:
                new.append(row)
        self._tentative = met | self._tentative
        return new


def _print(out: Console, rows: Sequence[Row], columns: Sequence[str]) -> None:
    for (position, bucket), group in groupby(rows, lambda row: (row["_position"], row["_bucket"])):
        said = list(group)
        where = f"on bucket {bucket}, tentative" if position is None else f"position {position}"
        if position is not None and bucket is not None:
            where += f", bucket {bucket}"
        out.print(f"{where}, {value_text(said[0]['_stime'])}", style="dim")
        for line in lines(list(paired(said)), columns):
            out.print(line, soft_wrap=True)


def _print_json(rows: Sequence[Row]) -> None:
    for row in rows:
        click.echo(json.dumps({name: value_json(value) for name, value in row.items()}, ensure_ascii=False))
