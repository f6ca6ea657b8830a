"""The receiving end of a channel: what it has received tiles the line, without gap or overlap."""

from __future__ import annotations

from core_kit import ids, seqs, tile
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.core.tile import Inlet, Tile, Verdict


def waiting(inlet: Inlet) -> list[int]:
    return [seq for part in inlet.waiting for seq in seqs(part)]


def test_an_inlet_knows_nothing_at_first() -> None:
    assert Inlet().hi == START
    assert Inlet().take(END) == []


def test_tiles_that_follow_each_other_are_taken() -> None:
    inlet = Inlet()
    assert inlet.offer(tile(0, 5, 1, 3)) is Verdict.TAKEN
    assert inlet.offer(tile(5, 9, 5)) is Verdict.TAKEN
    assert (inlet.hi, waiting(inlet), inlet.queued) == (9, [1, 3, 5], 3)


def test_a_tile_without_rows_moves_hi() -> None:
    inlet = Inlet()
    assert inlet.offer(tile(0, 100)) is Verdict.TAKEN
    assert (inlet.hi, inlet.queued) == (100, 0)


def test_a_tile_that_was_received_is_dropped() -> None:
    inlet = Inlet()
    inlet.offer(tile(0, 5, 1, 3))
    assert inlet.offer(tile(0, 5, 1, 3)) is Verdict.DUPLICATE
    assert inlet.offer(tile(2, 4, 3)) is Verdict.DUPLICATE
    assert (inlet.hi, waiting(inlet)) == (5, [1, 3])


def test_what_was_processed_is_a_duplicate_too() -> None:
    inlet = Inlet()
    inlet.offer(tile(0, 5, 1, 3))
    inlet.take(5)
    assert inlet.offer(tile(0, 5, 1, 3)) is Verdict.DUPLICATE
    assert inlet.queued == 0


def test_an_overlapping_tile_is_trimmed() -> None:
    inlet = Inlet()
    inlet.offer(tile(0, 5, 1, 3))
    assert inlet.offer(tile(2, 8, 3, 5, 7)) is Verdict.TAKEN
    assert (inlet.hi, waiting(inlet)) == (8, [1, 3, 5, 7])


def test_an_overlap_that_brings_nothing_but_the_range_still_moves_hi() -> None:
    inlet = Inlet()
    inlet.offer(tile(0, 5, 1, 3))
    assert inlet.offer(tile(0, 9, 1, 3)) is Verdict.TAKEN
    assert (inlet.hi, waiting(inlet)) == (9, [1, 3])


def test_a_gap_is_refused_and_changes_nothing() -> None:
    inlet = Inlet()
    inlet.offer(tile(0, 5, 1))
    assert inlet.offer(tile(6, 9, 7)) is Verdict.GAP
    assert (inlet.hi, waiting(inlet)) == (5, [1])


def test_where_gaps_are_allowed_the_stream_goes_on_behind_them() -> None:
    inlet = Inlet(gaps_allowed=True)
    inlet.offer(tile(0, 5, 1))
    assert inlet.offer(tile(6, 9, 7)) is Verdict.TAKEN
    assert (inlet.hi, waiting(inlet)) == (9, [1, 7])
    assert inlet.offer(tile(5, 6, 5)) is Verdict.DUPLICATE, "what was missed stays missed: it would be out of order"


def test_taking_stops_at_the_frontier() -> None:
    inlet = Inlet()
    inlet.offer(tile(0, 5, 1, 3))
    inlet.offer(tile(5, 9, 5, (5, 1), 8))
    assert [ids(part) for part in inlet.take(6)] == [[(1, 0), (3, 0)], [(5, 0), (5, 1)]]
    assert inlet.take(6) == []
    assert [seqs(part) for part in inlet.take(END)] == [[8]]


@given(st.data())
def test_any_storm_of_repeated_and_early_tiles_leaves_every_row_once(data: st.DataObject) -> None:
    """Tiles are ranges of one sequence of rows, cut anywhere, offered in any order: the whole line once, in the end."""
    last = 12
    whole = tile(0, last, *range(0, last, 2)).rows
    inlet, got = Inlet(), []
    bounds = st.tuples(st.integers(0, last), st.integers(0, last)).filter(lambda pair: pair[0] < pair[1])
    offers = data.draw(st.lists(bounds, max_size=20))
    for lo, hi in [*offers, (0, last)]:
        before = inlet.hi
        verdict = inlet.offer(Tile(lo, hi, cut(whole, lo, hi)))
        assert verdict is (Verdict.GAP if lo > before else Verdict.DUPLICATE if hi <= before else Verdict.TAKEN)
        got += [seq for part in inlet.take(data.draw(st.integers(0, inlet.hi))) for seq in seqs(part)]
    got += [seq for part in inlet.take(last) for seq in seqs(part)]
    assert got == seqs(whole)


def cut(all_rows: Rows, lo: int, hi: int) -> Rows:
    return all_rows.since(lo).below(hi)
