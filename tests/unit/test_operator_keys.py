"""Keys: every distinct key has one slot for ever, whatever its type, however it comes, and whatever its hash."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dadstorm.core.hashing import Hashes, hash_columns
from dadstorm.operators import keys as module
from dadstorm.operators.keys import Keys

TYPES = {"text": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "float": pa.float64(), "time": pa.timestamp("us")}


def value(chance: random.Random, kind: pa.DataType) -> Any:
    if chance.random() < 0.1:
        return None
    number = chance.randrange(40)
    if pa.types.is_string(kind):
        return "é" * (number % 3) + "x" * number
    return bool(number % 2) if pa.types.is_boolean(kind) else float(number) if pa.types.is_floating(kind) else number


def few_hashes(columns: Sequence[pa.Array], seed: int) -> Hashes:
    """A hash that many keys share, and that may be 0."""
    return hash_columns(columns, seed) % np.uint64(7)


@pytest.mark.parametrize("hashes", [hash_columns, few_hashes], ids=["hashes", "few hashes"])
@pytest.mark.parametrize("few", [0, 5, 512], ids=["only arrays", "both", "only the dict"])
@pytest.mark.parametrize("names", ["text", "int", "bool", "float", "time", "text int", "bool text float"])
def test_slots_are_given_out_in_order_and_kept(
    names: str, few: int, hashes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "hash_columns", hashes)
    monkeypatch.setattr(module, "_FEW", few)
    monkeypatch.setattr(module, "_IN_A_ROW", 2)
    kinds = [TYPES[name] for name in names.split()]
    chance = random.Random(1)
    keys, expected = Keys(kinds), dict[tuple[Any, ...], int]()
    for _ in range(60):
        rows = [tuple(value(chance, kind) for kind in kinds) for _ in range(chance.choice([1, 3, 20, 100]))]
        for row in rows:
            expected.setdefault(row, len(expected))
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        assert keys.rows(columns).tolist() == [expected[row] for row in rows]
        assert len(keys) == len(expected)
    everything = keys.table(np.arange(len(keys)))
    again = Keys(kinds)
    assert again.add(everything).tolist() == list(range(len(keys)))
    assert again.table(np.arange(len(keys))) == everything


@pytest.mark.parametrize("hashes", [hash_columns, few_hashes], ids=["hashes", "few hashes"])
@pytest.mark.parametrize("varied", [0, 2, 10**9], ids=["by key", "both", "by row"])
@pytest.mark.parametrize("names", ["text", "int", "bool text float"])
def test_rows_are_grouped_by_key_the_same_way_however_keys_are_looked_up(
    names: str, varied: int, hashes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "hash_columns", hashes)
    monkeypatch.setattr(module, "_FEW", 0)
    monkeypatch.setattr(module, "_VARIED", varied)
    kinds = [TYPES[name] for name in names.split()]
    chance = random.Random(2)
    keys, expected = Keys(kinds), dict[tuple[Any, ...], int]()
    for _ in range(60):
        rows = [tuple(value(chance, kind) for kind in kinds) for _ in range(chance.choice([0, 1, 3, 20, 100]))]
        for row in rows:
            expected.setdefault(row, len(expected))
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        order, sizes, slots = keys.grouped(columns)
        found = np.repeat(slots, sizes).tolist()
        assert found == [expected[rows[row]] for row in order.tolist()], "each group has its key's slot"
        assert len(set(slots.tolist())) == len(slots) and all(sizes > 0), "each key once"
        places = list(zip(found, order.tolist(), strict=True))
        assert all(one < other for one, other in pairwise(places) if one[0] == other[0]), "in row order"
        assert len(keys) == len(expected)


@pytest.mark.parametrize("size", [1, 10, 5000])
def test_a_hundred_thousand_keys_in_batches_of_any_size(size: int) -> None:
    chance = np.random.default_rng(3)
    names = [f"user{number}" for number in chance.permutation(100_000 if size > 100 else 3000)]
    keys = Keys([pa.string()])
    for turn in range(2):
        for start in range(0, len(names), size):
            slots = keys.rows([pa.array(names[start : start + size])])
            assert slots.tolist() == list(range(start, min(start + size, len(names)))), turn
    assert keys.table(np.array([7, 5]))[0].to_pylist() == [names[7], names[5]]


def test_more_keys_than_the_dict_is_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NEAR_MAX", 100)
    keys = Keys([pa.int64()])
    for _ in range(2):
        for number in range(300):
            assert keys.rows([pa.array([number << 40, number // 2 << 40])])[0] == number
    assert keys._near is None


@pytest.mark.parametrize("spread", [1, 3, 1 << 16, 1 << 50])
def test_whole_numbers_get_the_same_slots_wherever_they_lie(spread: int) -> None:
    """Close together or not, from either side, at both ends of what 64 bits hold, and with the first null there is."""
    chance = random.Random(4)
    for first in (0, -(1 << 63), (1 << 63) - 1 - 4000 * spread if spread < 1 << 50 else 0):
        keys, expected = Keys([pa.int64()]), dict[int | None, int]()
        for turn in range(40):
            reach = (100 * (turn + 1)) if turn % 2 else 40
            offsets = [chance.randrange(max(0, 2000 - reach), min(4000, 2000 + reach)) for _ in range(200)]
            values: list[int | None] = [first + spread * offset for offset in offsets]
            if turn == 35:
                values[7] = None
            for one in values:
                expected.setdefault(one, len(expected))
            column = pa.array(values, pa.int64())
            if turn % 3:
                assert keys.rows([column]).tolist() == [expected[one] for one in values]
            else:
                order, sizes, slots = keys.grouped([column])
                assert np.repeat(slots, sizes).tolist() == [expected[values[row]] for row in order.tolist()]
        assert keys.table(np.arange(len(keys)))[0].to_pylist() == list(expected)


def test_a_table_of_numbers_is_made_where_it_is_worth_while_and_left_where_it_is_not() -> None:
    keys = Keys([pa.int64()])
    assert keys.rows([pa.array([5, 3, 5, 9000])]).tolist() == [0, 1, 0, 2]
    assert keys._dense is not None, "a small range"
    assert keys.rows([pa.array([3, 1 << 20, 7])]).tolist() == [1, 3, 4]
    assert keys._dense is None, "far apart"
    many = pa.array(range(1 << 20, 0, -2))
    assert keys.rows([many]).tolist()[:2] == [3, 5] and len(keys) == (1 << 19) + 3
    assert keys.rows([pa.array([1 << 20, 11, 13])]).tolist() == [3, (1 << 19) + 3, (1 << 19) + 4]
    assert keys._dense is not None, "the gaps were filled"
    assert keys.rows([pa.array([1 << 40, 11, 9000, 5])]).tolist() == [(1 << 19) + 5, (1 << 19) + 3, 2, 0]
    assert keys._dense is None, "an outlier"
    assert keys.rows([pa.array([4, 2, 3, 17])]).tolist() == [*keys.rows([pa.array([4, 2])]).tolist(), 1, (1 << 19) + 6]


def test_a_range_that_grows_to_both_sides_is_seldom_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    zeros = np.zeros

    def counted(size: int, dtype: Any) -> Any:
        made.append(size)
        return zeros(size, dtype)

    monkeypatch.setattr("dadstorm.operators.dense.np.zeros", counted)
    keys = Keys([pa.int64()])
    for number in range(3000):
        assert keys.rows([pa.array([number if number % 2 else -number])]).tolist() == [number]
    assert len(made) < 50
    assert max(made) < 4 * 6000
