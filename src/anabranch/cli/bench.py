"""`anabranch bench NAME`: what is fast, beside a named rival in the same run."""

from __future__ import annotations

import json
import sys

import click

from anabranch.bench.log import bench_log
from anabranch.bench.report import Report
from anabranch.cli.show import console, json_option, table

_BENCHES = {"log": bench_log}


@click.command()
@click.argument("name", type=click.Choice(sorted(_BENCHES)))
@click.option("--small", is_flag=True, help="Quick, for correctness; its ratios mean nothing.")
@json_option
def bench(name: str, small: bool, as_json: bool) -> None:
    """Measure against a rival that does only the I/O, and syncs, checks and records nothing."""
    report = _BENCHES[name](small=small, quiet=as_json)
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
