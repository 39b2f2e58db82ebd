"""`anabranch maintain`: all upkeep of a warehouse that is due, at once."""

from __future__ import annotations

import json

import click

from anabranch.api.engine import connect
from anabranch.cli.show import branch_option, console, count, json_option, table, warehouse_options
from anabranch.engine.upkeep.keeper import Progress


@click.command()
@warehouse_options
@branch_option
@json_option
def maintain(warehouse: str, catalog: str | None, branch: str | None, as_json: bool) -> None:
    """Do all upkeep of a warehouse that is due, and say how much that was.

    Nobody needs to run this where an engine advances: it keeps house between its steps. It is for a warehouse that
    was left alone, or before a backup. It reduces partial results, lets go of rows beyond history bounds, compacts
    small segments, folds old headers and buckets, and removes files that nobody refers to any more.
    """
    with connect(warehouse, catalog=catalog, create=False, branch=branch) as engine:
        if as_json:
            click.echo(json.dumps(engine.maintain(), indent=2))
            return
        out = console()
        with out.status("Starting Spark ...") as status:
            _ = engine.spark

            def tell(progress: Progress) -> None:
                done = ", ".join(f"{count(many)} {what}" for what, many in progress.done.items())
                status.update(f"{progress.chore.capitalize()}: {done} ...")

            done = engine.maintain(tell)
    rows = [(what, count(many)) for what, many in done.items()]
    out.print(table(f"Upkeep of {warehouse}", ("what", "how many"), rows, right=("how many",)))
