"""What a person would rather look at: the experiments' figures, and a run as a time line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from anabranch.lab.experiments import constants as c
from anabranch.lab.experiments import figures_single
from anabranch.lab.simulation import SECOND
from anabranch.lab.svg import LEFT, LETTER, Chart, stacked
from anabranch.lab.world import World
from anabranch.model.report import Report
from anabranch.protocol.dpc.states import State


def sequence(world: World, title: str) -> str:
    """Fig. 11: the sequence at the client over time; stable, tentative and corrected told apart."""
    record = world.client_record("client")
    last = max((p.time for p in record.points), default=1) / SECOND
    chart = Chart(title, "time (s)", "stream time (s)", (0, last), (0, last))
    for kind in ("stable", "tentative", "corrected"):
        chart.marks(kind, [(p.time / SECOND, p.place / SECOND) for p in record.points if p.kind == kind])
    # As in the paper, a rec-done is a mark on the axis.
    chart.marks("rec-done", [(p.time / SECOND, 0) for p in record.points if p.kind == "rec-done"], 4)
    return chart.text()


def lines(report: Report, x: str, y: str, by: str, title: str, bound: float | None = None) -> str:
    """One line for each value of a column."""
    rows = report.rows
    top = max([float(row[y]) for row in rows] + ([bound] if bound else []))
    chart = Chart(title, x, y, (0, max(row[x] for row in rows)), (0, top * 1.05 or 1))
    for name in dict.fromkeys(row[by] for row in rows):
        chart.line(str(name), [(row[x], row[y]) for row in rows if row[by] == name])
    if bound:
        chart.rule(bound, f"{bound:g}")
    return chart.text()


def bars(report: Report, group: str, values: tuple[str, ...], title: str) -> str:
    """Bars side by side, a group for each row."""
    rows = report.rows
    top = max(float(row[value]) for row in rows for value in values)
    chart = Chart(title, group, "N_tentative", (0, len(rows)), (0, top * 1.05 or 1), width=max(760, 80 * len(rows)))
    share = 0.8 / len(values)
    for place, row in enumerate(rows):
        for number, value in enumerate(values):
            left = place + 0.1 + number * share
            chart.bar(value, left, left + share * 0.9, 0, row[value])
    named = {place + 0.5: _name(row, group) for place, row in enumerate(rows)}
    return chart.text(named)


def _name(row: Mapping[str, Any], group: str) -> str:
    turn = " in turn" if row.get("corrections") == "node by node" else ""
    return f"{row['failure s']}s/{row['depth']}{turn}" if group == "failure / depth" else str(row[group])


_STATES = {state: state.value for state in (State.STABLE, State.UP_FAILURE, State.STABILIZATION, State.FAILURE)}


def timeline(world: World, title: str) -> str:
    """The states of all replicas over time, and the faults above them."""
    end = world.simulation.now / SECOND
    names = [(node, stream) for node, place in world.nodes.items() for stream in place.states]
    faults = world.spec.faults
    count = len(names) + len(faults)
    labels = {count - row - 0.5: f"{f.kind} {f.a} {f.b}".strip() for row, f in enumerate(faults)}
    labels |= {count - row - 0.5: f"{n} {s}" for row, (n, s) in enumerate(names, len(faults))}
    left = max(LEFT, LETTER * max(map(len, labels.values())))
    chart = Chart(title, "time (s)", "", (0, end), (0, count), height=110 + 18 * count, left=left)
    for state in _STATES.values():
        chart.colour(state)
    for row, fault in enumerate(faults):
        chart.bar("fault", fault.at / SECOND, fault.until / SECOND, count - row - 0.8, count - row - 0.2)
    for row, (node, stream) in enumerate(names, len(faults)):
        changes = [*world.nodes[node].states[stream].changes, (world.simulation.now, State.STABLE)]
        for (since, state), (until, _) in pairwise(changes):
            chart.bar(state.value, since / SECOND, until / SECOND, count - row - 0.8, count - row - 0.2)
    return chart.text(y_ticks=labels)


def _fig_11a(report: Report) -> str:
    world = World(figures_single.fig_11(16 * c.SECOND), detailed=True).run()
    return sequence(world, "Fig. 11(a): overlapping failures")


def _fig_11b(report: Report) -> str:
    world = World(figures_single.fig_11(figures_single.while_recovering()), detailed=True).run()
    return sequence(world, "Fig. 11(b): failure during recovery")


_PAIR = ("Process & Process", "Delay & Delay")

PLOTS: Mapping[str, Callable[[Report], str]] = {
    "fig-11a": _fig_11a,
    "fig-11b": _fig_11b,
    "fig-13": lambda r: stacked(
        lines(r, "failure s", "Proc_new s", "variant", "Fig. 13: Proc_new by variant", 3),
        lines(r, "failure s", "N_tentative", "variant", "Fig. 13: N_tentative by variant"),
    ),
    "fig-15": lambda r: lines(r, "depth", "Proc_new s", "variant", "Fig. 15: Proc_new by depth"),
    "fig-16": lambda r: bars(r, "failure / depth", _PAIR, "Fig. 16: N_tentative, short failures"),
    "fig-18": lambda r: bars(r, "failure / depth", _PAIR, "Fig. 18: N_tentative, a failure of 60 s"),
    "fig-19": lambda r: lines(r, "failure s", "Proc_new s", "assignment", "Fig. 19: Proc_new by assignment", 8),
    "fig-20": lambda r: lines(r, "failure s", "N_tentative", "assignment", "Fig. 20: N_tentative by assignment"),
}
