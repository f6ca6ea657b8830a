"""The merge: several runs in ID order become one, whatever the widths of their IDs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from core_kit import SCHEMA, ids, numbers, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dadstorm.core import merge as module
from dadstorm.core.line import END
from dadstorm.core.merge import merge
from dadstorm.core.rows import Rows


def test_runs_interleave_by_seq() -> None:
    assert ids(merge([rows(0, 3, 9), rows(1, 2, 10)], 0)) == [(0, 0), (1, 0), (2, 0), (3, 0), (9, 0), (10, 0)]


def test_fields_travel_with_their_ids() -> None:
    merged = merge([rows(0, 4, values=[10, 14]), rows(1, 5, values=[11, 15])], 0)
    assert numbers(merged) == [10, 11, 14, 15]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_equal_seqs_go_by_sub_whichever_run_comes_first(order: tuple[int, int]) -> None:
    runs = [rows((5, 0), (5, 4), values=[0, 4]), rows((5, 1), (5, 7), values=[1, 7])]
    assert numbers(merge([runs[i] for i in order], 3)) == [0, 1, 4, 7]


def test_a_greater_sub_never_beats_a_smaller_seq() -> None:
    assert ids(merge([rows((1, 7)), rows((2, 0))], 3)) == [(1, 7), (2, 0)]
    assert ids(merge([rows((2, 0)), rows((1, 7))], 3)) == [(1, 7), (2, 0)]


def test_one_run_passes_as_it_is() -> None:
    run = rows(3, 5)
    assert merge([run], 0) is run


def test_runs_that_follow_each_other_are_not_sorted_again() -> None:
    merged = merge([rows(1, 2), rows(3, 4)], 2)
    assert ids(merged) == [(1, 0), (2, 0), (3, 0), (4, 0)]


@pytest.fixture(params=[1, 512], ids=["long runs", "short runs"])
def long(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that count as long are put in their places, others sorted."""
    monkeypatch.setattr(module, "_LONG", request.param)


@pytest.mark.usefixtures("long")
def test_ids_without_a_gap_in_any_number_of_runs() -> None:
    runs = [rows(*range(start, 30, 7)) for start in range(7)]
    assert ids(merge(runs, 0)) == [(seq, 0) for seq in range(30)]


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("sub_bits", [0, 1])
def test_fields_of_every_type_travel_with_ids_that_have_no_gap(sub_bits: int) -> None:
    values = {
        "int": pa.array(range(40)),
        "float": pa.array([number / 7 for number in range(40)]),
        "text": pa.array([f"n{number}" if number % 5 else None for number in range(40)]),
        "bool": pa.array([number % 3 == 0 for number in range(40)]),
        "time": pa.array(range(40), pa.timestamp("us")),
        "holes": pa.array([number if number % 4 else None for number in range(40)], pa.int64()),
        "word": pa.array([f"w{number % 3}" for number in range(40)]).dictionary_encode(),
    }
    batch = pa.RecordBatch.from_pydict(values)
    every = Rows(np.arange(40) >> sub_bits, np.arange(40) & sub_bits, batch)
    owner = np.array([number * number % 7 % 3 for number in range(40)])
    merged = merge([every.take(np.flatnonzero(owner == run)) for run in range(3)], sub_bits)
    assert ids(merged) == ids(every)
    assert merged.data.equals(batch)


@pytest.mark.usefixtures("long")
def test_ids_that_come_twice_are_not_lost() -> None:
    assert ids(merge([rows(0, 3), rows(0, 1)], 0)) == [(0, 0), (0, 0), (1, 0), (3, 0)]
    assert ids(merge([rows(5), rows(5)], 0)) == [(5, 0), (5, 0)]


def test_runs_without_rows_do_no_harm() -> None:
    assert ids(merge([Rows.empty(SCHEMA), rows(1), Rows.empty(SCHEMA)], 5)) == [(1, 0)]


WIDE = (1 << 62) + 1


def test_subs_too_wide_to_be_packed_beside_the_seq() -> None:
    merged = merge([rows((1, WIDE), (2, 0)), rows((1, WIDE - 1), (1, WIDE + 1))], 63)
    assert ids(merged) == [(1, WIDE - 1), (1, WIDE), (1, WIDE + 1), (2, 0)]


def test_seqs_from_one_end_of_the_line_to_the_other() -> None:
    merged = merge([rows((0, 1), (END - 1, 0)), rows((0, 0), (END - 1, 1))], 1)
    assert ids(merged) == [(0, 0), (0, 1), (END - 1, 0), (END - 1, 1)]


def test_where_seq_and_sub_just_fit_and_where_they_just_do_not() -> None:
    """62 bits between the seqs and a sub of one bit are 63; one bit more takes the other way."""
    for span in (1 << 61, (1 << 62) - 1, 1 << 62):
        merged = merge([rows((5, 1), (5 + span, 1)), rows((5, 0), (5 + span, 0))], 1)
        assert ids(merged) == [(5, 0), (5, 1), (5 + span, 0), (5 + span, 1)]


@pytest.mark.usefixtures("long")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_merge_is_what_sorting_tuples_gives(data: st.DataObject) -> None:
    sub_bits = data.draw(st.sampled_from([1, 3, 20, 62, 63]))
    first = data.draw(st.sampled_from([0, 10, 1 << 62]))
    seq = st.one_of(st.integers(0, 5), st.integers(0, (1 << 62) - 1)).map(lambda value: first + value)
    every_id = st.tuples(seq, st.integers(0, (1 << sub_bits) - 1))
    every = data.draw(st.lists(every_id, min_size=2, max_size=30, unique=True))
    owner = data.draw(st.lists(st.integers(0, 3), min_size=len(every), max_size=len(every)))
    numbered = sorted((*one, index) for index, one in enumerate(every))
    runs = [[one for one in numbered if owner[one[2]] == run] for run in range(4)]
    merged = merge([_rows(run) for run in runs if run], sub_bits)
    assert list(zip(*zip(*ids(merged), strict=True), numbers(merged), strict=True)) == numbered


def _rows(run: list[tuple[int, int, int]]) -> Rows:
    columns = [np.array(column, dtype=np.int64) for column in zip(*run, strict=True)]
    return Rows(columns[0], columns[1], pa.RecordBatch.from_arrays([pa.array(columns[2])], schema=SCHEMA))
