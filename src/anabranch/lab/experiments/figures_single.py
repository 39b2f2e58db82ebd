"""Figs 11 and 13, and the time to switch replicas: one node."""

from __future__ import annotations

from dataclasses import replace

from anabranch.lab.checkers import check
from anabranch.lab.experiments import constants as c
from anabranch.lab.experiments.setups import Variant, single, spoken
from anabranch.lab.spec import Fault, FaultKind, WorldSpec, merging
from anabranch.lab.world import World
from anabranch.model.report import Claim, Report
from anabranch.protocol.dpc.delays import Policy
from anabranch.protocol.dpc.line import Rules
from anabranch.protocol.dpc.states import State

VARIANTS: tuple[Variant, ...] = tuple(
    (failure, stabilization)
    for failure in (Policy.PROCESS, Policy.DELAY)
    for stabilization in (Policy.PROCESS, Policy.DELAY, Policy.SUSPEND)
)
FIG_13 = (2, 4, 6, 8, 10, 12, 14, 16, 30, 45, 60)


FIRST_FAILURE = Fault(10 * c.SECOND, 22 * c.SECOND, FaultKind.CUT, "s1", "na")


def fig_11(second: int | None, rules: Rules | None = None) -> WorldSpec:
    """Failure 1 of stream 1 at 10 s, failure 2 of stream 3 at another time; both last for 12 s."""
    faults = [FIRST_FAILURE]
    if second is not None:
        faults.append(Fault(second, second + 12 * c.SECOND, FaultKind.CUT, "s3", "na"))
    return single(24 * c.SECOND, c.CHAIN_D, c.CHAIN_RATE, replicas=1, faults=faults, rules=rules)


def while_recovering() -> int:
    """When the node begins to reconcile its state after failure 1."""
    node = World(fig_11(None)).run(FIRST_FAILURE.until + c.SECOND).nodes["na"]
    return next(at for at, state in node.states["n"].changes if state is State.STABILIZATION)


def fig_11a(world: World | None = None) -> Report:
    """Simultaneous failures: corrections only after both have healed, one rec-done."""
    world = world or World(fig_11(16 * c.SECOND), detailed=True).run()
    report = _fig_11("fig-11a", world)
    record = world.client_record("client")
    corrected = [p.time for p in record.points if p.kind == "corrected"]
    healed = 28 * c.SECOND
    report.claims += [
        Claim("nothing is corrected before both have healed", "28 s", _s(min(corrected, default=0)),
              bool(corrected) and min(corrected) >= healed),
        Claim("undos", 1, record.undos, record.undos == 1),
        Claim("rec-dones", 1, record.rec_dones, record.rec_dones == 1),
    ]  # fmt: skip
    return report


def fig_11b(world: World | None = None) -> Report:
    """A failure during recovery: the second corrections cover only what the second failure made tentative."""
    second = while_recovering()
    world = world or World(fig_11(second), detailed=True).run()
    report = _fig_11("fig-11b", world)
    record = world.client_record("client")
    after = [p for p in record.points if p.kind == "corrected" and p.time >= second + 12 * c.SECOND]
    begins = min((p.place for p in after), default=0)
    report.claims += [
        Claim("the second corrections begin where the second failure did", _s(second), _s(begins),
              bool(after) and begins >= second - c.BUCKET),
        Claim("rec-dones", 2, record.rec_dones, record.rec_dones == 2),
    ]  # fmt: skip
    return report


def _fig_11(name: str, world: World) -> Report:
    report = Report(name, {"D": "2 s", "rate": c.CHAIN_RATE, "replicas": 1})
    record = world.client_record("client")
    for kind in ("stable", "tentative", "corrected", "undo", "rec-done"):
        points = [p for p in record.points if p.kind == kind]
        report.rows.append({
            "kind": kind, "elements": len(points), "tuples": sum(p.tuples for p in points),
            "first s": _s(points[0].time) if points else "", "last s": _s(points[-1].time) if points else "",
        })  # fmt: skip
    gap = max(b - a for (a, _), (b, _) in zip(record.reached, record.reached[1:], strict=False))
    violations = check(world)
    report.claims += [
        Claim("the longest gap between new tuples stays below D", "2 s", _s(gap), gap < c.CHAIN_D),
        Claim("every promise is kept: no stable tuple twice, none lost, all corrected", 0, len(violations),
              not violations),
    ]  # fmt: skip
    return report


def fig_13() -> Report:
    """Six ways to treat new tuples during failure and reconciliation."""
    parameters = {"D": "3 s", "rate": c.SINGLE_RATE, "failure": "stream 1 sends no boundaries"}
    report = Report("fig-13", parameters)
    latency: dict[tuple[Variant, int], float] = {}
    tentative: dict[tuple[Variant, int], int] = {}
    for variant in VARIANTS:
        for lasts in FIG_13:
            # As in 6.2, so that the output rate is the same with and without the failure.
            spec = single(lasts * c.SECOND, c.SINGLE_D, c.SINGLE_RATE, variant, kind=FaultKind.MUTE)
            record = World(spec).run().client_record("client")
            latency[variant, lasts] = record.latency / c.SECOND
            tentative[variant, lasts] = record.tentative
            report.rows.append({
                "variant": spoken(variant), "failure s": lasts,
                "Proc_new s": round(latency[variant, lasts], 2), "N_tentative": record.tentative,
            })  # fmt: skip
    _judge_13(report, latency, tentative)
    return report


def _judge_13(
    report: Report, latency: dict[tuple[Variant, int], float], tentative: dict[tuple[Variant, int], int]
) -> None:
    d = c.SINGLE_D / c.SECOND
    breaks = {v: min((f for f in FIG_13 if latency[v, f] >= d), default=None) for v in VARIANTS}
    process, delay, suspend = Policy.PROCESS, Policy.DELAY, Policy.SUSPEND
    viable = [v for v in VARIANTS if breaks[v] is None]
    dd, pp = (delay, delay), (process, process)
    longer = [f for f in FIG_13 if f > d]
    fewest = all(tentative[dd, f] <= min(tentative[v, f] for v in viable) for f in longer)
    most = all(tentative[pp, f] >= max(tentative[v, f] for v in viable) for f in longer)
    masked = max(tentative[v, 2] for v in VARIANTS)
    report.claims += [
        Claim("all variants mask a failure of 2 s", 0, masked, masked == 0),
        Claim("the variants without Suspend meet the bound at every duration", 4, len(viable),
              set(viable) == {v for v in VARIANTS if v[1] is not suspend}),
        Claim("Delay & Delay makes the fewest tentative tuples of those that meet the bound", True, fewest, fewest),
        Claim("Process & Process makes the most", True, most, most),
        Claim("Process & Suspend breaks the bound from about", 8, breaks[process, suspend],
              breaks[process, suspend] in (8, 10)),
        Claim("Delay & Suspend breaks the bound from the first failure that is not masked", 4, breaks[delay, suspend],
              breaks[delay, suspend] == 4),
    ]  # fmt: skip


def switch_time() -> Report:
    """5.1: how long a node is without data when its upstream neighbour fails and another replica takes over."""
    report = Report("switch-time", {"keep-alive": "100 ms", "link": "1 ms"})
    gaps = []
    detected = []
    for offset in range(0, 100, 5):
        at = 2 * c.SECOND + offset * c.MILLISECOND
        base = single(c.SECOND, c.CHAIN_D, c.CHAIN_RATE)
        fault = Fault(at, at + 5 * c.SECOND, FaultKind.CRASH, "na")
        fragments = (*base.fragments, merging("m", "n"))
        world = World(replace(base, fragments=fragments, clients={"client": ("m",)}, faults=(fault,)), trace=True)
        lines = [line.split() for line in world.run(at + c.SECOND).trace.lines]
        detected.append((_first(lines, ["ma", "away"], at) - at) / c.MILLISECOND)
        gaps.append((_first(lines, ["ma", "hears", "flow", "nb"], at) - at) / c.MILLISECOND)
        report.rows.append({
            "failure after a keep-alive ms": offset, "noticed after ms": round(detected[-1], 1),
            "data from the other replica after ms": round(gaps[-1], 1),
            "switching took ms": round(gaps[-1] - detected[-1], 1),
        })  # fmt: skip
    took = max(gap - noticed for gap, noticed in zip(gaps, detected, strict=True))
    report.claims += [
        Claim("switching takes about 40 ms once a failure is noticed", 40, round(took, 1), took <= 44),
        Claim("at most 140 ms after the failure data comes from another replica", 140, round(max(gaps), 1),
              max(gaps) <= 140),
    ]  # fmt: skip
    return report


def _first(lines: list[list[str]], words: list[str], after: int) -> int:
    """When a line of the trace first has these words."""
    for time, *said in lines:
        if said[: len(words)] == words and float(time) * c.SECOND >= after:
            return round(float(time) * c.SECOND)
    raise AssertionError(f"{' '.join(words)} never happens")


def _s(time: int) -> float:
    return round(time / c.SECOND, 2)
