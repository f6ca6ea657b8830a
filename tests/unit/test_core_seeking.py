"""How a replica finds the state of its slices: it waits for everybody, and takes the newest."""

from __future__ import annotations

from itertools import permutations

from dadstorm.core.line import START
from dadstorm.core.messages import Found, Peer, Seek
from dadstorm.core.seeking import Seeking


def seeking(*asked: int) -> Seeking:
    return Seeking(Peer(3, 0), 2, {0: 2, 1: 2}, asked)


def found(holder: int, index: int, incarnation: int = 0, cut: int = -1, sought: int = 2) -> Found:
    return Found(3, index, sought, incarnation, holder, cut)


def test_it_asks_everybody_until_they_have_answered() -> None:
    one = seeking(1, 2)
    one.answered(found(1, 0, cut=5), None)
    asked = [(tell.to, tell.message) for tell in one.ask()]
    assert asked == [(Peer(3, 1), Seek(3, 0, 2, (1,), 2)), (Peer(3, 2), Seek(3, 0, 2, (0, 1), 2))]
    one.answered(found(1, 1), None)
    assert not one.over
    one.without([2])
    assert one.over and not list(one.ask())


def test_of_several_copies_the_one_of_the_highest_incarnation_and_then_cut_is_taken_whoever_answers_first() -> None:
    copies = [found(1, 0, incarnation=0, cut=9), found(2, 0, incarnation=1, cut=4), found(4, 0, incarnation=1, cut=7)]
    for order in permutations(copies):
        one = seeking(1, 2, 4)
        for copy in order:
            one.answered(copy, None)
        assert one.base(0).cut == 7


def test_with_no_copy_anywhere_a_slice_begins_at_the_start() -> None:
    one = seeking(1)
    one.answered(found(1, 0), None)
    one.answered(found(1, 1), None)
    assert one.over and one.base(0).cut == one.base(1).cut == START


def test_a_copy_that_comes_from_somebody_who_was_given_up_counts_too() -> None:
    one = seeking(1, 2)
    one.without([2])
    one.answered(found(2, 0, cut=8), None)
    assert one.base(0).cut == 8


def test_a_late_answer_to_an_earlier_incarnation_does_not_count() -> None:
    """Since it was given, the holder has got newer copies from that incarnation."""
    one = seeking(1)
    for index in (0, 1):
        one.answered(found(1, index, cut=4, sought=1), None)
    assert not one.over and one.base(0).cut == START
    for index in (0, 1):
        one.answered(found(1, index, incarnation=1, cut=9), None)
    assert one.over and one.base(0).cut == 9
