"""`anabranch streams`: what is in a warehouse."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import click

from anabranch.cli.show import Times, branch_option, console, count, json_option, size, table, warehouse_options
from anabranch.log.log import Log, StreamState
from anabranch.model.time import duration_text, history_text, instant_text


@click.command()
@warehouse_options
@branch_option
@json_option
def streams(warehouse: str, catalog: str | None, branch: str | None, as_json: bool) -> None:
    """List the streams of a warehouse, with their sizes and how far they have come."""
    with Log(warehouse, catalog, create=False, branch=branch) as log:
        found = log.streams()
        halted = {query.name: query.halted for query in log.register.queries() if query.halted is not None}
    if as_json:
        click.echo(json.dumps([{**_as_json(s), "halted": halted.get(s.name)} for s in found], indent=2))
        return
    if not found:
        console().print(f"No streams in {warehouse}.")
        return
    console().print(streams_table(found, halted))


def streams_table(found: list[StreamState], halted: Container[str] = ()) -> Any:
    times = Times([t for s in found if not s.spec.timeless for t in (s.event_min, s.event_max, s.progress)])
    columns: tuple[str, ...] = ("stream", "rows", "runs", "sources", "event time", "progress", "set aside", "size")
    rows = [
        (
            state.name,
            count(state.rows - state.trimmed),
            count(state.runs),
            count(state.sources),
            "" if state.spec.timeless else times.range(state.event_min, state.event_max),
            times.text(state.progress),
            count(state.quarantined),
            size(state.size),
            *(["halted" if state.name in halted else ""] if halted else []),
        )
        for state in found
    ]
    columns = (*columns, "state") if halted else columns
    return table(f"Streams{times.heading}", columns, rows, right=("rows", "runs", "sources", "set aside", "size"))


def _as_json(state: StreamState) -> dict[str, Any]:
    spec = state.spec
    return {
        "name": state.name,
        "columns": spec.schema.to_json(),
        "event_time": spec.event_time,
        "key": list(spec.key),
        "slack": duration_text(spec.slack),
        "drift": None if spec.drift is None else duration_text(spec.drift),
        "history": history_text(spec.history, spec.history_rows) or None,
        "position": state.last_position,
        "runs": state.runs,
        "rows": state.rows - state.trimmed,
        "rows_gone": state.trimmed,
        "quarantined": state.quarantined,
        "sources": state.sources,
        "size": state.size,
        "event_min": instant_text(state.event_min) or None,
        "event_max": instant_text(state.event_max) or None,
        "progress": instant_text(state.progress) or None,
    }
