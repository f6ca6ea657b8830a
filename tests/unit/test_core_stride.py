"""Where snapshots are taken: about as often as was asked for, at any rate, at cuts that all speeds share."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dadstorm.core.line import END
from dadstorm.core.stride import Stride, floor_power

TICK_MS = 100


def cuts(rate: float, seconds: int, every_ms: int = 1000, stride_max: int = 1 << 40) -> list[tuple[float, int]]:
    """When a slice that moves at this rate takes its snapshots, and where."""
    stride = Stride(every_ms, stride_max)
    taken = []
    position = 0.0
    for step in range(1, seconds * 1000 // TICK_MS + 1):
        now_ms = step * TICK_MS
        target = rate * now_ms / 1000
        stride.tick(now_ms, int(position))
        while True:
            cut = stride.next(int(position))
            position = min(float(cut), target)
            reached = stride.reached(int(position))
            if reached is not None:
                stride.taken(reached)
                taken.append((now_ms, reached))
            if position >= target:
                break
    return taken


@pytest.mark.parametrize("rate", [10, 1_000, 30_000, 1_000_000, 10_000_000])
def test_snapshots_come_about_every_second_whatever_the_rate(rate: int) -> None:
    settled = [moment for moment, _ in cuts(rate, seconds=30) if moment > 10_000]
    per_second = len(settled) / 20
    assert 0.4 <= per_second <= 2.5, f"{per_second} a second"


def test_the_window_makes_them_more_frequent_if_it_has_to() -> None:
    """A source must not wait for a cut that its window does not reach."""
    taken = cuts(1_000_000, seconds=5, stride_max=1 << 17)
    places = [0, *(place for _, place in taken)]
    assert max(other - one for one, other in pairwise(places)) <= 1 << 17


def test_it_keeps_to_what_the_sources_bear_for_now() -> None:
    stride = Stride(1000, 1 << 10)
    stride.fit(100)
    assert (stride.value, stride.most) == (64, 64) and stride.next(70) == 128
    stride.fit(1 << 20)
    assert (stride.value, stride.most) == (64, 1 << 10), "it grows again when cuts come too often"


def test_the_cuts_of_a_slow_slice_are_cuts_of_a_fast_one() -> None:
    slow, fast = Stride(1000, 1 << 20), Stride(1000, 1 << 20)
    slow.value, fast.value = 64, 8
    cut = slow.next(100)
    position = 100
    while position < cut:
        position = fast.next(position)
    assert position == cut == 128


def test_where_a_source_stands_still_is_a_cut() -> None:
    stride = Stride(1000, 1 << 10)
    stride.hint(77)
    assert stride.next(10) == 77
    assert not stride.due(76)
    assert stride.due(77)
    assert stride.reached(77) == 77
    stride.taken(77)
    assert stride.reached(77) is None and stride.next(77) == 1 << 10


def test_a_row_that_was_processed_is_not_below_a_cut_behind_it() -> None:
    """In the middle of a seq the state is that of no cut."""
    stride = Stride(1000, 8)
    assert stride.reached(19, row=15) == 16
    assert stride.reached(19, row=16) is None


def test_the_end_of_the_line_is_the_last_cut() -> None:
    stride = Stride(1000, 8)
    assert stride.reached(END) == END


@pytest.mark.parametrize("value, power", [(0, 1), (1, 1), (2, 2), (3, 2), (1023, 512), (1024, 1024)])
def test_strides_are_powers_of_two(value: int, power: int) -> None:
    assert floor_power(value) == power
