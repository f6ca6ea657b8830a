"""The keeper: a cut is safe when every holder has it and has settled it, and nobody downstream needs what is below."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dadstorm.core.keeper import PATIENCE_TICKS, Keeper, KeeperAction, SendCopy, SendSettle
from dadstorm.core.line import START
from dadstorm.core.messages import Held, Peer
from dadstorm.core.vault import Delta, Vault

ME, ONE, OTHER = Peer(0, 0), Peer(0, 1), Peer(0, 2)


def keeper(incarnation: int = 0) -> Keeper:
    """A keeper with two holders that have acknowledged its beginning."""
    made = Keeper(ME, 5, incarnation, Vault())
    list(made.hold_at({ONE: 0, OTHER: 0}))
    for peer in (ONE, OTHER):
        list(made.held(held(peer, START, START, incarnation)))
    return made


def held(peer: Peer, cut: int, settled: int, incarnation: int = 0, holder_incarnation: int = 0) -> Held:
    return Held(0, 5, incarnation, peer.replica, holder_incarnation, cut, settled)


def copies(actions: Iterable[KeeperAction]) -> list[tuple[Peer, int | None, int]]:
    return [(a.to, a.message.after, a.message.cut) for a in actions if isinstance(a, SendCopy)]


def settles(actions: Iterable[KeeperAction]) -> list[tuple[Peer, int]]:
    return [(a.to, a.message.cut) for a in actions if isinstance(a, SendSettle)]


def test_a_snapshot_goes_to_every_holder_as_a_delta() -> None:
    one = keeper()
    assert copies(one.snapshot(Delta(8))) == [(ONE, 0, 8), (OTHER, 0, 8)]
    assert copies(one.snapshot(Delta(16))) == [(ONE, 8, 16), (OTHER, 8, 16)]


def test_two_steps_make_a_cut_safe() -> None:
    one = keeper()
    list(one.snapshot(Delta(8)))
    list(one.consumers_safe(8))
    assert list(one.held(held(ONE, 8, 0))) == []
    assert settles(one.held(held(OTHER, 8, 0))) == [(ONE, 8), (OTHER, 8)], "all have it: settle it"
    assert one.safe == START, "not yet: nobody has settled it"
    list(one.held(held(ONE, 8, 8)))
    assert one.safe == START, "one has not"
    list(one.held(held(OTHER, 8, 8)))
    assert one.safe == 8


def test_what_a_consumer_may_still_ask_for_is_not_safe() -> None:
    one = keeper()
    for cut in (8, 16):
        list(one.snapshot(Delta(cut)))
    list(one.consumers_safe(15))
    for peer in (ONE, OTHER):
        list(one.held(held(peer, 16, 0)))
    assert settles(one.tick()) == [], "they were told at once"
    for peer in (ONE, OTHER):
        list(one.held(held(peer, 16, 8)))
    assert one.safe == 8


@pytest.mark.parametrize(
    "answer",
    [
        held(Peer(0, 3), 8, 8),
        held(ONE, 8, 8, holder_incarnation=1),
        held(ONE, -1, -1),
    ],
    ids=["of somebody who was not asked", "of another incarnation of the holder", "of who has nothing"],
)
def test_only_the_answers_of_those_who_were_asked_count(answer: Held) -> None:
    one = keeper()
    list(one.snapshot(Delta(8)))
    list(one.consumers_safe(8))
    list(one.held(held(OTHER, 8, 8)))
    list(one.held(answer))
    assert one.safe == START


def test_an_answer_to_an_earlier_incarnation_does_not_count() -> None:
    one = keeper(incarnation=2)
    list(one.snapshot(Delta(8)))
    list(one.consumers_safe(8))
    for peer in (ONE, OTHER):
        list(one.held(held(peer, 8, 8, incarnation=1)))
    assert (one.safe, one.superseded) == (START, False)


def test_who_meets_a_higher_incarnation_of_itself_is_superseded() -> None:
    one = keeper()
    list(one.held(held(ONE, 8, 8, incarnation=1)))
    assert one.superseded


def test_with_nobody_to_hold_copies_safe_stands_still() -> None:
    one = keeper()
    list(one.hold_at({}))
    list(one.snapshot(Delta(8)))
    list(one.consumers_safe(8))
    assert one.safe == START


def test_a_new_holder_gets_everything_at_once() -> None:
    one = keeper()
    for cut in (8, 16, 24):
        list(one.snapshot(Delta(cut)))
    list(one.consumers_safe(8))
    for peer in (ONE, OTHER):
        list(one.held(held(peer, 24, 8)))
    assert one.safe == 8
    back = copies(one.hold_at({ONE: 0, OTHER: 1}))
    assert back == [(OTHER, None, 8), (OTHER, 8, 16), (OTHER, 16, 24)], "the base, and the deltas above it"


def test_a_dead_holder_is_not_waited_for() -> None:
    one = keeper()
    list(one.snapshot(Delta(8)))
    list(one.consumers_safe(8))
    list(one.held(held(ONE, 8, 0)))
    assert settles(one.hold_at({ONE: 0})) == [(ONE, 8)]
    list(one.held(held(ONE, 8, 8)))
    assert one.safe == 8


def test_what_is_not_acknowledged_is_sent_again_after_a_while() -> None:
    one = keeper()
    list(one.snapshot(Delta(8)))
    list(one.held(held(OTHER, 8, 0)))
    said = [copies(one.tick()) for _ in range(2 * PATIENCE_TICKS + 1)]
    assert said[0] == [], "an acknowledgement takes time"
    again = [found for found in said if found]
    assert again and all(found == [(ONE, 0, 8)] for found in again)
