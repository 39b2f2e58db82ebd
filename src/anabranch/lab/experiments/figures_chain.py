"""Figs 15, 16, 18, 19 and 20: a chain of nodes."""

from __future__ import annotations

from anabranch.lab.experiments import constants as c
from anabranch.lab.experiments.setups import DELAY_DELAY, PROCESS_PROCESS, Variant, chain, spoken
from anabranch.lab.records import ClientRecord
from anabranch.lab.world import World
from anabranch.model.report import Claim, Report
from anabranch.protocol.dpc.line import Rules

DEPTHS = (1, 2, 3, 4)
SHORT = (5, 10, 15, 30)
LONG = 60
FIG_19 = (5, 10, 15, 30, 60)


def _run(depth: int, lasts: int, d: int, variant: Variant, rules: Rules | None = None) -> ClientRecord:
    return World(chain(depth, lasts * c.SECOND, d, variant, rules=rules)).run().client_record("client")


def fig_15(rules: Rules | None = None) -> Report:
    """Proc_new by the depth of the chain, for a failure of 30 s and D = 2 s at each node."""
    report = Report("fig-15", {"D": "2 s", "rate": c.CHAIN_RATE, "failure": "30 s"})
    seconds: dict[tuple[Variant, int], float] = {}
    for variant in (DELAY_DELAY, PROCESS_PROCESS):
        for depth in DEPTHS:
            seconds[variant, depth] = _run(depth, 30, c.CHAIN_D, variant, rules).latency / c.SECOND
            row = {"variant": spoken(variant), "depth": depth, "required s": 2 * depth}
            report.rows.append({**row, "Proc_new s": round(seconds[variant, depth], 2)})
    ratio = seconds[PROCESS_PROCESS, 4] / seconds[PROCESS_PROCESS, 1]
    steps = [seconds[DELAY_DELAY, n + 1] - seconds[DELAY_DELAY, n] for n in DEPTHS[:-1]]
    kept = all(value < 2 * depth for (_, depth), value in seconds.items())
    d = c.CHAIN_D / c.SECOND
    report.claims += [
        Claim("Process & Process: depth 4 within 1.2 times depth 1", 1.2, round(ratio, 3), ratio <= 1.2),
        Claim("Delay & Delay grows by about D, that is 0.9 D, with each node", round(d * c.PRECAUTION, 2),
              [round(step, 2) for step in steps], all(0.8 * d <= step <= 1.1 * d for step in steps)),
        Claim("both meet the required availability of 2 s a node", True, kept, kept),
    ]  # fmt: skip
    return report


def _tentative(report: Report, lasts: int, rules: Rules | None = None) -> list[tuple[int, int]]:
    """N_tentative of Process & Process and of Delay & Delay, for each depth."""
    found = []
    for depth in DEPTHS:
        process = _run(depth, lasts, c.CHAIN_D, PROCESS_PROCESS, rules).tentative
        delay = _run(depth, lasts, c.CHAIN_D, DELAY_DELAY, rules).tentative
        found.append((process, delay))
        order = {} if rules is None else {"corrections": "in a pipeline" if rules.pipelined else "node by node"}
        report.rows.append({
            **order, "failure s": lasts, "depth": depth, "Process & Process": process, "Delay & Delay": delay,
            "gain": process - delay, "gain %": round(100 * (process - delay) / process, 1),
        })  # fmt: skip
    return found


def fig_16() -> Report:
    """N_tentative by depth, for failures of 5 to 30 s."""
    report = Report("fig-16", {"D": "2 s", "rate": c.CHAIN_RATE})
    each = c.CHAIN_RATE * c.CHAIN_D * c.PRECAUTION / c.SECOND
    shares = {}
    for lasts in SHORT:
        found = _tentative(report, lasts)
        shares[lasts] = (found[-1][0] - found[-1][1]) / found[-1][0]
        # A gain cannot exceed what there is: tuples of the whole failure.
        wanted = [min(depth * each, process) for depth, (process, _) in zip(DEPTHS, found, strict=True)]
        gains = [process - delay for process, delay in found]
        near = all(abs(gain - want) <= 0.15 * want for gain, want in zip(gains, wanted, strict=True))
        said = f"failure of {lasts} s: the gain is in proportion to the total delay of the chain"
        report.claims.append(Claim(said, [round(want) for want in wanted], gains, near))
    falling = list(shares.values()) == sorted(shares.values(), reverse=True)
    said = "the share that is gained at depth 4 falls with the duration"
    report.claims.append(Claim(said, True, [round(share, 2) for share in shares.values()], falling))
    return report


def fig_18() -> Report:
    """N_tentative by depth, for a failure of 60 s; corrections in a pipeline (6.2), and node by node (4.4.3)."""
    report = Report("fig-18", {"D": "2 s", "rate": c.CHAIN_RATE, "failure": f"{LONG} s"})
    together = _tentative(report, LONG, Rules())
    in_turn = _tentative(report, LONG, Rules(pipelined=False))
    share = max((process - delay) / process for process, delay in together)
    turn = max((process - delay) / process for process, delay in in_turn)
    last = c.CHAIN_RATE * c.CHAIN_D / c.SECOND
    gains = [process - delay for process, delay in in_turn]
    report.claims += [
        Claim("in a pipeline the gain is small: below an eighth of the tuples at every depth", 0.125, round(share, 3),
              share <= 0.125),
        Claim("node by node it is negligible: below a twentieth at every depth", 0.05, round(turn, 3), turn <= 0.05),
        Claim("node by node it is at most the delay D of the last node, whatever the depth", round(last), gains,
              all(gain <= 1.1 * last for gain in gains)),
    ]  # fmt: skip
    return report


_ASSIGNMENTS = (
    ("Delay & Delay, D = 2 s", c.CHAIN_D, DELAY_DELAY),
    ("Process & Process, D = 2 s", c.CHAIN_D, PROCESS_PROCESS),
    ("Process & Process, D = 6.5 s", c.FULL_D, PROCESS_PROCESS),
)


def fig_19() -> Report:
    """Proc_new in a chain of four, for each assignment of delays; X = 8 s."""
    report = Report("fig-19", {"X": "8 s", "rate": c.CHAIN_RATE, "depth": 4})
    whole = []
    for name, d, variant in _ASSIGNMENTS:
        for lasts in FIG_19:
            seconds = _run(4, lasts, d, variant).latency / c.SECOND
            report.rows.append({"assignment": name, "failure s": lasts, "Proc_new s": round(seconds, 2)})
            whole += [seconds] if d == c.FULL_D else []
    deep = [_run(depth, 30, c.FULL_D, PROCESS_PROCESS).latency / c.SECOND for depth in (1, 2, 6)]
    x = c.BOUND / c.SECOND
    report.claims += [
        Claim("the whole delay to every SUnion keeps the bound at every duration", x, round(max(whole), 2),
              max(whole) < x),
        Claim("and at depths 1, 2 and 6", x, round(max(deep), 2), max(deep) < x),
    ]  # fmt: skip
    return report


def fig_20() -> Report:
    """N_tentative in a chain of four, for each assignment of delays."""
    report = Report("fig-20", {"X": "8 s", "rate": c.CHAIN_RATE, "depth": 4})
    found: dict[tuple[str, int], int] = {}
    for name, d, variant in _ASSIGNMENTS:
        for lasts in FIG_19:
            found[name, lasts] = _run(4, lasts, d, variant).tentative
            report.rows.append({"assignment": name, "failure s": lasts, "N_tentative": found[name, lasts]})
    divided, processed, whole = (name for name, *_ in _ASSIGNMENTS)
    longer = {lasts: found[whole, lasts] / found[processed, lasts] for lasts in FIG_19[1:]}
    report.claims += [
        Claim("the whole delay masks the failure of 5 s: no tentative tuple", 0, found[whole, 5],
              found[whole, 5] == 0),
        Claim("neither of the others does", True, [found[divided, 5], found[processed, 5]],
              found[divided, 5] > 0 and found[processed, 5] > 0),
        Claim("for longer failures it does as well as Process & Process with D = 2 s", 1.0,
              [round(share, 2) for share in longer.values()], all(share <= 1.05 for share in longer.values())),
    ]  # fmt: skip
    return report
