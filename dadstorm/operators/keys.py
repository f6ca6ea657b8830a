"""Keys: from the values of some fields to small numbers, and back.

A keyed operator thinks in *slots*: each distinct key gets the next number when it is first seen, and what the operator
knows about the key lies in an array at that place. A batch is dictionary-encoded first, so that Python looks at each
distinct key of a batch once, however many rows carry it.

Keys are compared as the routing hash compares them: null is a key like any other, -0.0 is 0.0, all NaNs are one. To
get that, and so that anybody can fold state tables by comparing plain values, keys are *stored* as strings, integers
and booleans only: a float as the bits of its canonical form, a timestamp as its microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.line import Ints
from dadstorm.operators.common import plain

_NAN_BITS = np.int64(0x7FF8_0000_0000_0000)


def stored(column: pa.Array) -> pa.Array:
    """A key column as state keeps it."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return stored(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    if pa.types.is_floating(kind):
        missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        values = (pc.fill_null(column, 0.0) if column.null_count else column).to_numpy(zero_copy_only=False)
        bits = (values + 0.0).view(np.int64)
        bits[np.isnan(values)] = _NAN_BITS
        return pa.array(bits, mask=missing)
    return column


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type of ``stored`` columns of a field type."""
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_floating(kind) else kind


def unstored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A key column as the user sees it, from what state keeps."""
    return column.view(kind) if column.type != kind else column


class Keys:
    """The distinct keys seen so far, each with its slot."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = [stored_type(kind) for kind in types]
        self._slots: dict[Any, int] = {}
        self._by_slot: list[Any] = []

    def __len__(self) -> int:
        return len(self._by_slot)

    def encode(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """Two arrays: for each row which distinct key of this batch it has, for each of those its slot.

        New keys get slots; they are those from the previous ``len`` on."""
        return self._encode([stored(column) for column in columns])

    def add(self, columns: Sequence[pa.Array]) -> Ints:
        """The slots of keys that come as ``table`` gave them."""
        codes, slots = self._encode(columns)
        return slots[codes]

    def table(self, slots: Ints) -> list[pa.Array]:
        """The stored key columns of some slots."""
        keys = [self._by_slot[slot] for slot in slots.tolist()]
        if len(self._types) == 1:
            return [pa.array(keys, type=self._types[0])]
        return [pa.array([key[i] for key in keys], type=kind) for i, kind in enumerate(self._types)]

    def _encode(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        codes, distinct = _distinct(columns[0])
        parts, dictionaries = [np.arange(len(distinct))], [distinct]
        for column in columns[1:]:
            more, distinct = _distinct(column)
            # One code for the pair, below 2^62 since no batch has 2^31 rows; then numbered densely again.
            width = max(1, len(distinct))
            codes, pairs = _distinct(pa.array(codes * width + more))
            numbers = pairs.to_numpy(zero_copy_only=False)
            parts = [part[numbers // width] for part in parts] + [numbers % width]
            dictionaries.append(distinct)
        if len(columns) == 1:
            keys: list[Any] = plain(dictionaries[0])
        else:
            values = [plain(d.take(pa.array(part))) for d, part in zip(dictionaries, parts, strict=True)]
            keys = list(zip(*values, strict=True))
        slots = np.fromiter(map(self._slots.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))
        unknown = np.flatnonzero(slots < 0)
        if len(unknown):
            fresh = range(len(self._by_slot), len(self._by_slot) + len(unknown))
            slots[unknown] = fresh
            self._by_slot.extend([keys[i] for i in unknown.tolist()])
            self._slots.update(zip(self._by_slot[fresh.start :], fresh, strict=True))
        return codes, slots


def _distinct(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Codes from 0, one per row, and the distinct values they stand for; null is one of them."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def first_rows(codes: Ints, distinct: int) -> Ints:
    """For each code from 0 to ``distinct`` the first row that has it."""
    rows = np.empty(distinct, dtype=np.int64)
    # Of several values assigned to one place NumPy keeps the last: here the first row, as the rows go backwards.
    rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return rows


def ranks(codes: Ints, distinct: int) -> tuple[Ints, Ints]:
    """For each row how many earlier rows have its code; for each code how many rows have it."""
    sizes = np.bincount(codes, minlength=distinct)
    order = stable_order(codes, distinct)
    firsts = np.cumsum(sizes) - sizes
    result = np.empty(len(codes), dtype=np.int64)
    result[order] = np.arange(len(codes)) - firsts[codes[order]]
    return result, sizes


def stable_order(codes: Ints, distinct: int) -> Ints:
    """The rows sorted by code, equal codes in row order: NumPy's radix sort, which takes 16 bits at a time."""
    order: Ints = np.argsort(codes.astype(np.uint16), kind="stable")
    shift = 16
    while distinct >> shift:
        digit = (codes >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += 16
    return order
