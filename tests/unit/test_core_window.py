"""The window: a source is never further ahead of its safe cut than it may be, and never stands still for ever."""

from __future__ import annotations

import pyarrow as pa
import pytest
from core_kit import NUMBER, operator, plan_of, rows

from dadstorm.core.line import END
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
