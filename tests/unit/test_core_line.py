"""The ID line: how subs are packed, and that packing keeps order, keeps IDs apart and never overflows."""

from __future__ import annotations

import numpy as np
import pytest
from core_kit import operator, plan_of
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.line import END, START, SUB_BITS_MAX, Packing, bits_for
from dadstorm.plan import Input


def packed(packing: Packing, sub: int, input_index: int, ordinal: int | None = None) -> int:
    entered = packing.enter(np.array([sub], dtype=np.int64), input_index)
    return int(packing.leave(entered, None if ordinal is None else np.array([ordinal], dtype=np.int64))[0])


def test_the_line_runs_over_the_non_negative_int64() -> None:
    assert START == 0
    assert np.iinfo(np.int64).max == END


@pytest.mark.parametrize(
    ("count", "bits"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 20, 20), ((1 << 20) + 1, 21)]
)
def test_bits_that_tell_so_many_things_apart(count: int, bits: int) -> None:
    assert bits_for(count) == bits


def test_one_input_and_one_output_add_nothing() -> None:
    assert packed(Packing((0,), 0, 0), 5, 0) == 5


def test_the_levels_stand_in_order_input_then_output() -> None:
    assert packed(Packing((0, 0), 1, 3), 0b11, 1, 5) == 0b11_1_101


def test_a_narrow_input_is_shifted_to_the_width_of_the_others() -> None:
    packing = Packing((2, 0), 1, 0)
    assert packed(packing, 0b1, 0) == 0b100_0
    assert packed(packing, 0b101, 1) == 0b101_1


def test_without_an_ordinal_an_output_is_its_parents_first() -> None:
    packing = Packing((0,), 0, 4)
    assert packed(packing, 3, 0) == packed(packing, 3, 0, 0) == 48


def test_of_equal_subs_the_first_input_goes_first() -> None:
    packing = Packing((0, 0, 0), 2, 0)
    entered = [packed(packing, 7, index) for index in (0, 1, 2)]
    assert entered == sorted(set(entered))


def test_offspring_of_one_tuple_stay_together_whichever_way_they_come() -> None:
    """A source's tuple with sub 0 against the four pieces that its split made of it, and those of nobody else."""
    packing = Packing((2, 0), 1, 0)
    whole = packed(packing, 0, 0)
    pieces = [packed(packing, piece, 1) for piece in range(4)]
    assert sorted([whole, *pieces]) == [whole, *pieces]


@given(st.data())
def test_packing_keeps_order_and_keeps_ids_apart(data: st.DataObject) -> None:
    input_bits, output_bits = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 30))
    width = data.draw(st.integers(0, SUB_BITS_MAX - input_bits - output_bits))
    packing = Packing((0,) * (1 << input_bits), input_bits, output_bits)
    levels = st.tuples(
        st.integers(0, (1 << width) - 1), st.integers(0, (1 << input_bits) - 1), st.integers(0, (1 << output_bits) - 1)
    )
    one, other = data.draw(levels), data.draw(levels)
    first, second = packed(packing, *one), packed(packing, *other)
    assert 0 <= first <= END and 0 <= second <= END
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


def test_the_width_of_a_sub_is_that_of_its_widest_path() -> None:
    plan = plan_of(
        operator("s", "source"),
        operator("split", "dup", ["s"], output_bits=5),
        operator("join", "dup", [Input("s", align=5), Input("split")], output_bits=2),
    )
    assert plan.sub_bits("s") == 0
    assert plan.sub_bits("split") == 5
    assert plan.entered_bits(plan["join"]) == 6
    assert plan.sub_bits("join") == 8


def test_the_width_behind_many_diamonds_is_found_at_once() -> None:
    """There are 2^60 paths; whoever walked along each would not come back."""
    operators = [operator("o0", "source")]
    for index in range(60):
        operators.append(operator(f"o{index + 1}", "dup", [f"o{index}", f"o{index}"]))
    assert plan_of(*operators).sub_bits("o60") == 60
