"""`anabranch demo`: a feed that is late, silent and wrong, and a log that loses none of it."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from rich.console import Console

from anabranch.api.engine import Engine, connect
from anabranch.api.stream import Stream
from anabranch.cli.log import runs_table
from anabranch.cli.show import console, count, table
from anabranch.cli.streams import streams_table
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.time import instant_us

_START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_MINUTES = 6
_ROWS = 600  # rows of one server in one minute
_SILENT = range(2, 5)  # minutes in which web-3 is cut off


@click.command()
@click.option("-w", "--warehouse", help="Keep the demo's warehouse here; a temporary one if not given.")
def demo(warehouse: str | None) -> None:
    """Feed ad impressions from three servers, one of them cut off, and show that nothing is lost."""
    out = console()
    keep = nullcontext(warehouse) if warehouse else tempfile.TemporaryDirectory(prefix="anabranch-")
    with keep as place, connect(warehouse or Path(str(place)) / "demo") as engine:
        stream = _create(engine)
        if stream.state().runs:
            raise AnabranchError(
                "BAD_ARGUMENT",
                place=f"warehouse {warehouse!r}",
                need="one in which the demo has not run yet",
                got="a stream 'impsns' that has rows",
                next_step="Choose another directory, or remove that one.",
            )
        _explain(out)
        sent = _feed(out, stream)
        out.print()
        out.print(runs_table("What the log of impsns says", stream.runs()))
        out.print()
        out.print(streams_table([s.state() for s in engine.streams()]))
        out.print()
        _read_back(out, engine, stream, sent)
    if warehouse:
        out.print(f"\nLook again with: anabranch log impsns -w {warehouse}")


def _create(engine: Engine) -> Stream:
    return engine.create_stream(
        "impsns",
        "user INT, campaign INT, price DOUBLE, ts TIMESTAMP",
        event_time="ts",
        slack="10 seconds",
        drift="90 seconds",
    )


def _explain(out: Console) -> None:
    out.print("Three servers send ad impressions minute by minute. web-3 is cut off for three")
    out.print("minutes and then delivers its old log. Slack of 10 seconds waits for small delays;")
    out.print("drift of 90 seconds stops waiting for a server that is silent.\n")


def _feed(out: Console, stream: Stream) -> int:
    """Append every server's minutes as runs of their own; web-3's missing ones come at the end."""
    sent = 0
    for server in (1, 2, 3):
        stream.punctuate(_START, source=f"web-{server}")  # say who is to be waited for
    for minute in range(_MINUTES):
        for server in (1, 2, 3):
            if server == 3 and minute in _SILENT:
                continue
            sent += stream.append(_impressions(server, minute), source=f"web-{server}").rows
    with stream.unit_of_work(source="web-3") as work:
        for minute in _SILENT:
            work.append(_impressions(3, minute))
            sent += _ROWS
    broken = [{"user": 0, "campaign": 0, "price": 0.0, "ts": None}]
    stream.append(broken, source="web-2", on_bad_rows="quarantine")
    out.print(f"Sent {count(sent)} impressions in {stream.state().runs} runs, and one row without a time.")
    return sent


def _impressions(server: int, minute: int) -> list[dict[str, object]]:
    start = _START + timedelta(minutes=minute)
    return [
        {
            "user": (row * 7919 + server) % 10_000,
            "campaign": (row * 31 + minute) % 5,
            "price": round(0.01 * ((row * 17) % 100), 2),
            "ts": start + timedelta(microseconds=row * 100_000),
        }
        for row in range(_ROWS)
    ]


def _read_back(out: Console, engine: Engine, stream: Stream, sent: int) -> None:
    with out.status("Starting Spark ..."):
        rows = (
            stream.read(log_columns=True)
            .selectExpr("date_format(ts, 'HH:mm') AS minute", "_source")
            .groupBy("minute")
            .pivot("_source", ["web-1", "web-2", "web-3"])
            .count()
            .orderBy("minute")
            .collect()
        )
        late_from = _START + timedelta(minutes=_SILENT[0])
        late = stream.read(from_time=late_from, to_time=late_from + timedelta(minutes=1)).count()
    lines = [[str(value) if isinstance(value, str) else count(value) for value in row] for row in rows]
    columns = ("minute", "web-1", "web-2", "web-3")
    out.print(table("What Spark reads back, rows a minute", columns, lines, right=columns[1:]))
    held = sum(value for row in rows for value in row[1:])
    minute = ReadRange(from_time=instant_us(late_from, "demo"), to_time=instant_us(late_from, "demo") + 60_000_000)
    opened = len(engine.plan(stream.name, minute).segments)
    total = len(engine.plan(stream.name, ReadRange()).segments)
    out.print(f"\nRows sent {count(sent)}, rows held {count(held)}, lost {count(sent - held)}.")
    out.print(f"Reading minute {late_from:%H:%M} opened {opened} of {total} segments and found {count(late)} rows.")
    aside = stream.quarantined().collect()
    out.print(f"Set aside: {len(aside)} row, because of {aside[0]['_reason']}.")
