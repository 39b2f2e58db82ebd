"""Authorisation: who may reconcile when, who keeps a promise, and for how long."""

from __future__ import annotations

import pytest

from anabranch.protocol.dpc.messages import AuthorizationReply, AuthorizationRequest
from anabranch.protocol.dpc.stagger import Stagger

RETRY, PATIENCE = 100, 50


def stagger(me: str, *partners: str, **options: bool) -> Stagger:
    return Stagger(me, partners, RETRY, PATIENCE, **options)


@pytest.mark.parametrize(
    ("reconciling", "wanting", "asker", "granted"),
    [
        (False, False, "c", True),
        (True, False, "c", False),
        (False, True, "c", False),  # both must, and this one goes first
        (False, True, "a", True),
    ],
)
def test_when_it_is_granted(reconciling: bool, wanting: bool, asker: str, granted: bool) -> None:
    (send,) = stagger("b", "a", "c").answer(
        asker, AuthorizationRequest(7), 10, reconciling=reconciling, wanting=wanting
    )
    assert send.message == AuthorizationReply(7, granted)


def test_nobody_answers() -> None:
    asking = stagger("a", "b", "c")
    assert [send.to for send in asking.ask(0)] == ["b"]
    assert asking.ask(10) == []
    assert [send.to for send in asking.ask(PATIENCE)] == ["c"]
    asking.ask(2 * PATIENCE)
    assert asking.authorised, "unasked"


def test_a_node_without_replicas_goes_unasked() -> None:
    alone = stagger("a")
    alone.ask(0)
    assert alone.authorised


def test_a_refused_node_waits_and_asks_another() -> None:
    asking = stagger("b", "a", "c")
    (send,) = asking.ask(0)
    asking.replied(send.to, AuthorizationReply(0, False), 5)
    assert asking.ask(50) == []
    assert [send.to for send in asking.ask(5 + RETRY)] == ["c"]


def test_a_promise_lapses_if_nobody_renews_it() -> None:
    keeping = stagger("b", "a")
    keeping.answer("a", AuthorizationRequest(0), 0, reconciling=False, wanting=False)
    assert keeping.covering(3 * RETRY)
    assert keeping.ask(10) == []
    keeping.answer("a", AuthorizationRequest(200), 200, reconciling=False, wanting=True)
    assert keeping.covering(4 * RETRY), "renewed, also by one that waits itself"
    assert not keeping.covering(200 + 4 * RETRY)


def test_a_late_grant_is_given_back() -> None:
    asking = stagger("b", "a")
    asking.ask(0)
    asking.ask(PATIENCE)
    (send,) = asking.replied("a", AuthorizationReply(0, True), 80)
    assert type(send.message).__name__ == "AuthorizationReturned"


def test_rules_that_are_switched_off() -> None:
    hasty = stagger("b", "a", on=False)
    assert hasty.ask(0) == []
    assert hasty.authorised
    stubborn = stagger("b", "a", tie_break=False)
    (send,) = stubborn.answer("a", AuthorizationRequest(0), 0, reconciling=False, wanting=True)
    assert send.message == AuthorizationReply(0, False)
