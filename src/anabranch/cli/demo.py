"""`anabranch demo`: a server is cut off and comes back with an old log; one engine corrects itself, one cannot."""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from anabranch.api.engine import Engine, connect
from anabranch.cli.changes import lines, paired
from anabranch.cli.demo_feed import (
    CUT_OFF,
    MINUTES,
    RETURNS,
    SERVERS,
    SILENT,
    START,
    Answer,
    Delivery,
    deliveries,
    truth,
)
from anabranch.cli.demo_rival import WATERMARK, Rival
from anabranch.cli.show import console, count, table
from anabranch.cli.values import rows_of
from anabranch.model.errors import AnabranchError

_APPLICATION = """
CREATE STREAM impressions (campaign INT, price DECIMAL(8, 2), ts TIMESTAMP)
EVENT TIME ts SLACK '10 seconds' DRIFT '1 minute';

CREATE STREAM campaigns AS
SELECT cq_open(*) AS minute, campaign, count(*) AS views, sum(price) AS revenue
FROM impressions <SLICES '1 minute'> GROUP BY campaign;
"""


@click.command()
@click.option("-w", "--warehouse", help="Keep the demo's warehouse here; a temporary one if not given.")
def demo(warehouse: str | None) -> None:
    """Count ad impressions of four servers, one of them cut off, beside Spark Structured Streaming.

    Both read the same files in the same run. It takes about half a minute, and ends with exit code 1 if a single
    answer of ours is wrong.
    """
    out = console()
    with tempfile.TemporaryDirectory(prefix="anabranch-") as spare:
        place = Path(warehouse or Path(spare) / "demo").absolute()
        # The log refers to the files, so they stay where the warehouse stays.
        files = place.with_name(f"{place.name}-files")
        with connect(place) as engine:
            _require_new(engine, place, files)
            right = _show(out, engine, files, Path(spare))
    if warehouse:
        out.print(f"\nLook again with: anabranch tail campaigns --once -w {warehouse}")
    sys.exit(0 if right else 1)


def _require_new(engine: Engine, place: Path, files: Path) -> None:
    if engine.streams() or files.exists():
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"warehouse {place}",
            need="one in which the demo has not run yet",
            got=", ".join(s.name for s in engine.streams()) or f"{files}, from an earlier run",
            next_step="Choose another directory, or remove that one.",
        )


def _show(out: Console, engine: Engine, files: Path, spare: Path) -> bool:
    _explain(out)
    with out.status("Starting Spark ..."):
        engine.sql(_APPLICATION, name="demo")
        rival = Rival(engine.spark, files, spare / "checkpoint")
    with rival:
        for delivery in deliveries(files):
            _deliver(out, engine, rival, delivery)
        ours, theirs = _ours(engine), rival.answer()
    return _compare(out, ours, theirs)


def _explain(out: Console) -> None:
    first, last = (START + timedelta(minutes=SILENT[at]) for at in (0, -1))
    returns = START + timedelta(minutes=RETURNS)
    out.print("Four servers write their ad impressions into files, minute by minute.")
    out.print(f"{CUT_OFF} is cut off from {first:%H:%M} to {last:%H:%M}, and delivers its old log at {returns:%H:%M}.")
    out.print(Text(_APPLICATION.rstrip(), style="cyan"))
    out.print()
    out.print("SLACK waits for rows that are a little late; DRIFT stops waiting for a server that is silent.")
    out.print(f"Beside it, Structured Streaming counts the same files with a watermark of {WATERMARK}.")
    out.print()


def _deliver(out: Console, engine: Engine, rival: Rival, delivery: Delivery) -> None:
    """Load a minute's files as a run for each server, and show what the query has to say then."""
    stream = engine.stream("impressions")
    said = engine.stream("campaigns").state().last_position
    with out.status(f"{delivery.minute:%H:%M} ..."):
        for server, path in delivery.files:
            stream.load(path, source=server)
        engine.advance()
        news = rows_of(engine.changes("campaigns", starting_position=said + 1), "demo")
        rival.catch_up()
    here = {server for server, _ in delivery.files}
    servers = Text("  ").join(Text(s if s in here else " " * len(s)) for s in SERVERS)
    late = Text(f"  {count(delivery.late)} of them late", style="yellow") if delivery.late else ""
    out.print(
        Text.assemble((f"{delivery.minute:%H:%M}", "bold"), "  ", servers, f"  {count(delivery.rows)} rows", late)
    )
    short = [{**row, "minute": f"{row['minute']:%H:%M}"} for row in news]
    for line in lines(list(paired(short)), ("minute", "campaign", "views", "revenue")):
        out.print(Text.assemble("  ", line))


def _ours(engine: Engine) -> Answer:
    rows = rows_of(engine.table("campaigns"), "demo")
    return {(row["minute"], row["campaign"]): (row["views"], row["revenue"]) for row in rows}


def _compare(out: Console, ours: Answer, theirs: Answer) -> bool:
    """Both answers beside the right one, for the minutes that both have closed."""
    minutes = sorted({minute for minute, _ in ours} & {minute for minute, _ in theirs})
    right = truth(minutes)
    shown = [(right, "in the files"), (_of(ours, minutes), "Anabranch"), (_of(theirs, minutes), "Structured Streaming")]
    columns = ("", *(name for _, name in shown))
    measures: list[tuple[str, list[str | Text]]] = [
        ("impressions", [count(_impressions(a)) for a, _ in shown]),
        ("revenue", [f"{_revenue(a):,.2f}" for a, _ in shown]),
        ("answers", [count(len(a)) for a, _ in shown]),
        ("answers that are wrong", ["", *(_number(_wrong(a, right)) for a, _ in shown[1:])]),
        ("impressions dropped", ["", *(_number(_impressions(right) - _impressions(a)) for a, _ in shown[1:])]),
    ]
    out.print()
    title = f"{minutes[0]:%H:%M} to {minutes[-1]:%H:%M}, the minutes that both have closed"
    out.print(table(title, columns, [(name, *values) for name, values in measures], right=columns[1:]))
    everything = truth([START + timedelta(minutes=m) for m in range(MINUTES)])
    # Every answer is right, none is missing, and no minute is that only the rival has closed.
    exact = all(everything.get(key) == value for key, value in ours.items()) and _of(ours, minutes) == right
    exact = exact and {minute for minute, _ in theirs} <= set(minutes)
    out.print()
    if exact:
        out.print(f"All {count(len(ours))} answers of Anabranch are exact.", style="green")
    else:
        out.print("Anabranch is wrong; this must not be.", style="bold red")
    return exact


def _of(answer: Answer, minutes: list[datetime]) -> Answer:
    return {key: value for key, value in answer.items() if key[0] in minutes}


def _impressions(answer: Answer) -> int:
    return sum(impressions for impressions, _ in answer.values())


def _revenue(answer: Answer) -> Decimal:
    return sum((revenue for _, revenue in answer.values()), Decimal(0))


def _wrong(answer: Answer, right: Answer) -> int:
    return sum(answer.get(key) != right.get(key) for key in answer.keys() | right.keys())


def _number(number: int) -> Text:
    return Text(count(number), style="red" if number else "green")
