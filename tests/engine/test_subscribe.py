"""Subscriptions: every change once, in order, resumable; what is not acknowledged is kept."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine import pieces
from anabranch.model.errors import AnabranchError
from tests.engine.test_queries import COUNTS, at, rows

Said = list[tuple[Any, ...]]


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, v STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(COUNTS)
    return engine.stream("s")


def three_buckets(engine: ab.Engine, s: ab.Stream) -> None:
    s.append(rows(0.5, 1.5))
    engine.advance()
    s.append(rows(0.1))
    s.append(rows(0.2, k="b"))
    engine.advance()
    s.append(rows(2.5))
    engine.advance()


EVERYTHING = [
    ((1, 0), "insert", "a", 1),
    ((2, 0), "update_preimage", "a", 1),
    ((2, 1), "update_postimage", "a", 2),
    ((2, 2), "insert", "b", 1),
    ((3, 0), "insert", "a", 1),
]


def said(subscription: ab.Subscription) -> Said:
    with subscription:
        return [(c.at, c.change_type, c.row["k"], c.row["c"]) for c in subscription]


def test_changes_come_in_order_and_can_be_resumed_after_any_of_them(engine: ab.Engine, s: ab.Stream) -> None:
    three_buckets(engine, s)
    assert said(engine.subscribe("counts", follow=False)) == EVERYTHING
    for n, (place, *_) in enumerate(EVERYTHING):
        assert said(engine.subscribe("counts", after=place, follow=False)) == EVERYTHING[n + 1 :]
    assert said(engine.subscribe("counts", after=(9, 0), follow=False)) == []
    first = next(engine.subscribe("counts"))
    assert first.row["t"] == at(1), "instants are instants"
    assert (first.position, first.stability, first.stime.tzinfo is None) == (1, "stable", False)


def test_insert_only_leaves_revisions_out(engine: ab.Engine, s: ab.Stream) -> None:
    three_buckets(engine, s)
    found = said(engine.subscribe("counts", insert_only=True, follow=False))
    assert found == [item for item in EVERYTHING if item[1] == "insert"]


def test_a_piece_is_never_larger_than_it_may_be(
    engine: ab.Engine, s: ab.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_buckets(engine, s)
    sizes = []
    fetch = pieces.fetch

    def noted(frame: Any) -> Any:
        found = fetch(frame)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(pieces, "fetch", noted)
    monkeypatch.setattr(pieces.Pieces.__init__, "__kwdefaults__", {"after": None, "insert_only": False, "most_rows": 2})
    assert said(engine.subscribe("counts", follow=False)) == EVERYTHING
    assert sizes == [1, 2, 1, 1]


def test_base_streams_are_counted_by_position(engine: ab.Engine, s: ab.Stream) -> None:
    three_buckets(engine, s)
    found = list(engine.subscribe("s", follow=False))
    assert [c.at for c in found] == [(1, 0), (1, 1), (2, 0), (3, 0), (4, 0)]
    assert all(c.bucket is None for c in found)
    assert [c.at for c in engine.subscribe("s", after=(1, 0), follow=False)] == [(1, 1), (2, 0), (3, 0), (4, 0)]


def test_a_follower_waits_for_more_until_it_is_closed(engine: ab.Engine, s: ab.Stream) -> None:
    subscription = engine.subscribe("counts")
    found: list[Any] = []
    there = threading.Event()

    def follow() -> None:
        for change in subscription:
            found.append(change.at)
            there.set()

    follower = threading.Thread(target=follow)
    follower.start()
    s.append(rows(0.5, 1.5))
    engine.advance()
    assert there.wait(60)
    subscription.close()
    follower.join(60)
    assert not follower.is_alive()
    assert found == [(1, 0)]


def test_the_event_loop_goes_on_while_a_subscription_waits(engine: ab.Engine, s: ab.Stream) -> None:
    async def main() -> list[Any]:
        turns, found = 0, []
        over = asyncio.Event()

        async def turn() -> None:
            nonlocal turns
            while not over.is_set():
                turns += 1
                await asyncio.sleep(0)

        async def write() -> None:
            await asyncio.to_thread(lambda: three_buckets(engine, s))

        others = [asyncio.create_task(turn()), asyncio.create_task(write())]
        async for change in engine.subscribe("counts"):
            found.append(change.at)
            if len(found) == len(EVERYTHING):
                break
        over.set()
        await asyncio.gather(*others)
        assert turns > 100, "the loop was never held up"
        return found

    assert asyncio.run(main()) == [item[0] for item in EVERYTHING]


def test_a_name_resumes_and_keeps_what_it_has_not_acknowledged(engine: ab.Engine, s: ab.Stream) -> None:
    three_buckets(engine, s)
    with engine.subscribe("counts", name="app") as first:
        for _ in range(3):
            last = next(first)
        first.ack()
    assert last.at == (2, 1)
    assert said(engine.subscribe("counts", name="app", follow=False)) == EVERYTHING[3:]
    counts = engine.stream("counts")
    assert [(p.name, p.kind, p.position, p.ordinal) for p in counts.positions()] == [("app", "subscription", 1, 1)]
    with engine.subscribe("counts", name="app") as again:
        again.ack(last)  # an old one: it never goes back
        again.ack(next(again))
    assert [(p.position, p.ordinal) for p in counts.positions()] == [(1, 2)]
    with pytest.raises(AnabranchError) as caught:
        engine.drop_stream("counts")
    assert caught.value.id == "STREAM_IN_USE"
    assert "subscription 'app'" in caught.value.got
    assert counts.release("app")
    engine.drop_stream("counts")


def test_items_keep_their_identity_when_runs_are_folded(engine: ab.Engine, s: ab.Stream) -> None:
    for minute in range(10):
        s.append(rows(minute + 0.5, minute + 0.7, k="ab"[minute % 2]))
        engine.advance()
    before = said(engine.subscribe("counts", follow=False))
    with engine.subscribe("counts", name="app") as subscription:
        for _ in range(4):
            next(subscription)
        subscription.ack()
    counts = engine.stream("counts")
    counts.compact()
    held = counts.positions()[0].position
    assert all(header.position == header.first_position for header in counts.runs() if header.position > held)
    assert said(engine.subscribe("counts", follow=False)) == before
    assert said(engine.subscribe("counts", name="app", follow=False)) == before[4:]
    counts.release("app")
    counts.compact()
    assert counts.runs()[0].first_position == 1, "the headers were folded"
    assert said(engine.subscribe("counts", follow=False)) == before
    assert said(engine.subscribe("counts", after=before[5][0], follow=False)) == before[6:]


def test_retention_keeps_what_a_subscription_has_not_seen(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM short (k STRING, v STRING, ts TIMESTAMP) EVENT TIME ts HISTORY '1 minute'")
    stream = engine.stream("short")
    for minute in range(6):
        stream.append(rows(minute))
    with engine.subscribe("short", name="slow") as slow:
        for _ in range(2):
            next(slow)
        slow.ack()
    assert stream.retain().rows == 1, "the acknowledged item's own run is kept until the next one is acknowledged"
    assert [c.at for c in engine.subscribe("short", name="slow", follow=False)] == [(n, 0) for n in range(3, 7)]
    with pytest.raises(AnabranchError) as caught:
        list(engine.subscribe("short", follow=False))
    assert caught.value.id == "HISTORY_GONE"
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("short", name="late")
    assert caught.value.id == "HISTORY_GONE"
    assert [p.name for p in stream.positions()] == ["slow"]
    with pytest.raises(AnabranchError) as caught:
        engine.create_sink("out", "short", str(engine.warehouse / "files"), insert_only=True)
    assert caught.value.id == "HISTORY_GONE"


def test_tentative_changes_come_with_their_undo(engine: ab.Engine, s: ab.Stream) -> None:
    s.append(rows(0.5, 1.5))
    engine.advance()
    subscription = engine.subscribe("counts", tentative=True)
    assert next(subscription).at == (1, 0)
    with s.unit_of_work(speculative=True) as work:
        work.append(rows(0.7))
        engine.advance()
        guess = [next(subscription) for _ in range(2)]
        assert [(c.change_type, c.row["c"]) for c in guess] == [("update_preimage", 1), ("update_postimage", 2)]
        assert all(c.tentative and c.position is None and c.bucket == 1 for c in guess)
    engine.advance()
    rest = [next(subscription) for _ in range(4)]
    assert [(c.change_type, c.stability, c.row["c"]) for c in rest] == [
        ("update_preimage", "tentative", 2),
        ("update_postimage", "tentative", 1),
        ("update_preimage", "stable", 1),
        ("update_postimage", "stable", 2),
    ]
    stable = said(engine.subscribe("counts", follow=False))
    assert [item[0] for item in stable] == [(1, 0), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("options", "need"),
    [
        ({"after": 5}, "a pair of a bucket and an ordinal"),
        ({"after": (1, -1)}, "a pair of a bucket and an ordinal"),
        ({"after": ("1", 0)}, "a pair of a bucket and an ordinal"),
        ({"tentative": True, "insert_only": True}, "either tentative= or insert_only="),
    ],
)
def test_what_cannot_be_meant_is_refused(engine: ab.Engine, s: ab.Stream, options: Any, need: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("counts", **options)
    assert (caught.value.id, caught.value.need) == ("BAD_ARGUMENT", need)


def test_mistakes_with_names(engine: ab.Engine, s: ab.Stream) -> None:
    three_buckets(engine, s)
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("counts").ack()
    assert caught.value.need == "a subscription with a name"
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("counts", name="not a name")
    assert caught.value.id == "BAD_NAME"
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("s", tentative=True)
    assert caught.value.need == "a query, which says tentative changes"
    engine.subscribe("counts", name="app")
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("counts", name="app", after=(1, 0))
    assert "goes on behind" in caught.value.need
    with pytest.raises(AnabranchError) as caught:
        engine.subscribe("nothing")
    assert caught.value.id == "UNKNOWN_STREAM"
