"""Short scripts: one failure each, and what must come of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.lab.boxes import Diagram, Merge, summed, union
from anabranch.lab.checkers import check
from anabranch.lab.expected import failure_free
from anabranch.lab.network import LinkSpec
from anabranch.lab.simulation import SECOND
from anabranch.lab.spec import Fault, FaultKind, FragmentSpec, SourceSpec, WorldSpec, merging
from anabranch.lab.world import World
from anabranch.protocol.dpc.delays import Delays, Policy
from anabranch.protocol.dpc.line import Limits
from anabranch.protocol.dpc.node import Timing
from anabranch.protocol.dpc.states import State

FIRST = 2 * SECOND


def world(*fragments: FragmentSpec, faults: list[Fault], client: str | None = None, **options: object) -> WorldSpec:
    """Two sources, ten rows a second each, for 30 s."""
    spec = WorldSpec(
        sources=tuple(SourceSpec(name, 100_000) for name in ("s1", "s2")),
        fragments=fragments,
        clients={"client": tuple(fragments[-1].lines) if client is None else (client,)},
        delays=Delays(FIRST),
        duration=30 * SECOND,
        faults=tuple(faults),
        cost=100.0,
    )
    return replace(spec, **options)  # type: ignore[arg-type]


def cut(a: str, *others: str, at: float, until: float) -> list[Fault]:
    return [Fault(int(at * SECOND), int(until * SECOND), FaultKind.CUT, a, b) for b in others]


def fault(kind: FaultKind, a: str, b: str = "", *, at: float, until: float, amount: float = 0.0) -> Fault:
    return Fault(int(at * SECOND), int(until * SECOND), kind, a, b, amount)


CHAIN = (merging("n", "s1", "s2"), merging("m", "n"))


def test_a_short_failure_is_masked() -> None:
    done = World(world(*CHAIN, faults=cut("s1", "na", "nb", at=10, until=11.5))).run()
    assert check(done) == []
    record = done.client_record("client")
    assert (record.tentative, record.undos) == (0, 0)


def test_a_crash_is_masked_by_the_replica() -> None:
    crash = fault(FaultKind.CRASH, "na", at=10, until=20)
    done = World(world(*CHAIN, faults=[crash])).run()
    assert check(done) == []
    record = done.client_record("client")
    assert record.tentative == 0
    assert record.latency < SECOND


def test_a_node_that_restarts_is_silent_until_it_is_consistent() -> None:
    """It is seen as FAILURE from the crash until it has caught up, and does not say anything before."""
    crash = fault(FaultKind.CRASH, "na", at=10, until=15)
    spec = world(merging("n", "s1", "s2"), faults=[crash, *cut("s1", "na", at=14, until=19)])
    done = World(spec).run()
    assert check(done) == []
    states = done.nodes["na"].states["n"].changes
    down = next(at for at, state in states if state is State.FAILURE)
    up = next(at for at, state in states if state is State.STABLE and at > down)
    assert up >= 19 * SECOND, "not before it can be consistent"
    second = done.nodes["na"].records[-1]
    assert second.tentative == 0


@pytest.mark.parametrize("truncates", [True, False])
def test_recovery_from_a_replica_or_from_the_log(truncates: bool) -> None:
    """With truncated buffers the replica's state is taken; otherwise all replicas may crash at once."""
    boxes = Diagram(summed(union("s1", "s2"), 2 * SECOND))
    node = FragmentSpec("n", {"n": (("s1", "s2"), boxes)})
    crashes = [fault(FaultKind.CRASH, "na", at=10, until=14)]
    if not truncates:
        crashes.append(fault(FaultKind.CRASH, "nb", at=11, until=13))
    done = World(world(node, merging("m", "n"), faults=crashes, truncates=truncates)).run()
    assert check(done) == []
    assert done.nodes["na"].node.lines["n"].soutput.last == done.nodes["nb"].node.lines["n"].soutput.last


def test_a_source_has_its_log() -> None:
    done = World(world(*CHAIN, faults=[fault(FaultKind.CRASH, "s1", at=10, until=12)])).run()
    assert check(done) == []
    stamps = [item.stime for item in done.sources["s1"].log]
    assert stamps == sorted(set(stamps))


def test_each_stream_has_its_own_state() -> None:
    """8.2: a failure of one input touches the streams that depend on it, and no others."""
    node = FragmentSpec("a", {"p": (("s1",), Merge()), "q": (("s2",), Merge())})
    spec = world(node, faults=cut("s1", "aa", "ab", at=10, until=18))
    done = World(spec).run()
    assert check(done) == []
    for name in node.nodes:
        assert State.UP_FAILURE in {state for _, state in done.nodes[name].states["p"].changes}
        assert {state for _, state in done.nodes[name].states["q"].changes} == {State.STABLE}
    untouched = done.client_record("client", "q")
    assert (untouched.tentative, untouched.undos, untouched.rec_dones) == (0, 0, 0)
    assert untouched.latency < SECOND


@pytest.mark.parametrize(
    "faults",
    [
        [fault(FaultKind.ONE_WAY, "na", "ma", at=8, until=20), fault(FaultKind.ONE_WAY, "ma", "nb", at=9, until=21)],
        [fault(FaultKind.LOSE, a, b, at=5, until=25, amount=0.3) for a in ("na", "nb") for b in ("ma", "mb")],
        [fault(FaultKind.PAUSE, "na", at=8, until=14), fault(FaultKind.PAUSE, "mb", at=9, until=12)],
        [fault(FaultKind.SLOW, "s1", "na", at=8, until=20, amount=150_000)],
    ],
    ids=["one-way", "loss", "pauses", "slow"],
)
def test_links_and_nodes_misbehave(faults: list[Fault]) -> None:
    assert check(World(world(*CHAIN, faults=faults)).run()) == []


def test_a_narrow_link() -> None:
    link = LinkSpec(latency=5_000, jitter=5_000, bandwidth=400)
    assert check(World(world(*CHAIN, faults=cut("s1", "na", "nb", at=10, until=16), link=link)).run()) == []


def test_full_buffers_block_up_to_the_sources() -> None:
    """8.1: a deterministic diagram keeps what it could not correct without; the sources refuse the rest."""
    limits = Limits(most=100)
    spec = world(*CHAIN, faults=cut("na", "ma", "mb", at=5, until=25) + cut("nb", "ma", "mb", at=5, until=25),
                 limits=limits, source_most=100, duration=40 * SECOND)  # fmt: skip
    done = World(spec).run()
    refused = sum(source.entry.refused for source in done.sources.values())
    assert refused > 0
    assert check(done) == [], "nothing that was taken is lost"
    for place in done.nodes.values():
        assert place.most_buffered <= 100 + 10


def test_a_window_keeps_availability_and_corrects_the_most_recent() -> None:
    """8.1: convergent-capable boxes with bounded buffers survive a failure of any length."""
    window = 5 * SECOND
    boxes = Diagram(summed(union("s1", "s2"), SECOND))
    node = FragmentSpec("n", {"n": (("s1", "s2"), boxes)})
    spec = world(node, faults=cut("s1", "na", "nb", at=5, until=22), limits=Limits(window=window))
    done = World(spec).run()
    names = {violation.checker for violation in check(done)}
    assert names <= {"output_equals_failure_free"}, "only what is older than the window is not corrected"
    wanted = failure_free(done)["n"]
    got = {chunk.bucket: chunk.items for chunk in done.client_record("client").stable}
    recent = [bucket for bucket in wanted if bucket * spec.bucket >= 22 * SECOND - window + 2 * SECOND]
    assert recent
    assert all(got.get(bucket) == wanted[bucket] for bucket in recent)
    missing = [bucket for bucket in wanted if bucket not in got]
    assert missing, "the failure was longer than the window"
    held = max(line.sunion.held for place in done.nodes.values() for line in place.node.lines.values())
    assert held <= 2 * 10 * (window + SECOND) // SECOND


def test_items_that_carry_their_delay_keep_the_bound_in_a_chain() -> None:
    """6.3: what was delayed upstream is not delayed again."""
    chain = (merging("n", "s1", "s2"), merging("m", "n"), merging("o", "m"))

    def latency(budget: int | None) -> int:
        delays = Delays(FIRST, FIRST, Policy.DELAY, Policy.DELAY, budget)
        done = World(world(*chain, faults=[fault(FaultKind.MUTE, "s1", at=8, until=20)], delays=delays)).run()
        assert check(done) == []
        return done.client_record("client").latency

    assert latency(None) > 2 * FIRST
    assert latency(FIRST) < FIRST + SECOND


def test_ordered_inputs_are_released_before_their_bucket_ends() -> None:
    """Section 7: as soon as every input has shown a later item."""

    def latency(ordered: bool) -> int:
        timing = Timing(stall=3 * SECOND)  # longer than a bucket, at whose ends boundaries come
        done = World(world(*CHAIN, faults=[], bucket=SECOND, ordered=ordered, timing=timing)).run()
        assert check(done) == []
        return done.client_record("client").latency

    assert latency(True) < latency(False) / 2


def test_ordered_inputs_fail_and_heal_too() -> None:
    faults = cut("s1", "na", "nb", at=10, until=16)
    timing = Timing(stall=2 * SECOND)
    assert check(World(world(*CHAIN, faults=faults, bucket=SECOND // 2, ordered=True, timing=timing)).run()) == []


def test_three_replicas_take_turns() -> None:
    nodes = (merging("n", "s1", "s2", replicas=3),)
    done = World(world(*nodes, faults=cut("s1", *nodes[0].nodes, at=10, until=16), cost=2_000.0)).run()
    assert check(done) == []
    reconciling = [
        (place.name, at) for place in done.nodes.values() for at, state in place.states["n"].changes
        if state is State.STABILIZATION
    ]  # fmt: skip
    assert len(reconciling) == 3
    assert len({at for _, at in reconciling}) > 1, "not all at once"
