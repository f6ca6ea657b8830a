"""At-least-once: which rows are repeats, and when they are taken."""

from __future__ import annotations

from core_kit import rows

from dadstorm.core.again import Again
from dadstorm.core.tile import Inlet, Tile, Verdict


def inlet() -> Inlet:
    return Inlet(again=Again())


def repeated(one: Inlet) -> list[int]:
    assert one.again is not None
    return [int(seq) for part in one.again.waiting for seq in part.seq]


def test_a_copy_of_a_message_is_no_repeat() -> None:
    one = inlet()
    for _ in range(2):
        one.offer(Tile(0, 5, rows(1, 3)))
    assert repeated(one) == []


def test_what_a_new_incarnation_emits_again_is_a_repeat_once() -> None:
    one = inlet()
    one.offer(Tile(0, 10, rows(1, 3, 8)))
    assert one.offer(Tile(2, 6, rows(3), incarnation=1)) is Verdict.DUPLICATE
    one.offer(Tile(2, 6, rows(3), incarnation=1))
    assert one.offer(Tile(6, 14, rows(8, 12), incarnation=1)) is Verdict.TAKEN
    assert repeated(one) == [3, 8]
    assert [int(seq) for part in one.take(20) for seq in part.seq] == [1, 3, 8, 12], "on the line, all is there once"


def test_what_was_known_before_anything_came_is_in_the_snapshot() -> None:
    one = inlet()
    one.hi = 5
    one.offer(Tile(0, 9, rows(2, 6), incarnation=3))
    assert repeated(one) == []


def test_an_outdone_incarnation_repeats_nothing() -> None:
    one = inlet()
    one.offer(Tile(0, 10, rows(1, 3), incarnation=2))
    one.offer(Tile(0, 10, rows(1, 3), incarnation=1))
    assert repeated(one) == []


def test_repeats_that_are_passed_on_move_no_frontier() -> None:
    """They are not all that there is in their range, and what is not known yet is not repeated."""
    one = inlet()
    one.offer(Tile(0, 4, rows(1, 3)))
    assert one.offer(Tile(3, 8, rows(3, 7), again=True)) is Verdict.DUPLICATE
    assert (one.hi, repeated(one)) == (4, [3])


def test_repeats_wait_until_the_line_has_come_that_far() -> None:
    again = Again()
    again.keep(rows(3, 7))
    assert not again.ready(7)
    assert again.ready(8)
