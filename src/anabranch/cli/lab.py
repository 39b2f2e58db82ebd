"""`anabranch lab`: the papers' experiments, and random worlds, in a simulator that replays exactly."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import click
from rich.progress import Progress

from anabranch.cli.show import console, count, json_option, table
from anabranch.lab.checkers import CHECKERS, check
from anabranch.lab.experiments import EXPERIMENTS
from anabranch.lab.plots import PLOTS, timeline
from anabranch.lab.simulation import SECOND
from anabranch.lab.swarm import Swarm, run, swarm
from anabranch.model.errors import AnabranchError
from anabranch.model.report import Claim, Report

# Over a thousand worlds each transition and each rule is to be seen at least so often.
LEAST_SEEN = 50
_plot = click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this SVG file.")


@click.group()
def lab() -> None:
    """Replicas, links and clocks in a simulator: experiments of the papers, and thousands of random failures.

    Begin with `anabranch lab list`, then `anabranch lab run fig-11a --plot fig-11a.svg`.
    """


@lab.command("list")
@json_option
def list_(as_json: bool) -> None:
    """The experiments, and the promises that random worlds are checked for."""
    experiments = {name: (made.__doc__ or "").splitlines()[0] for name, made in EXPERIMENTS.items()}
    promises = {name: _promise(name) for name in CHECKERS}
    if as_json:
        click.echo(json.dumps({"experiments": experiments, "promises": promises}, indent=2))
        return
    out = console()
    rows = [[name, "yes" if name in PLOTS else "", said] for name, said in experiments.items()]
    out.print(table("experiments: anabranch lab run NAME", ["name", "plot", "what is measured"], rows))
    out.print(table("promises: anabranch lab swarm", ["checker", "promise"], [list(p) for p in promises.items()]))


def _promise(name: str) -> str:
    module = sys.modules[CHECKERS[name].__module__]
    return (module.__doc__ or "").splitlines()[0]


@lab.command("run")
@click.argument("name")
@json_option
@_plot
def run_(name: str, as_json: bool, plot: Path | None) -> None:
    """Run an experiment: the paper's figures beside ours, and whether its claims hold."""
    if name not in EXPERIMENTS:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="anabranch lab run",
            need=f"one of {', '.join(EXPERIMENTS)}",
            got=repr(name),
            next_step="See anabranch lab list.",
        )
    if plot is not None and name not in PLOTS:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"anabranch lab run {name} --plot",
            need=f"one that is drawn: {', '.join(PLOTS)}",
            got=repr(name),
            next_step="Leave out --plot: this one is a table.",
        )
    with console().status(f"{name} runs in virtual time") if not as_json else nullcontext():
        report = EXPERIMENTS[name]()
    if plot is not None:
        _write(plot, PLOTS[name](report))
    _finish(report, as_json, plot)


@lab.command("swarm")
@click.option("--runs", type=click.IntRange(min=1), default=100, show_default=True, help="How many worlds.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first world's seed.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after so long.")
@json_option
def swarm_(runs: int, seed: int, minutes: float | None, as_json: bool) -> None:
    """Draw worlds from seeds, let them fail and heal, and check every promise in each."""
    begin = time.perf_counter()

    def going_on() -> bool:
        return minutes is None or time.perf_counter() - begin < 60 * minutes

    total = Swarm()
    with Progress(console=console(), disable=as_json, transient=True) as progress:
        task = progress.add_task("worlds", total=runs)
        for sofar in swarm(seed, runs, going_on=going_on):
            total = sofar
            progress.advance(task)
    report = _swarm_report(total, seed, time.perf_counter() - begin)
    for failure in total.failures:
        click.echo(str(failure), err=True)
    _finish(report, as_json, None)


def _swarm_report(total: Swarm, seed: int, took: float) -> Report:
    report = Report("swarm", {"seed": seed, "worlds": total.worlds, "checkers": list(CHECKERS)})
    report.parameters |= {
        "simulated hours": round(total.hours, 2), "seconds": round(took, 1), "events": total.events,
        "faults": total.faults, "items": total.items,
    }  # fmt: skip
    report.rows = [{"what": name, "times": times} for name, times in total.counts.items()]
    broken = len(total.failures)
    report.claims.append(Claim("worlds that break a promise", 0, broken, broken == 0 and total.worlds > 0))
    if total.worlds >= 1000:
        name, least = min(total.counts.items(), key=lambda pair: pair[1])
        said = f"each transition and each row of Table II at least {LEAST_SEEN} times; fewest: {name}"
        report.claims.append(Claim(said, LEAST_SEEN, least, least >= LEAST_SEEN))
    return report


@lab.command()
@click.argument("seed", type=click.IntRange(min=0))
@click.option("--faults", type=click.IntRange(min=0), help="Only the first so many faults of its schedule.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write every event, a line for each.")
@_plot
def replay(seed: int, faults: int | None, trace: Path | None, plot: Path | None) -> None:
    """Run the world of a seed again, exactly: its faults, its states over time, and the promises it breaks."""
    world = run(seed, faults=faults, trace=trace is not None)
    if trace is not None:
        _write(trace, "\n".join(world.trace.lines) + "\n")
    if plot is not None:
        _write(plot, timeline(world, f"world {seed}"))
    out = console()
    out.print(f"world {seed}: {len(world.nodes)} nodes, {world.simulation.now / SECOND:.0f} simulated seconds")
    for fault in world.spec.faults:
        out.print(f"  {fault}")
    states = [[name, count(times)] for name, times in sorted(world.trace.transitions.items())]
    out.print(table("transitions", ["from and to", "times"], states, right=["times"]))
    violations = check(world)
    for violation in violations:
        out.print(f"[red]broken[/] {violation}")
    if not violations:
        out.print("[green]every promise is kept[/]")
    sys.exit(1 if violations else 0)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=str(path),
            need="a file that can be written",
            got=str(error),
            next_step="Choose another path.",
        ) from error


def _finish(report: Report, as_json: bool, plot: Path | None) -> None:
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
        sys.exit(0 if report.holds else 1)
    out = console()
    columns = list(dict.fromkeys(column for row in report.rows for column in row))
    rows = [[_cell(row.get(column, "")) for column in columns] for row in report.rows]
    out.print(table(f"lab {report.name}", columns, rows, right=columns[1:]))
    said = ", ".join(f"{name} {_cell(v)}" for name, v in report.parameters.items() if not isinstance(v, list))
    out.print(f"[dim]{said}[/]")
    for claim in report.claims:
        mark = "[green]holds[/]" if claim.holds else "[red]fails[/]"
        out.print(f"claim {mark}  {claim.claim}: expected {_cell(claim.expected)}, ours {_cell(claim.ours)}")
    if plot is not None:
        out.print(f"drawn in {plot}")
    sys.exit(0 if report.holds else 1)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
