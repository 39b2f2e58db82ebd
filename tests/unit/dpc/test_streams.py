"""Both ends of a stream, joined by a fake link: subscriptions, gaps, replays, acknowledgements."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.protocol.dpc.actions import Action, Received, Send
from anabranch.protocol.dpc.buffers import OutputBuffer
from anabranch.protocol.dpc.entry import EntryPoint
from anabranch.protocol.dpc.inputs import InputStream, Status
from anabranch.protocol.dpc.items import Boundary, Chunk, Element, Insertion, Item, ItemId, RecDone, Tentative, Undo
from anabranch.protocol.dpc.messages import Flow, HeartbeatRequest, Subscribe, Unsubscribe
from anabranch.protocol.dpc.states import State
from anabranch.protocol.dpc.subscription import OutputStream

S, U, Z, F = State.STABLE, State.UP_FAILURE, State.STABILIZATION, State.FAILURE


def chunk(bucket: int, *bodies: object) -> Chunk:
    return Chunk(bucket, 0, tuple(Item(bucket * 10, body) for body in bodies))


class Pair:
    """Replicas `a` and `b` of a stream, and one reader."""

    def __init__(self, **options: bool) -> None:
        self.replicas = {name: OutputStream("s", OutputBuffer(["me"])) for name in ("a", "b")}
        self.reader = InputStream("s", ("a", "b"), stall=1000, silence=5000, **options)
        self.states: dict[str, State] = {"a": S, "b": S}
        self.got: list[Element] = []
        self.lose = 0

    def say(self, replica: str, *elements: Element, now: int = 0) -> None:
        self.carry(replica, self.replicas[replica].emit(elements), now)

    def carry(self, replica: str, sends: list[Send], now: int) -> None:
        for send in sends:
            assert isinstance(send.message, Flow)
            if self.lose:
                self.lose -= 1
                continue
            news, again = self.reader.accept(replica, send.message, now)
            self.got += news
            if again:
                self.review(now)

    def review(self, now: int = 0, **states: State) -> None:
        self.states |= states
        self.do(self.reader.review(self.states.__getitem__, None, now), now)

    def do(self, actions: list[Action], now: int) -> None:
        for action in actions:
            match action:
                case Send(to, Subscribe() as wanted):
                    self.carry(to, [self.replicas[to].subscribe("me", wanted)], now)
                case Send(to, Unsubscribe() as message):
                    self.replicas[to].unsubscribe("me", message)

    def status(self, now: int = 0) -> Status:
        return self.reader.status(self.states.__getitem__, now)


def bodies(elements: list[Element]) -> list[object]:
    said: list[object] = []
    for element in elements:
        match element:
            case Insertion(part):
                said += [item.body for item in part.items]
            case Tentative(part, _):
                said += [f"T{item.body}" for item in part.items]
            case Undo():
                said.append("U")
            case RecDone():
                said.append("R")
    return said


def test_a_switch_goes_on_where_the_other_stopped() -> None:
    pair = Pair()
    for replica in ("a", "b"):
        pair.say(replica, Insertion(chunk(0, 1, 2)), Boundary(10))
    pair.review()
    assert pair.reader.main is not None
    assert pair.reader.main.replica == "a"
    pair.say("b", Insertion(chunk(1, 3)), Boundary(20))
    pair.review(a=F)
    assert bodies(pair.got) == [1, 2, 3]
    assert pair.replicas["a"].channels == {}, "unsubscribed"
    assert pair.status() is Status.OK


def test_a_lost_message_is_noticed_at_the_next() -> None:
    pair = Pair()
    pair.review()
    pair.say("a", Insertion(chunk(0, 1)), Boundary(10))
    pair.lose = 1
    pair.say("a", Insertion(chunk(1, 2)), Boundary(20))
    pair.say("a", Insertion(chunk(2, 3)), Boundary(30))
    assert bodies(pair.got) == [1, 2, 3]
    assert pair.reader.boundary == 30


def test_a_lost_subscription_is_repeated() -> None:
    pair = Pair()
    pair.lose = 1
    pair.review(now=0)
    pair.say("a", Insertion(chunk(0, 1)), Boundary(10), now=10)
    pair.review(now=2000)
    assert bodies(pair.got) == [1]


def test_a_replica_that_restarted_is_subscribed_to_again() -> None:
    pair = Pair()
    pair.review()
    pair.replicas["a"].channels.clear()
    pair.replicas["a"].emit([Insertion(chunk(0, 1)), Boundary(10)])
    pair.reader.restarted("a")
    pair.review()
    assert bodies(pair.got) == [1]


def test_corrections_come_beside_what_is_tentative() -> None:
    """The upstream reconciles: its reader keeps it for corrections and takes what is new from the other."""
    pair = Pair()
    for replica in ("a", "b"):
        pair.say(replica, Insertion(chunk(0, 1)), Boundary(10))
    pair.review()
    for replica in ("a", "b"):
        pair.say(replica, Tentative(chunk(1, f"{replica}2")), Boundary(20, tentative=True))
    pair.review(a=U, b=U)
    assert pair.status() is Status.FAILING
    pair.review(a=Z)
    assert pair.reader.main is not None
    assert pair.reader.aux is not None
    assert (pair.reader.main.replica, pair.reader.aux.replica) == ("b", "a")
    assert pair.status() is Status.CORRECTING
    pair.say("a", Undo(ItemId(0, 0)), Insertion(chunk(1, 2)), Boundary(20))
    pair.say("b", Tentative(chunk(2, "b3")), Boundary(30, tentative=True))
    pair.say("a", RecDone())
    pair.review(a=S)
    assert pair.reader.main.replica == "a"
    assert pair.reader.aux is None
    said = bodies(pair.got)
    assert [item for item in said if isinstance(item, int)] == [1, 2], "each stable item once"
    assert said[-1] == "U", "what was tentative meanwhile is undone with the switch back"
    assert not pair.reader.tentative


def test_without_both_connections_new_items_stop() -> None:
    pair = Pair(both=False)
    pair.review()
    pair.review(a=Z, b=U)
    assert pair.reader.main is not None
    assert pair.reader.main.replica == "a"


def test_a_replica_that_lives_and_says_nothing_is_left() -> None:
    pair = Pair()
    pair.review(now=0)
    pair.review(now=100, a=U, b=U)
    assert pair.reader.main is not None
    assert pair.reader.main.replica == "a", "Table II: stay"
    pair.review(now=6000)
    assert pair.reader.main.replica == "b"


@pytest.mark.parametrize(("moved", "status"), [(0, Status.FAILING), (1500, Status.OK)])
def test_a_stream_without_boundaries_is_failing(moved: int, status: Status) -> None:
    pair = Pair()
    pair.review()
    pair.say("a", Boundary(10), now=moved)
    assert pair.status(now=2000) is status


def test_buffers_let_go_of_what_everybody_has() -> None:
    buffer = OutputBuffer(["x", "y"], most=4)
    for bucket in range(4):
        buffer.append(chunk(bucket, bucket))
    assert buffer.full
    buffer.acknowledge("x", ItemId(2, 0))
    assert buffer.full, "y has nothing yet"
    buffer.acknowledge("y", ItemId(1, 5))
    assert [c.bucket for c in buffer.chunks] == [2, 3]
    assert buffer.dropped == ItemId(1, 0)
    buffer.acknowledge("stranger", ItemId(9, 9))
    assert buffer.size == 2


def test_a_window_lets_go_whoever_needs_it() -> None:
    buffer = OutputBuffer(["x"], window=20)
    for bucket in range(4):
        buffer.append(chunk(bucket, bucket))
    buffer.age(2)
    assert [c.bucket for c in buffer.chunks] == [2, 3]
    stream = OutputStream("s", buffer)
    send = stream.subscribe("x", Subscribe("s", 1, ItemId(0, 0), False, 0))
    assert isinstance(send.message, Flow)
    assert send.message.lost == ItemId(1, 0), "the reader is told"


def test_an_entry_point_never_stamps_below_its_log() -> None:
    entry = EntryPoint("s", "s", 10, ["n"])
    actions = entry.offer([("a", 1), ("b", 1)], now=100)
    (items,) = [action.items for action in actions if type(action).__name__ == "Persist"]
    assert [item.stime for item in items] == [100, 101]
    again = EntryPoint("s", "s", 10, ["n"])
    again.start(2, items)
    (later,) = [a.items for a in again.offer([("c", 1)], now=50) if type(a).__name__ == "Persist"]
    assert later[0].stime == 102


def test_a_boundary_is_kept_whatever_the_clock_does() -> None:
    entry = EntryPoint("s", "s", 10, ["n"])
    entry.boundary(now=500)
    (items,) = [a.items for a in entry.offer([("a", 1)], now=400) if type(a).__name__ == "Persist"]
    assert items[0].stime == 500


def test_an_entry_point_refuses_rather_than_to_take_what_it_cannot_keep() -> None:
    entry = EntryPoint("s", "s", 10, ["n"], most=2)
    entry.offer([("a", 1), ("b", 1), ("c", 1)], now=100)
    assert (entry.waiting, entry.refused) == (2, 1)
    received: Mapping[str, ItemId] = {"s": ItemId(10, 1)}
    entry.handle(Received("n", HeartbeatRequest(0, received)), now=110)
    entry.offer([("d", 1)], now=120)
    assert (entry.waiting, entry.refused) == (1, 1)


def test_what_is_tentative_is_bounded_too() -> None:
    stream = OutputStream("s", OutputBuffer(["x"], most=2))
    stream.emit([Tentative(chunk(bucket, bucket)) for bucket in range(5)])
    assert [said.chunk.bucket for said in stream.overlay] == [3, 4]
    stream.age(4)
    assert [said.chunk.bucket for said in stream.overlay] == [4]


def test_what_everybody_has_from_a_faster_replica_is_not_held() -> None:
    buffer = OutputBuffer(["x"])
    buffer.acknowledge("x", ItemId(5, 0))
    buffer.append(chunk(4, "late"))
    assert buffer.size == 0
    buffer.append(chunk(6, "new"))
    assert buffer.size == 1
