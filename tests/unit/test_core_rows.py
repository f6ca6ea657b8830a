"""Rows: columns in ID order that can be cut at any seq."""

from __future__ import annotations

from core_kit import SCHEMA, ids, numbers, rows, seqs

from dadstorm.core.rows import Rows


def test_a_cut_divides_rows_into_those_below_and_those_since() -> None:
    all_rows = rows(1, 3, (3, 1), 7)
    assert seqs(all_rows.below(3)) == [1]
    assert ids(all_rows.since(3)) == [(3, 0), (3, 1), (7, 0)]
    assert all_rows.before(0) == 0
    assert all_rows.before(8) == 4


def test_a_slice_keeps_ids_and_fields_together() -> None:
    part = rows(1, 2, 3, 4).slice(1, 3)
    assert (seqs(part), numbers(part)) == ([2, 3], [1, 2])
    assert len(rows(1, 2).slice(2, 2)) == 0


def test_take_puts_rows_in_any_order() -> None:
    taken = rows(5, 6, 7).take(rows(2, 0, 0).seq)
    assert (seqs(taken), numbers(taken)) == ([7, 5, 5], [2, 0, 0])


def test_concat_joins_the_parts_in_their_order() -> None:
    joined = Rows.concat([rows(1, 2), Rows.empty(SCHEMA), rows((2, 1))])
    assert ids(joined) == [(1, 0), (2, 0), (2, 1)]


def test_rows_weigh_their_ids_and_their_fields_as_far_as_they_reach() -> None:
    assert rows(1, 2, 3).nbytes == 3 * (16 + 8)
    assert rows(1, 2, 3).slice(0, 1).nbytes < rows(1, 2, 3).nbytes
    assert Rows.empty(SCHEMA).nbytes == 0
