"""`anabranch branch`: the branches of a warehouse, which need no Spark to be made, listed and dropped."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from anabranch.api.branching import BranchState, create_branch, states_of
from anabranch.cli.show import Times, branch_option, console, json_option, table, warehouse_options
from anabranch.log.log import Log
from anabranch.model.time import instant_text


@click.group()
def branch() -> None:
    """Branches: the warehouse as it was when they were made, to append, advance and ask apart from main."""


@branch.command(name="list")
@warehouse_options
@json_option
def list_branches(warehouse: str, catalog: str | None, as_json: bool) -> None:
    """List the branches of a warehouse, also those of branches."""
    with Log(warehouse, catalog, create=False) as log:
        found = states_of(log)
    if as_json:
        click.echo(json.dumps([_as_json(state) for state in found], indent=2))
    elif not found:
        console().print(f"No branches in {warehouse}.")
    else:
        console().print(_shown(found))


@branch.command()
@click.argument("name")
@click.option("--at", metavar="BUCKET|TIME", help="Make it of the past: a bucket's number, or a stream time.")
@click.option("--expires", metavar="DURATION", help="Let it end by itself after so long, such as '7 days'.")
@warehouse_options
@branch_option
@json_option
def create(
    name: str, at: str | None, expires: str | None, warehouse: str, catalog: str | None, branch: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make a branch of main as it is now, or, with --branch, of that branch.

    One of the past (--at) is computed when it is first advanced, with `anabranch run --branch`.
    """
    with Log(warehouse, catalog, create=False, branch=branch) as log:
        create_branch(log, None, name, expires, int(at) if at is not None and at.isdigit() else at)
        (made,) = (state for state in states_of(log) if state.name == name)
    if as_json:
        click.echo(json.dumps(_as_json(made), indent=2))
    else:
        console().print(f"Branch {name} was created; name it with --branch {name}.")


@branch.command()
@click.argument("name")
@warehouse_options
@json_option
def drop(name: str, warehouse: str, catalog: str | None, as_json: bool) -> None:
    """Forget a branch and all that was done there; refused while there are branches of it."""
    with Log(warehouse, catalog, create=False) as log:
        wanted = log.branches.find(name)
        log.branches.drop(wanted)
    if as_json:
        click.echo(json.dumps({"name": wanted.name, "generation": wanted.generation}, indent=2))
    else:
        console().print(f"Branch {name} was dropped.")


def _shown(found: list[BranchState]) -> Any:
    times = Times([time for state in found for time in (state.made, state.expires)])
    rows = [
        (state.name or f"({state.generation})", state.parent or "main", times.text(state.made),
         times.text(state.expires), state.holder)
        for state in found
    ]  # fmt: skip
    return table(f"Branches{times.heading}", ("branch", "of", "made", "expires", "by"), rows)


def _as_json(state: BranchState) -> dict[str, Any]:
    return {**asdict(state), "made": instant_text(state.made), "expires": instant_text(state.expires) or None}
