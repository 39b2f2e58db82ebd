"""Whatever a link loses, and to whichever replica a reader turns, it gets every stable item once, in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol.dpc.items import Boundary, Insertion, Tentative, Undo
from anabranch.protocol.dpc.states import State
from tests.unit.dpc.test_streams import Pair, chunk

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "lose", "tentative", "away", "fail", "back", "restart"]), st.sampled_from(["a", "b"])
    ),
    max_size=40,
)


def stable(pair: Pair) -> list[object]:
    return [item.body for e in pair.got if isinstance(e, Insertion) for item in e.chunk.items]


@settings(max_examples=150)
@given(steps=STEPS)
def test_every_stable_item_once(steps: list[tuple[str, str]]) -> None:
    pair = Pair()
    pair.review()
    said = dict.fromkeys("ab", 0)
    now = 0
    for step, replica in steps:
        now += 10
        match step:
            case "say":
                pair.say(
                    replica, Insertion(chunk(said[replica], said[replica])), Boundary(10 * said[replica] + 10), now=now
                )
                said[replica] += 1
            case "lose":
                pair.lose = 1
            case "tentative":
                pair.say(replica, Tentative(chunk(said[replica], "t")), Boundary(1 << 20, tentative=True), now=now)
            case "away":
                pair.review(now, **{replica: State.FAILURE})
            case "fail":
                pair.review(now, **{replica: State.UP_FAILURE})
            case "back":
                pair.review(now, **{replica: State.STABLE})
            case "restart":
                pair.replicas[replica].channels.clear()
                pair.reader.restarted(replica)
                pair.review(now)
    # Calm: both replicas catch up with each other, undo what is tentative, and nothing is lost any more.
    pair.lose = 0
    last = max(said.values()) + 1
    for replica in "ab":
        if pair.replicas[replica].overlay:
            pair.say(replica, Undo(pair.reader.last), now=now)
        while said[replica] < last:
            number = said[replica]
            pair.say(replica, Insertion(chunk(number, number)), Boundary(10 * number + 10), now=now)
            said[replica] += 1
    for round_ in range(1, 12):
        later = now + 2000 * round_
        pair.review(later, a=State.STABLE, b=State.STABLE)
        for replica in "ab":
            pair.say(replica, Boundary(10 * last + round_), now=later)
    assert stable(pair) == list(range(last))
    assert not pair.reader.tentative
