"""How fast simulated time passes as the world grows: 10, 100 and 1,000 nodes, with faults, every promise checked."""

from __future__ import annotations

import time

from anabranch.lab.checkers import check
from anabranch.lab.simulation import SECOND
from anabranch.lab.spec import Fault, FaultKind, SourceSpec, WorldSpec, merging
from anabranch.lab.world import World
from anabranch.model.report import Claim, Report
from anabranch.protocol.dpc.delays import Delays
from anabranch.protocol.dpc.node import Timing

SIZES = (10, 100, 1000)
DEPTH = 5  # nodes of a chain; each has a replica
LASTS = 20 * SECOND


def wide(nodes: int) -> WorldSpec:
    """Chains side by side, until there are so many nodes; a source of every chain is cut off, and a node crashes."""
    chains = nodes // (2 * DEPTH)
    sources = []
    fragments = []
    faults = []
    for n in range(chains):
        pair = (f"s{n}x", f"s{n}y")
        sources += [SourceSpec(name, 100_000, boundary_every=200_000) for name in pair]
        fragments.append(merging(f"c{n}n0", *pair))
        fragments += [merging(f"c{n}n{m}", f"c{n}n{m - 1}") for m in range(1, DEPTH)]
        begin = (5 + n % 4) * SECOND
        faults += [Fault(begin, begin + 6 * SECOND, FaultKind.CUT, pair[0], f"c{n}n0{r}") for r in "ab"]
        faults.append(Fault(begin + SECOND, begin + 3 * SECOND, FaultKind.CRASH, f"c{n}n2a"))
    return WorldSpec(
        sources=tuple(sources),
        fragments=tuple(fragments),
        clients={f"client{n}": (f"c{n}n{DEPTH - 1}",) for n in range(chains)},
        delays=Delays(3 * SECOND),
        duration=LASTS,
        calm=5 * SECOND,
        faults=tuple(faults),
        bucket=200_000,
        timing=Timing(keep_alive=500_000, patience=100_000, stall=600_000, retry=200_000),
        cost=100.0,
    )


def scale(sizes: tuple[int, ...] = SIZES) -> Report:
    """Worlds of 10, 100 and 1,000 nodes: simulated seconds in a second."""
    report = Report("scale", {"simulated": "25 s", "chain": DEPTH, "replicas": 2})
    for nodes in sizes:
        begin = time.perf_counter()
        world = World(wide(nodes)).run()
        took = time.perf_counter() - begin
        violations = check(world)
        report.rows.append({
            "nodes": len(world.nodes), "places": len(world.places), "events": world.simulation.events,
            "seconds": round(took, 2), "events a second": round(world.simulation.events / took),
            "simulated s a second": round(world.simulation.now / SECOND / took, 2),
            "simulated node s a second": round(len(world.nodes) * world.simulation.now / SECOND / took),
        })  # fmt: skip
        said = f"a world of {nodes} nodes runs, and every promise is kept"
        report.claims.append(Claim(said, 0, len(violations), not violations and len(world.nodes) == nodes))
    return report
