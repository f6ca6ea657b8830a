"""The routing hash: equal values hash equal wherever they lie, as a plain definition by row says; it never changes."""

from __future__ import annotations

import datetime
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.hashing import hash_columns, hash_ids, slice_of

MASK = 2**64 - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
PLACE, NULL = 0xD6E8FEB86659FD93, 0x5851F42D4C957F2D

Table = tuple[list[pa.Array], list[tuple[object, ...]]]


def finish(word: int) -> int:
    for multiplier in (FIRST, SECOND):
        word = (word ^ word >> 33) * multiplier & MASK
    return word ^ word >> 33


def reference_value(value: object) -> int:
    """The hash of one value, from its definition, without columns."""
    if value is None:
        return NULL
    if isinstance(value, str):
        data = value.encode()
        total = len(data) * GOLDEN
        for place in range(max(1, (len(data) + 7) // 8)):
            word = int.from_bytes(data[8 * place : 8 * place + 8].ljust(8, b"\0"), "little")
            word = (word ^ word >> 32) * FIRST & MASK
            total += (word ^ word >> 29) * pow(PLACE, place, 2**64)
        return finish(total & MASK)
    if isinstance(value, float):
        if math.isnan(value):
            return finish(0x7FF8 << 48)
        return finish(struct.unpack("<Q", struct.pack("<d", value + 0.0))[0])
    if isinstance(value, datetime.datetime):
        value = (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert isinstance(value, int)
    return finish(int(value) & MASK)


def reference(row: tuple[object, ...], seed: int) -> int:
    result = finish(seed + GOLDEN & MASK)
    for value in row:
        result = finish((result * GOLDEN + reference_value(value)) & MASK)
    return result


VALUES = {
    pa.string(): st.text(max_size=40) | st.text(st.sampled_from("aé"), min_size=50, max_size=150),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.timestamp("us"): st.datetimes(),
}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*[st.none() | VALUES[kind] for kind in types]), max_size=30))
    columns = [pa.array([row[i] for row in rows], type=kind) for i, kind in enumerate(types)]
    return columns, rows


@given(tables(), st.integers(-(2**63), 2**63 - 1))
def test_columns_hash_as_their_rows_do(table: Table, seed: int) -> None:
    columns, rows = table
    assert hash_columns(columns, seed).tolist() == [reference(row, seed) for row in rows]


@given(tables(), st.data())
def test_a_slice_of_a_column_hashes_as_the_whole(table: Table, data: st.DataObject) -> None:
    columns, rows = table
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    whole = hash_columns(columns, 7)
    part = hash_columns([column.slice(start, stop - start) for column in columns], 7)
    assert part.tolist() == whole[start:stop].tolist()


@given(st.lists(st.none() | st.text(max_size=20), max_size=20))
def test_every_storage_of_a_string_hashes_the_same(values: list[str | None]) -> None:
    plain = pa.array(values, pa.string())
    expected = hash_columns([plain], 1).tolist()
    assert hash_columns([plain.cast(pa.large_string())], 1).tolist() == expected
    for encoded in (plain.dictionary_encode(), plain.dictionary_encode("encode")):
        assert hash_columns([encoded], 1).tolist() == expected
    for start in range(len(values)):
        assert hash_columns([plain.dictionary_encode().slice(start)], 1).tolist() == expected[start:]


def test_zeros_are_one_value_and_so_are_nans() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64).view(np.float64)
    assert len(set(hash_columns([pa.array([0.0, -0.0])], 0).tolist())) == 1
    assert len(set(hash_columns([pa.array(nans)], 0).tolist())) == 1


def test_hashing_leaves_its_input_alone() -> None:
    numbers, floats, seq = np.arange(10), np.array([-0.0, math.nan, 1.5]), np.arange(3)
    hash_columns([pa.array(numbers)], 3)
    hash_columns([pa.array(floats)], 3)
    hash_ids(seq, seq, 3)
    assert numbers.tolist() == list(range(10)) and seq.tolist() == [0, 1, 2]
    assert math.copysign(1, floats[0]) == -1


def test_a_string_of_megabytes_is_one_string_among_others() -> None:
    long = "abcdefgh" * 300_000
    together = hash_columns([pa.array(["a", long, "b"])], 0).tolist()
    assert together == [int(hash_columns([pa.array([value])], 0)[0]) for value in ("a", long, "b")]
    assert together[1] != hash_columns([pa.array([long[:-1] + "H"])], 0)[0]


GOLDEN_VALUES = [
    (pa.array([""]), 0),
    (pa.array(["a"]), 0),
    (pa.array(["www.tecnico.ulisboa.pt"]), 0),
    (pa.array(["a"]), 1),
    (pa.array([None], pa.string()), 0),
    (pa.array([0]), 0),
    (pa.array([-1]), 0),
    (pa.array([1.5]), 0),
    (pa.array([True]), 0),
    (pa.array([datetime.datetime(2024, 2, 29, 12)], pa.timestamp("us")), 0),
]
EXPECTED = [
    0x660AE5186A52FFCD,
    0x9ABCC397D1C65634,
    0xDA8A4DACFFDB25E5,
    0x8F8ACDF376C9A092,
    0xC94F0A7E3D14E57F,
    0x660AE5186A52FFCD,
    0x7574B0A98E112B77,
    0x09267CF321BAA0AE,
    0xB52F12CBF86B868B,
    0x2493D4948DC207A3,
]


@pytest.mark.parametrize(("case", "expected"), list(zip(GOLDEN_VALUES, EXPECTED, strict=True)))
def test_the_hash_never_changes(case: tuple[pa.Array, int], expected: int) -> None:
    column, seed = case
    assert hash_columns([column], seed).tolist() == [expected]


def test_the_hash_of_ids_never_changes() -> None:
    ids = np.array([0, 1, 2**62]), np.array([0, 5, 2**40])
    assert hash_ids(*ids, 42).tolist() == [0xA5F2FEDABE6B94CE, 0xA55B8135B293AE6A, 0xF72910B7D6C9A87D]


def unevenness(hashes: np.ndarray, slices: int) -> float:
    """How many standard deviations the chi-square statistic of the slices' sizes lies from what chance gives."""
    counts = np.bincount(slice_of(hashes, slices), minlength=slices)
    expected = len(hashes) / slices
    chi_square = float(((counts - expected) ** 2).sum()) / expected
    return abs(chi_square - (slices - 1)) / math.sqrt(2 * (slices - 1))


KEYS: dict[str, list[object]] = {
    "ints": list(range(20_000)),
    "high bits": [i << 40 for i in range(20_000)],
    "floats": [i / 8 for i in range(20_000)],
    "names": [f"user{i}" for i in range(20_000)],
    "padded": [f"{i:032d}" for i in range(20_000)],
    "lengths": ["x" * i for i in range(2_000)],
    "two bytes": [f"aaaaaaa{chr(33 + i % 90)}bbbbbbb{chr(33 + i // 90)}" for i in range(8_100)],
}


@pytest.mark.parametrize("slices", [2, 3, 16, 100])
@pytest.mark.parametrize("keys", KEYS)
def test_similar_keys_spread_evenly(keys: str, slices: int) -> None:
    column = pa.array(KEYS[keys])
    by_seed = [hash_columns([column], seed) for seed in range(20)]
    assert len(set(by_seed[0].tolist())) == len(column)
    assert np.mean([unevenness(hashes, slices) for hashes in by_seed]) < 1.5


@pytest.mark.parametrize("slices", [2, 3, 16, 100])
def test_ids_spread_evenly(slices: int) -> None:
    numbers = np.arange(20_000, dtype=np.int64)
    zeros = np.zeros_like(numbers)
    for seq, sub in ((numbers, zeros), (zeros, numbers)):
        assert np.mean([unevenness(hash_ids(seq, sub, seed), slices) for seed in range(20)]) < 1.5


def test_the_order_of_columns_and_the_seed_matter() -> None:
    one, two = pa.array(["a"]), pa.array(["b"])
    assert hash_columns([one, two], 0) != hash_columns([two, one], 0)
    assert hash_columns([one, two], 0) != hash_columns([one, two], 1)


def test_slices_are_numbered_from_zero() -> None:
    hashes = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    assert slice_of(hashes, 1).tolist() == [0, 0, 0]
    assert slice_of(hashes, 16).tolist() == [0, 8, 15]
    with pytest.raises(ValueError, match="0 slices"):
        slice_of(hashes, 0)


def test_a_type_that_no_field_has_is_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        hash_columns([pa.array([[1]])], 0)
