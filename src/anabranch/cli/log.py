"""`anabranch log STREAM`: the runs of a stream."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from anabranch.cli.show import Times, branch_option, console, count, json_option, table, warehouse_options
from anabranch.log.log import Log
from anabranch.model.run import RunHeader, RunKind
from anabranch.model.time import instant_text


@click.command()
@click.argument("stream")
@click.option(
    "-n", "--newest", default=20, show_default=True, type=click.IntRange(1), help="How many of the newest runs."
)
@warehouse_options
@branch_option
@json_option
def log(stream: str, newest: int, warehouse: str, catalog: str | None, branch: str | None, as_json: bool) -> None:
    """List the runs of STREAM: where each came from, what time it covers, and what it did to progress."""
    with Log(warehouse, catalog, create=False, branch=branch) as opened:
        state = opened.stream(stream)
        headers = opened.headers(state, newest=newest)
    if as_json:
        click.echo(json.dumps([_as_json(header) for header in headers], indent=2))
        return
    if not headers:
        console().print(f"No runs in {stream}.")
        return
    console().print(runs_table(f"Log of {stream}", headers))
    older = headers[0].first_position - 1
    if older:
        console().print(f"{count(older)} older not shown; --newest shows more.", style="dim")


def runs_table(title: str, headers: list[RunHeader]) -> Any:
    times = Times([t for h in headers for t in (h.event_min, h.event_max, h.mark, h.progress)])
    columns = ("position", "source", "kind", "rows", "event time", "progress", "")
    rows = [
        (
            _positions(header),
            header.source or "",
            str(header.kind),
            count(header.rows),
            _range(header, times),
            times.text(header.progress),
            _note(header),
        )
        for header in headers
    ]
    return table(f"{title}{times.heading}", columns, rows, right=("position", "rows"))


def _positions(header: RunHeader) -> str:
    same = header.first_position == header.position
    return str(header.position) if same else f"{header.first_position}..{header.position}"


def _range(header: RunHeader, times: Times) -> str:
    if header.kind is RunKind.PUNCTUATION:
        return f"from {times.text(header.mark)}"
    return times.range(header.event_min, header.event_max)


def _note(header: RunHeader) -> Text:
    notes = []
    if header.late:
        notes.append(("late", "yellow"))
    if header.quarantined:
        notes.append((f"{count(header.quarantined)} set aside", "red"))
    if header.trimmed:
        notes.append((f"{count(header.trimmed)} rows gone", "dim"))
    return Text(", ").join(Text(*note) for note in notes)


def _as_json(header: RunHeader) -> dict[str, Any]:
    stored = asdict(header)
    stored["run_id"] = str(header.run_id)
    stored["supersedes"] = [str(run_id) for run_id in header.supersedes]
    for name in ("event_min", "event_max", "mark", "progress", "progress_before", "stime"):
        stored[name] = instant_text(stored[name]) or None
    return {**stored, "late": header.late}
