"""`anabranch bench NAME`: what is fast, beside a named rival in the same run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from anabranch.bench.branch import bench_branch
from anabranch.bench.late import bench_late
from anabranch.bench.log import bench_log
from anabranch.bench.nexmark import bench_nexmark
from anabranch.bench.nexmark_queries import QUERIES
from anabranch.bench.revise import bench_revise
from anabranch.bench.scale import bench_scale
from anabranch.bench.step import bench_step
from anabranch.bench.wide import bench_wide
from anabranch.cli.show import console, json_option, table
from anabranch.model.report import Report

_SIZE = click.IntRange(min=1)


@click.group()
def bench() -> None:
    """Measure against rivals that run beside the engine, and check the answers of all."""


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    small = click.option("--small", is_flag=True, help="Quick, for correctness; its ratios mean nothing.")
    return small(json_option(command))


_kept = click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Keep the files in this directory, to use again."
)


@bench.command()
@_common
def log(small: bool, as_json: bool) -> None:
    """The log, against a rival that does only the I/O, and syncs, checks and records nothing."""
    _finish(bench_log(small=small, quiet=as_json), as_json)


@bench.command()
@_common
@click.option("--rows", type=_SIZE, help="How many rows.  [default: 20,000,000]")
@click.option("--files", type=_SIZE, help="In how many files.  [default: 200]")
@_kept
def late(small: bool, as_json: bool, rows: int | None, files: int | None, data: Path | None) -> None:
    """Rows that come late, against Structured Streaming: rows a second, memory, and what is lost."""
    _finish(bench_late(small=small, quiet=as_json, rows=rows, files=files, data=data), as_json)


@bench.command()
@_common
@click.option("--steps", type=_SIZE, help="How many steps are measured.  [default: 500]")
@click.option("--campaigns", type=_SIZE, help="How many groups a window has.  [default: 1,000]")
@click.option("--profile", is_flag=True, help="Say where the milliseconds of a step go, instead.")
def step(small: bool, as_json: bool, steps: int | None, campaigns: int | None, profile: bool) -> None:
    """Small steps over an hour, a day and a month of history, against Structured Streaming's micro-batches."""
    report = bench_step(small=small, quiet=as_json, steps=steps, campaigns=campaigns, profile=profile)
    _finish(report, as_json)


@bench.command()
@_common
@click.option("--steps", type=_SIZE, help="How many steps are measured.  [default: 30]")
def revise(small: bool, as_json: bool, steps: int | None) -> None:
    """What revisions cost, and that it does not grow with the history: joins, windows of rows, keys."""
    _finish(bench_revise(small=small, quiet=as_json, steps=steps), as_json)


@bench.command()
@_common
@click.option("--events", type=_SIZE, help="How many events.  [default: 2,000,000]")
@click.option(
    "--query", "queries", type=click.Choice(list(QUERIES)), multiple=True, help="Only this one; may be repeated."
)
def nexmark(small: bool, as_json: bool, events: int | None, queries: tuple[str, ...]) -> None:
    """Nexmark's queries over people, auctions and bids, each against one Spark batch, and Structured Streaming."""
    _finish(bench_nexmark(small=small, quiet=as_json, events=events, queries=queries), as_json)


@bench.command()
@_common
@click.option("--steps", type=_SIZE, help="How many steps are measured.  [default: 12]")
def wide(small: bool, as_json: bool, steps: int | None) -> None:
    """A hundred different queries in one engine, against one: over the same stream, and over fifty."""
    _finish(bench_wide(small=small, quiet=as_json, steps=steps), as_json)


@bench.command()
@_common
@click.option("--rows", type=_SIZE, help="How many rows the first size has.  [default: 2,000,000]")
@_kept
def scale(small: bool, as_json: bool, rows: int | None, data: Path | None) -> None:
    """Five and twenty times as many rows, against the first size; and clusters of one worker and two."""
    _finish(bench_scale(small=small, quiet=as_json, rows=rows, data=data), as_json)


@bench.command()
@_common
@click.option("--steps", type=_SIZE, help="How many steps a branch and main take.  [default: 60]")
@click.option("--catalog", metavar="URL", help="An empty PostgreSQL catalog, instead of a server that is started.")
def branch(small: bool, as_json: bool, steps: int | None, catalog: str | None) -> None:
    """Branches: to fork, open, advance and drop them, with few runs and many, and what a step there costs."""
    _finish(bench_branch(small=small, quiet=as_json, steps=steps, catalog=catalog), as_json)


def _finish(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    sys.exit(0 if report.holds else 1)


def _print(report: Report) -> None:
    out = console()
    columns = list(report.rows[0])
    rows = [[_cell(row[c]) for c in columns] for row in report.rows]
    out.print(table(f"bench {report.name}", columns, rows, right=columns[1:]))
    for kind, items in (("claim", report.claims), ("aim", report.aims)):
        for item in items:
            mark = "[green]holds[/]" if item.holds else "[red]fails[/]" if kind == "claim" else "[yellow]missed[/]"
            out.print(f"{kind} {mark}  {item.claim}: expected {_cell(item.expected)}, ours {_cell(item.ours)}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
