"""The sending end: who gets which tiles when, and how long they are kept."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from core_kit import SCHEMA, numbers, ranges, rows, seqs

from dadstorm.core.messages import Peer
from dadstorm.core.outlet import Outlet, Send
from dadstorm.core.routing import Router
from dadstorm.core.rows import Rows

PRODUCER, CONSUMER, INPUT = 2, 5, 1
NOTHING = Rows.empty(SCHEMA)


def outlet(slices: int = 1, retain: bool = True) -> Outlet:
    return Outlet(Peer(PRODUCER, 0), 3, 0, CONSUMER, INPUT, 0, Router("random", (), slices, 0), retain)


def sent(sends: Iterable[Send]) -> list[tuple[int, tuple[int, ...], int, int]]:
    """Of each message: the replica, the slices, the range."""
    return [(send.to.replica, send.message.slices, send.message.lo, send.message.hi) for send in sends]


def attached(slices: int = 1, retain: bool = True) -> Outlet:
    made = outlet(slices, retain)
    assert list(made.attach(0, 0, [(index, 0) for index in range(slices)])) == []
    return made


def test_a_message_says_whose_tiles_it_carries() -> None:
    (send,) = attached().emit(0, 5, rows(1, 2))
    assert send.to == Peer(CONSUMER, 0)
    message = send.message
    assert (message.producer, message.producer_slice, message.consumer, message.input) == (PRODUCER, 3, CONSUMER, INPUT)
    assert (message.lo, message.hi, message.slices, message.counts) == (0, 5, (0,), (2,))
    assert seqs(send.rows) == [1, 2]


def test_a_tile_without_rows_is_sent_too() -> None:
    (send,) = attached().emit(0, 5, NOTHING)
    assert (send.message.counts, len(send.rows)) == ((0,), 0)


def test_what_is_emitted_before_anybody_attached_waits() -> None:
    made = outlet()
    assert list(made.emit(0, 5, rows(1))) == []
    assert list(made.emit(5, 9, rows(7))) == []
    assert ranges(made.attach(0, 0, [(0, 0)])) == [(0, 9, [1, 7])], "in one message"
    assert ranges(made.emit(9, 12, rows(10))) == [(9, 12, [10])]


def test_who_attaches_again_gets_what_is_kept_from_its_cut_on() -> None:
    made = attached()
    for lo in (0, 5, 10):
        list(made.emit(lo, lo + 5, rows(lo, lo + 4)))
    assert ranges(made.attach(0, 0, [(0, 5)])) == [(5, 15, [5, 9, 10, 14])]
    inside = ranges(made.attach(0, 0, [(0, 7)]))
    assert inside == [(5, 15, [5, 9, 10, 14])], "a tile goes whole; who gets it trims"
    assert ranges(made.attach(0, 0, [(0, 15)])) == []


def test_what_is_sent_again_is_what_was_sent_in_fewer_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that trickles makes many small emissions; they go again together, to neighbours in one message."""
    monkeypatch.setattr("dadstorm.core.outlet.TOGETHER_ROWS_MAX", 50)
    made = attached(3)
    first: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for lo in range(0, 200, 4):
        for send in made.emit(lo, lo + 4, rows(lo, lo + 1, lo + 3)):
            spread(send, first)
    again: dict[int, list[int]] = {0: [], 1: [], 2: []}
    sends = list(made.attach(0, 1, [(0, 0), (1, 0), (2, 0)]))
    for send in sends:
        spread(send, again)
    assert again == first
    assert [(s.message.lo, s.message.hi) for s in sends] == [(0, 64), (64, 128), (128, 192), (192, 200)]


def spread(send: Send, over: dict[int, list[int]]) -> None:
    """The seqs of a message's rows, to their slices."""
    start = 0
    for index, count in zip(send.message.slices, send.message.counts, strict=True):
        over[index] += seqs(send.rows.slice(start, start + count))
        start += count


def test_a_slice_that_is_ahead_gets_nothing_that_it_has() -> None:
    made = outlet()
    list(made.attach(0, 0, [(0, 10)]))
    assert ranges(made.emit(0, 10, rows(1))) == []
    assert ranges(made.emit(10, 20, rows(11))) == [(10, 20, [11])]


def test_a_slice_that_moved_gets_its_tiles_at_the_new_place() -> None:
    made = attached(2)
    list(made.attach(1, 0, [(1, 0)]))
    assert sent(made.emit(0, 5, NOTHING)) == [(0, (0,), 0, 5), (1, (1,), 0, 5)]


def test_neighbouring_slices_of_one_replica_share_a_message() -> None:
    made = outlet(6)
    list(made.attach(0, 0, [(0, 0), (1, 0), (4, 0)]))
    list(made.attach(1, 0, [(2, 0), (3, 0)]))
    assert sent(made.emit(0, 5, NOTHING)) == [(0, (0, 1), 0, 5), (1, (2, 3), 0, 5), (0, (4,), 0, 5)]


def test_slices_that_stand_elsewhere_are_left_out_of_it() -> None:
    made = outlet(3)
    list(made.attach(0, 0, [(0, 0), (1, 50), (2, 0)]))
    assert sent(made.emit(0, 5, NOTHING)) == [(0, (0,), 0, 5), (0, (2,), 0, 5)]


def test_a_shared_message_holds_each_slices_rows_one_after_the_other() -> None:
    together, alone = attached(3), attached(3)
    alone_rows = rows(*range(40))
    for index in range(3):
        list(alone.attach(index, 0, [(index, 0)]))
    (send,) = together.emit(0, 40, alone_rows)
    parts = list(alone.emit(0, 40, alone_rows))
    assert send.message.counts == tuple(len(part.rows) for part in parts)
    assert numbers(send.rows) == [number for part in parts for number in numbers(part.rows)]
    assert sorted(numbers(send.rows)) == list(range(40))


def test_tiles_are_kept_until_the_slowest_slice_is_safe() -> None:
    made = attached(2)
    list(made.emit(0, 5, rows(1)))
    list(made.emit(5, 9, rows(7)))
    made.advance([(0, 9)])
    assert (made.safe, made.kept_rows) == (0, 2)
    made.advance([(1, 5)])
    assert (made.safe, made.kept_rows) == (5, 1)
    made.advance([(1, 8)])
    assert (made.safe, made.kept_rows) == (8, 1), "a tile that reaches beyond is kept whole"
    made.advance([(1, 9)])
    assert (made.safe, made.kept_rows) == (9, 0)


def test_safe_never_moves_back() -> None:
    made = attached()
    made.advance([(0, 9)])
    made.advance([(0, 4)])
    assert made.safe == 9


@pytest.mark.parametrize("retain", [True, False])
def test_at_most_once_keeps_nothing_once_everybody_is_there(retain: bool) -> None:
    made = outlet(2, retain)
    list(made.emit(0, 5, rows(1, 2, 3)))
    list(made.attach(0, 0, [(0, 0)]))
    assert made.kept_rows == 3, "the other slice has not attached yet"
    assert ranges(made.attach(0, 0, [(1, 0)])) != []
    list(made.emit(5, 9, rows(7)))
    assert made.kept_rows == (4 if retain else 0)
