"""A node driven by hand: what it tells whom, in which order."""

from __future__ import annotations

from anabranch.protocol.dpc.actions import (
    Action,
    BeginOverlay,
    Emitted,
    Event,
    Note,
    Process,
    Processed,
    Received,
    Restore,
    Send,
    Started,
    TakeCheckpoint,
    Tick,
    Wake,
)
from anabranch.protocol.dpc.delays import Delays
from anabranch.protocol.dpc.items import Boundary, Chunk, Insertion, Item, ItemId, RecDone, Tentative, Undo, serialised
from anabranch.protocol.dpc.line import Limits, LineSpec
from anabranch.protocol.dpc.messages import (
    AuthorizationRequest,
    Flow,
    Heartbeat,
    HeartbeatRequest,
    LineState,
    Message,
    StateReply,
    Subscribe,
)
from anabranch.protocol.dpc.node import Node, NodeSpec, Timing
from anabranch.protocol.dpc.states import State

B = 100
TIMING = Timing(keep_alive=50, patience=20, stall=300, retry=50, silence=5000)
FIRST = 1000


class Driver:
    """Carries out actions at once: work takes no time, and passes its input through."""

    def __init__(self, *inputs: str, partners: tuple[str, ...] = ()) -> None:
        lines = (LineSpec("n", inputs, ("me",)),)
        spec = NodeSpec("n", {i: (i,) for i in inputs}, lines, partners, bucket=B, timing=TIMING)
        self.node = Node(spec, Delays(FIRST))
        self.now = 0
        self.wake: int | None = None
        self.sent: list[tuple[str, Message]] = []
        self.said: list[object] = []
        self.kept: list[object] = []
        self.notes: list[Note] = []
        self.answering = set(inputs)
        self.feed(Started(1, empty=False))

    def feed(self, event: Event) -> None:
        self.carry(self.node.handle(event, self.now))

    def carry(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to, HeartbeatRequest(sent, _)):
                    if to in self.answering:
                        self.feed(Received(to, Heartbeat(sent, 1, {to: State.STABLE})))
                case Send(to, message):
                    self.sent.append((to, message))
                case Process(line=line, job=job, inputs=inputs):
                    if self.node.awaits(line, job):
                        self.feed(Processed(line, job, serialised(inputs.values())))
                case Emitted(_, elements):
                    self.said += elements
                case Wake(at):
                    self.wake = at
                case Note():
                    self.notes.append(action)
                case _:
                    self.kept.append(action)

    def until(self, time: int) -> None:
        """Let the node be woken whenever it asked for it."""
        while self.wake is not None and self.wake <= time:
            self.now, self.wake = self.wake, None
            self.feed(Tick())
        self.now = time

    def channel(self, stream: str) -> int:
        return next(m.channel for to, m in reversed(self.sent) if isinstance(m, Subscribe) and m.stream == stream)

    def flow(self, stream: str, number: int, *elements: object) -> None:
        self.feed(Received(stream, Flow(stream, self.channel(stream), number, tuple(elements))))  # type: ignore[arg-type]


def chunk(bucket: int, body: str) -> Insertion:
    return Insertion(Chunk(bucket, 0, (Item(bucket * B, body),)))


def bodies(said: list[object]) -> list[str]:
    names = {Insertion: "S", Tentative: "T"}
    found = []
    for element in said:
        if isinstance(element, Insertion | Tentative):
            found += [f"{names[type(element)]}{item.body}" for item in element.chunk.items]
        elif isinstance(element, Undo | RecDone):
            found.append(type(element).__name__)
    return found


def test_delay_process_and_correct() -> None:
    driver = Driver("x", "y")
    driver.flow("x", 1, chunk(0, "x0"), Boundary(B))
    assert bodies(driver.said) == [], "the other input is not there yet"
    driver.flow("y", 1, chunk(0, "y0"), Boundary(B))
    assert bodies(driver.said) == ["Sx0", "Sy0"]
    # y falls silent: the node finds out, takes a checkpoint, and waits.
    driver.answering.discard("y")
    driver.until(100)
    driver.flow("x", 2, chunk(1, "x1"), Boundary(2 * B))
    assert driver.node.state is State.UP_FAILURE
    assert TakeCheckpoint("n") in driver.kept
    driver.until(FIRST - 1)
    assert bodies(driver.said) == ["Sx0", "Sy0"], "delay"
    driver.until(FIRST + 1)
    assert bodies(driver.said)[2:] == ["Tx1"], "process"
    assert BeginOverlay("n") in driver.kept
    # It comes back, with what was missed.
    driver.answering.add("y")
    driver.until(FIRST + 100)
    driver.flow("x", 3, Boundary(2 * B + 50))
    driver.flow("y", 2, chunk(1, "y1"), Boundary(2 * B))
    driver.until(FIRST + 200)
    assert bodies(driver.said)[3:] == ["Undo", "Sx1", "Sy1", "RecDone"], "correct"
    assert Restore("n") in driver.kept
    assert driver.node.state is State.STABLE
    assert [note.detail for note in driver.notes if note.what == "control"] == [
        "up-failure", "rec-request", "rec-done",
    ]  # fmt: skip


def test_a_masked_failure_needs_no_reconciliation() -> None:
    driver = Driver("x", "y")
    for name in ("x", "y"):
        driver.flow(name, 1, Boundary(B))
    driver.answering.discard("y")
    driver.until(200)
    assert driver.node.state is State.UP_FAILURE
    driver.answering.add("y")
    driver.until(400)
    driver.flow("x", 2, Boundary(2 * B))
    driver.flow("y", 2, Boundary(2 * B))
    driver.until(500)
    assert driver.node.state is State.STABLE
    assert not any(isinstance(element, Undo | RecDone) for element in driver.said)


def test_what_is_acknowledged_is_part_of_the_consistent_state() -> None:
    driver = Driver("x")
    driver.flow("x", 1, chunk(0, "a"), Boundary(B))
    requests: list[HeartbeatRequest] = []
    driver.node._wake = None
    for action in driver.node.handle(Tick(), 60):
        if isinstance(action, Send) and isinstance(action.message, HeartbeatRequest):
            requests.append(action.message)
    assert requests[0].received["x"] >= ItemId(0, 0)
    assert requests[0].received["x"] < ItemId(1, 0)


def test_a_message_of_an_old_channel_is_ignored() -> None:
    driver = Driver("x")
    old = driver.channel("x")
    driver.flow("x", 3, chunk(0, "a"), Boundary(B))
    driver.until(60)
    assert driver.channel("x") > old, "after the gap it subscribes again"
    driver.feed(Received("x", Flow("x", old, 4, (chunk(1, "b"), Boundary(2 * B)))))
    assert bodies(driver.said) == []


def test_a_bad_message_is_refused_and_noted() -> None:
    driver = Driver("x")
    for message in (Subscribe("nothing", 1, ItemId(0, 0), False), Flow("nothing", 1, 1, ()), "what?"):
        driver.feed(Received("stranger", message))  # type: ignore[arg-type]
    assert [note.about for note in driver.notes if note.what == "refused"] == ["stranger"] * 3
    assert driver.node.state is State.STABLE


def test_a_node_that_rebuilds_takes_and_gives_acknowledgements() -> None:
    """It is silent, but whoever waits for room does not have to wait until it has caught up."""
    spec = NodeSpec(
        "n", {"x": ("x",)}, (LineSpec("n", ("x",), ("me",)),), ("m",), bucket=B, timing=TIMING, limits=Limits(most=2)
    )
    node = Node(spec, Delays(FIRST))
    node.handle(Started(2, empty=True), 0)
    assert node.handle(Received("me", HeartbeatRequest(1, {"n": ItemId(1, 9)})), 1) == []
    kept = tuple(element.chunk for element in (chunk(1, "a"), chunk(2, "b"), chunk(3, "c")))
    state = LineState(4 * B, kept[-1].last, {}, kept, ItemId(0, 0), None)
    node.handle(Received("m", StateReply(0, {"n": state})), 2)
    held = [kept.bucket for kept in node.lines["n"].out.buffer.chunks]
    assert held == [2, 3], "what was acknowledged before is gone"
    asked = [action for action in node.handle(Tick(), 60) if isinstance(action, Send)]
    received = [action.message.received for action in asked if isinstance(action.message, HeartbeatRequest)]
    assert [at["x"].bucket for at in received] == [3]
    assert node.rebuilding


def test_a_full_buffer_is_told_and_urges_to_reconcile() -> None:
    driver = Driver("x", "y", partners=("m",))
    driver.flow("x", 1, Boundary(B))
    driver.flow("y", 1, Boundary(B))
    driver.answering.discard("y")
    driver.until(100)
    driver.flow("x", 2, chunk(1, "x1"), Boundary(2 * B))
    driver.until(100 + FIRST)
    assert bodies(driver.said) == ["Tx1"]
    driver.feed(Received("m", AuthorizationRequest(driver.now)))  # the other replica reconciles
    driver.flow("y", 2, chunk(1, "y1"), Boundary(2 * B))
    assert driver.node.state is State.UP_FAILURE, "y is still failing, and the other replica was promised to wait"
    driver.feed(Received("x", Heartbeat(driver.now, 1, {"x": State.STABLE}, frozenset({"x"}))))
    assert bodies(driver.said) == ["Tx1", "Undo", "Sx1", "Sy1", "RecDone"]
