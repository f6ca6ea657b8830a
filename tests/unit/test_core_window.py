"""The window: a source is never further ahead of its safe cut than it may be, and never stands still for ever."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from core_kit import NUMBER, Kept, machine, mark_at, operator, plan_of, rows

from dadstorm.core.line import END
from dadstorm.core.messages import Attach, Tiles, Want
from dadstorm.core.outlet import Send
from dadstorm.core.rows import Rows
from dadstorm.core.window import Window
from dadstorm.operators import make_kernel
from dadstorm.plan import Plan, Routing
from dadstorm.simulator.cluster import Cluster

STANDS_STILL = (0, 0)


def test_all_the_room_is_there_at_first() -> None:
    assert Window(10, 100).room == (10, 100)


def test_what_is_out_takes_room_until_it_is_safe() -> None:
    window = Window(10, 100)
    window.emitted(5, 4, 40)
    window.emitted(9, 3, 30)
    assert window.room == (3, 30)
    window.advance(5)
    assert window.room == (7, 70)
    window.advance(9)
    assert window.room == (10, 100)


def test_no_room_for_rows_is_no_room() -> None:
    window = Window(4, 100)
    window.emitted(5, 4, 1)
    assert window.room == STANDS_STILL


def test_no_room_for_bytes_is_no_room() -> None:
    window = Window(10, 100)
    window.emitted(5, 1, 100)
    assert window.room == STANDS_STILL


def test_a_record_larger_than_the_window_passes_alone() -> None:
    window = Window(10, 100)
    window.emitted(1, 1, 5000)
    assert window.room == STANDS_STILL
    window.advance(1)
    assert window.room == (10, 100)


def test_a_tile_that_reaches_beyond_safe_counts_whole() -> None:
    window = Window(10, 100)
    window.emitted(9, 4, 40)
    window.advance(8)
    assert window.room == (6, 60)


def test_a_flush_tile_takes_no_room() -> None:
    window = Window(1, 1)
    for hi in range(1, 1000):
        window.emitted(hi, 0, 0)
    assert window.room == (1, 1)


def test_safe_never_moves_back() -> None:
    window = Window(10, 100)
    window.advance(7)
    window.advance(3)
    assert window.safe == 7


def test_heavy_rows_make_strides_short() -> None:
    window = Window(1000, 1000)
    assert window.stride == 500, "as long as nothing is known"
    window.emitted(10, 10, 10)
    assert window.stride == 500, "light ones: a thousand fit"
    window.emitted(20, 10, 390)
    assert window.stride == 25, "20 bytes each: fifty fit"
    window.advance(20)
    assert window.stride == 500
    window.emitted(21, 1, 5000)
    assert window.stride == 1, "a single one is more than it holds"


def test_where_seqs_are_sparse_strides_are_long() -> None:
    assert Window(1000, 1000, gap=8).stride == 4000


def test_a_source_tells_how_far_apart_cuts_may_be() -> None:
    plan = joined(1, window_rows=1 << 18, window_bytes=1 << 10)
    source = Kept(plan, "s0")
    list(source.machine.handle(Attach(1, 0, 0, 0, (Want(0, 0, 0), Want(0, 1, 0)))))
    sent = source.do(source.machine.sources[0].records(rows(*range(4)), 4, None, mark_at))
    assert {send.message.stride for send in sent if isinstance(send, Send)} == {16}, "42 rows of 24 bytes fit"


def test_of_two_sources_the_one_with_the_heavier_rows_decides_for_who_is_downstream() -> None:
    """It must not wait for a cut that its window does not reach."""
    plan = joined(2, window_rows=1 << 18)
    join, sink = machine(plan, "join"), plan.index("out")
    list(join.handle(Attach(sink, 0, 0, 0, (Want(0, 0, 0), Want(1, 0, 0)))))
    for source, stride in ((0, 64), (1, 16)):
        message = Tiles(source, 0, 0, 0, consumer=2, input=source, lo=0, hi=9, slices=(0, 1), counts=(0, 0))
        list(join.handle(msgspec.structs.replace(message, stride=stride)))
    sent = list(join.work(1))
    assert [send.message.stride for send in sent if isinstance(send, Send)] == [16]


def test_who_has_ended_has_no_say_in_it_any_more() -> None:
    plan = joined(2, window_rows=1 << 18)
    join = machine(plan, "join")
    for source, hi, stride in ((0, 5, 1), (0, END, 1), (1, 9, 64)):
        lo = 5 if hi == END else 0
        message = Tiles(source, 0, 0, 0, consumer=2, input=source, lo=lo, hi=hi, slices=(0, 1), counts=(0, 0))
        list(join.handle(msgspec.structs.replace(message, stride=stride)))
    assert join.works[0].merger.stride == 64


def joined(sources: int, window_rows: int, slices: int = 1, window_bytes: int = 1 << 20) -> Plan:
    """Several sources into one operator into one sink."""
    names = [f"s{index}" for index in range(sources)]
    return plan_of(
        *[operator(name, "source", slices=slices) for name in names],
        operator("join", "dup", names, slices=2, routing=Routing("random")),
        operator("out", "sink", ["join"]),
        window_rows=window_rows,
        window_bytes=window_bytes,
    )


def run(plan: Plan, records: dict[str, Rows], seed: int) -> list[tuple[int, int]]:
    written = Cluster(plan, records, lambda one: make_kernel(one, plan), seed).run()
    return [(seq, sub) for seq, sub, _ in written["out"]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slices", [1, 3])
def test_sources_whose_seqs_never_meet_do_not_block_each_other(slices: int, seed: int) -> None:
    """One source is far ahead on the line; with room for a single row it must wait for the others and no longer."""
    records = {
        "s0": rows(*range(2000, 2010)),
        "s1": rows(*range(10)),
        "s2": rows(*range(1000, 1010), END - 1),
    }
    got = run(joined(3, window_rows=1, slices=slices), records, seed)
    assert [seq for seq, _ in got] == [*range(10), *range(1000, 1010), *range(2000, 2010), END - 1]


@pytest.mark.parametrize("seed", range(3))
def test_a_source_without_records_blocks_nobody(seed: int) -> None:
    records = {"s0": Rows.empty(pa.schema([(NUMBER[0].name, pa.int64())])), "s1": rows(*range(5))}
    assert [seq for seq, _ in run(joined(2, window_rows=1), records, seed)] == list(range(5))


@pytest.mark.parametrize("seed", range(3))
def test_a_window_smaller_than_any_record_lets_them_pass_one_by_one(seed: int) -> None:
    records = {"s0": rows(*range(6)), "s1": rows(*range(3, 9))}
    got = run(joined(2, window_rows=1 << 18, window_bytes=1), records, seed)
    assert [seq for seq, _ in got] == sorted([*range(6), *range(3, 9)])
