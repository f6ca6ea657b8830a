"""Slices: how they move along the line, in steps of any size, and where what they emit is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from core_kit import SCHEMA, ids, mark_at, numbers, ranges, rows, tile
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core import slice as slices
from dadstorm.core.chain import Chain
from dadstorm.core.kernel import DEAD, Dead, Output, Stateless
from dadstorm.core.line import END, Packing
from dadstorm.core.messages import Peer
from dadstorm.core.outlet import Outlet, Send
from dadstorm.core.routing import Router
from dadstorm.core.rows import Rows
from dadstorm.core.slice import Deliver, Merger, SinkSlice, SourceSlice, WorkSlice
from dadstorm.core.stride import Stride
from dadstorm.core.tile import Verdict
from dadstorm.core.window import Window

PACKING = Packing((0, 0), 1, 1)
"""Two inputs, two outputs a tuple."""
STRIDE = 1 << 10
"""Farther than any of these rows: no snapshot is due while they are processed."""
SUB_BITS = 3
"""How wide the subs of these tests are once the input is packed in."""


class Twice(Stateless):
    """Two outputs for each row, and a dead letter for every odd number."""

    def process(self, rows: Rows) -> Output:
        parent = np.repeat(np.arange(len(rows)), 2)
        odd = np.flatnonzero(rows.data.column(0).to_numpy() % 2)
        text = pa.array(["odd"] * len(odd), pa.string())
        letters = Dead(odd, pa.RecordBatch.from_arrays([text] * 3, schema=DEAD))
        return Output(rows.data.take(pa.array(parent)), parent, np.tile([0, 1], len(rows)), letters)


def outlet(port: int = 0) -> Outlet:
    made = Outlet(Peer(0, 0), 0, 0, 1, port, port, Router("primary", (), 1, 0), retain=True)
    list(made.attach(0, 0, [(0, 0)]))
    return made


def merger(channels: Sequence[tuple[int, int]] = ((0, 0), (1, 0)), gaps_allowed: bool = False) -> Merger:
    return Merger(PACKING, SUB_BITS, channels, 0, gaps_allowed)


def work_slice(outlets: Sequence[Outlet] | None = None) -> WorkSlice:
    made = [outlet()] if outlets is None else outlets
    return WorkSlice(0, 0, made, None, Stride(1000, STRIDE), merger(), Chain((Twice(), PACKING), (), SCHEMA), SCHEMA)


def sink_slice() -> SinkSlice:
    return SinkSlice(0, 0, None, Stride(1000, STRIDE), merger(), SCHEMA)


def run(one: WorkSlice | SinkSlice, rows_max: int = 1 << 20) -> list[Any]:
    """Everything that steps of this size bring out until there is nothing left to do."""
    actions: list[Any] = []
    while one.has_work():
        actions += one.step(rows_max)
    return actions


def assert_tiles_the_line(sends: Iterable[Send], start: int = 0) -> None:
    found = ranges(sends)
    assert found[0][0] == start
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert all(lo <= seq < hi for lo, hi, seqs in found for seq in seqs)


# -- the frontier ----------------------------------------------------------------------------------------------------


def test_nothing_is_ready_until_every_channel_has_said_so() -> None:
    made = merger()
    made.offer((0, 0), tile(0, 10, 1, 5))
    assert made.frontier == 0
    assert made.next(100) is None
    made.offer((1, 0), tile(0, 4, 2))
    assert made.frontier == 4
    ready = made.next(100)
    assert ready is not None and ids(ready) == [(1, 0), (2, 1)], "5 lies beyond the frontier; subs carry the input"


def test_the_frontier_is_the_least_of_all_channels_slices_of_producers_included() -> None:
    made = merger([(0, 0), (0, 1), (1, 0)])
    for hi, channel in ((9, (0, 0)), (7, (0, 1)), (8, (1, 0))):
        made.offer(channel, tile(0, hi))
    assert made.frontier == 7
    made.offer((0, 1), tile(7, 20))
    assert made.frontier == 8


def test_a_duplicate_or_a_gap_does_not_move_the_frontier() -> None:
    made = merger([(0, 0)])
    made.offer((0, 0), tile(0, 5, 1))
    assert made.offer((0, 0), tile(0, 5, 1)) is Verdict.DUPLICATE
    assert made.offer((0, 0), tile(8, 9, 8)) is Verdict.GAP
    assert (made.frontier, made.queued) == (5, 1)


def test_ties_go_by_input_whichever_tile_came_first() -> None:
    made = merger()
    made.offer((1, 0), tile(0, 5, (3, 0), (3, 1)))
    made.offer((0, 0), tile(0, 5, (3, 0), (3, 1)))
    ready = made.next(100)
    assert ready is not None and ids(ready) == [(3, 0b0_0), (3, 0b0_1), (3, 0b1_0), (3, 0b1_1)]


def test_rows_that_arrive_while_others_are_ready_wait_for_their_turn() -> None:
    made = merger([(0, 0)])
    made.offer((0, 0), tile(0, 5, 1, 2, 3))
    first = made.next(1)
    made.offer((0, 0), tile(5, 9, 6))
    rest = [made.next(10), made.next(10)]
    assert [[seq for seq, _ in ids(part)] for part in [first, *rest] if part] == [[1], [2, 3], [6]]
    assert made.queued == 0


# -- operators -------------------------------------------------------------------------------------------------------


def fed(one: WorkSlice | SinkSlice) -> WorkSlice | SinkSlice:
    """Two inputs that share seqs."""
    one.merger.offer((0, 0), tile(0, 10, 1, 2, (2, 1), 7))
    one.merger.offer((1, 0), tile(0, 10, 2, 3, 7, 8))
    return one


@pytest.mark.parametrize("rows_max", [1, 2, 3, 5, 100])
def test_the_outputs_of_one_seq_are_never_split_over_two_tiles(rows_max: int) -> None:
    sends = run(fed(work_slice()), rows_max)
    assert_tiles_the_line(sends)
    owners: dict[int, int] = {}
    for index, (_, _, seqs) in enumerate(ranges(sends)):
        for seq in seqs:
            assert owners.setdefault(seq, index) == index, f"seq {seq} is in two tiles"
    assert sum(len(send.rows) for send in sends) == 16


@pytest.mark.parametrize("rows_max", [1, 2, 3, 5])
def test_steps_of_any_size_give_the_same_rows_with_the_same_ids(rows_max: int) -> None:
    small, whole = run(fed(work_slice()), rows_max), run(fed(work_slice()))
    assert len(whole) == 1
    together = Rows.concat([send.rows for send in small])
    assert (ids(together), numbers(together)) == (ids(whole[0].rows), numbers(whole[0].rows))


def test_ids_of_outputs_are_their_parents_and_their_ordinal() -> None:
    one = work_slice()
    one.merger.offer((0, 0), tile(0, 5))
    one.merger.offer((1, 0), tile(0, 5, (3, 2)))
    (send,) = run(one)
    assert ids(send.rows) == [(3, 0b10_1_0), (3, 0b10_1_1)]


def test_a_frontier_that_moves_without_rows_is_passed_on_as_a_flush_tile() -> None:
    one = work_slice()
    one.merger.offer((0, 0), tile(0, 50))
    one.merger.offer((1, 0), tile(0, 30, 40))
    assert ranges(run(one)) == [(0, 30, [])]


def test_done_follows_the_frontier_to_the_end_of_the_line() -> None:
    one = work_slice()
    for channel in ((0, 0), (1, 0)):
        one.merger.offer(channel, tile(0, END, 5))
    run(one, 1)
    assert one.done == END
    assert not one.has_work()


def test_dead_letters_have_their_own_port_and_their_tuples_ids() -> None:
    main, dead = outlet(0), outlet(1)
    one = work_slice([main, dead])
    one.merger.offer((0, 0), tile(0, 5, 1, 2, 3))  # The numbers 0, 1, 2: one is odd.
    one.merger.offer((1, 0), tile(0, 5))
    sends = run(one)
    assert [send.message.input for send in sends] == [0, 1]
    assert ids(sends[1].rows) == [(2, 0)]
    assert sends[1].rows.data.schema == DEAD


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_dead_letters_tile_the_line_too(rows_max: int) -> None:
    main, dead = outlet(0), outlet(1)
    sends = run(fed(work_slice([main, dead])), rows_max)
    for port in (0, 1):
        assert_tiles_the_line([send for send in sends if send.message.input == port])


def test_safe_is_what_every_consumer_is_safe_of() -> None:
    outlets = [outlet(), outlet()]
    one = work_slice(outlets)
    outlets[0].advance([(0, 9)])
    assert one.safe == 0
    outlets[1].advance([(0, 4)])
    assert one.safe == 4


def test_with_no_consumer_what_is_done_is_safe() -> None:
    one = work_slice([])
    fed(one)
    run(one)
    assert one.safe == one.done == 10


# -- large tiles -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 400))
def test_a_heavy_tile_is_cut_between_seqs(found: list[int], bytes_max: int) -> None:
    records = rows(*[(seq, index) for index, seq in enumerate(sorted(found))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "TILE_BYTES_MAX", bytes_max)
        source = source_slice(1 << 20)
        sends = list(source.records(records, 10, None, mark_at))
    assert_tiles_the_line(sends)
    assert sends[-1].message.hi == 10
    assert ids(Rows.concat([send.rows for send in sends])) == ids(records)
    for send in sends:
        assert send.rows.nbytes <= bytes_max or len({*send.rows.seq.tolist()}) == 1
    owners = [seq for send in sends for seq in {*send.rows.seq.tolist()}]
    assert len(owners) == len(set(owners))


# -- sources ---------------------------------------------------------------------------------------------------------


def source_slice(rows_max: int = 10, outlets: Sequence[Outlet] | None = None) -> SourceSlice:
    made = [outlet()] if outlets is None else outlets
    return SourceSlice(0, 0, made, None, Stride(1000, STRIDE), Window(rows_max, 1 << 30), SCHEMA)


def test_records_become_tiles() -> None:
    source = source_slice()
    assert ranges(source.records(rows(0, 1), 2, None, mark_at)) == [(0, 2, [0, 1])]
    assert ranges(source.records(Rows.empty(SCHEMA), 9, None, mark_at)) == [(2, 9, [])]
    assert source.done == 9


def test_a_reader_with_nothing_new_emits_nothing() -> None:
    source = source_slice()
    list(source.records(rows(0), 5, None, mark_at))
    assert list(source.records(Rows.empty(SCHEMA), 5, None, mark_at)) == []
    assert source.done == 5


def test_the_room_comes_back_when_the_consumer_is_safe() -> None:
    source = source_slice(rows_max=2)
    list(source.records(rows(0, 1), 2, None, mark_at))
    assert source.room == (0, 0)
    source.outlets[0].advance([(0, 2)])
    assert source.room[0] == 2


def test_at_the_end_of_the_line_there_is_nothing_to_read() -> None:
    source = source_slice()
    list(source.records(rows(0), END, None, mark_at))
    assert source.room == (0, 0)


def test_dead_letters_of_a_source_count_in_the_window() -> None:
    source = source_slice(2, [outlet(0), outlet(1)])
    letter = pa.RecordBatch.from_arrays([pa.array(["x"])] * 3, schema=DEAD)
    sends = list(source.records(rows(0), 2, Rows(rows(1).seq, rows(1).sub, letter), mark_at))
    assert ranges(sends) == [(0, 2, [0]), (0, 2, [1])]
    assert source.room == (0, 0)


# -- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_max", [1, 2, 3, 100])
def test_a_sink_gets_whole_seqs_in_id_order_and_a_cut_that_it_can_commit(rows_max: int) -> None:
    sink = fed(sink_slice())
    delivered: list[Deliver] = run(sink, rows_max)
    together = ids(Rows.concat([one.rows for one in delivered]))
    assert together == sorted(together) and len(together) == 8
    below = 0
    for one in delivered:
        assert all(below <= seq < one.hi for seq in one.rows.seq.tolist())
        below = one.hi
    assert below == sink.done == 10


def test_a_sink_is_safe_of_what_it_has_committed() -> None:
    """With a keeper it is safe of it when the copies of the mark are settled as well."""
    sink = sink_slice()
    fed(sink)
    run(sink)
    assert sink.safe == 0
    list(sink.commit(7, {}))
    list(sink.commit(3, {}))
    assert sink.safe == 7


def test_a_drained_stream_ends_only_when_all_it_sent_is_safe() -> None:
    source = source_slice(1000)
    source.draining = True
    assert ranges(source.records(rows(0, 1), END, None, mark_at)) == [(0, 2, [0, 1])]
    assert source.room == (0, 0)
    assert list(source.end(mark_at)) == [], "its consumers are not safe of it yet"
    source.outlets[0].advance([(0, 2)])
    assert ranges(source.end(mark_at)) == [(2, END, [])]
    assert list(source.end(mark_at)) == []
