"""Keys: from the values of some fields to small numbers, and back.

A keyed operator thinks in *slots*: each distinct key gets the next number when it is first seen, and what the operator
knows about the key lies in an array at that place. Whole numbers that lie close together have a table of their own (see
``dense``). Of others a batch is dictionary-encoded first, so that each distinct key of it is looked up once, however
many rows carry it (see ``slots``). Where most rows of a batch bring another key, that would be one table too many: then
each row is looked up. The slots are the same whichever way they are found.

Keys are compared as the routing hash compares them: null is a key like any other, -0.0 is 0.0, all NaNs are one. To
get that, and so that anybody can fold state tables by comparing plain values, keys are *stored* as strings, integers
and booleans only: a float as the bits of its canonical form, a timestamp as its microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadstorm.core.distinct import distinct
from dadstorm.core.hashing import Hashes, hash_columns
from dadstorm.core.line import Ints
from dadstorm.operators.common import plain
from dadstorm.operators.dense import LEAST, MOST, Dense, close, sparse
from dadstorm.operators.slots import ABSENT, Column, Places

_NAN_BITS = np.int64(0x7FF8_0000_0000_0000)
_SEED = 1
"""Another than routing's: all keys of a slice have much of that hash in common."""


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


_Key = Any
"""The value of a key of one field, a tuple of them of several: what can be looked up in a dict."""
_VARIED = 4
"""The most rows to a distinct key for which it is quicker to look up each row."""
_FEW = 512
"""The most distinct keys of a batch for which a dict is quicker."""
_IN_A_ROW = 16
"""So many small batches before it is worth while to make the dict."""
_NEAR_MAX = 1 << 17
"""The most keys that are kept in it: it takes some 300 bytes for each."""


class Keys:
    """The distinct keys seen so far, each with its slot.

    Arrays find many keys at once quickly, a few of them slowly. So where batches are small and the keys not too many, a
    dict of all of them is kept as well; new keys then wait until somebody needs the arrays."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = [stored_type(kind) for kind in types]
        self._columns = [Column(kind) for kind in self._types]
        self._places = Places()
        self._size = 0
        self._dense: Dense | None = None
        """As long as keys are whole numbers that lie close together; then it is all there is."""
        self._range: tuple[int, int] | None = (MOST, LEAST) if self._types == [pa.int64()] else None
        """The least and the greatest of them."""
        self._others: dict[_Key, int] = {}
        """The slots of keys whose hash leads to an earlier one."""
        self._near: dict[_Key, int] | None = None
        """The slots of all keys."""
        self._waiting: list[_Key] = []
        """The last ones, which are in the dict only."""
        self._small = 0
        """How many small batches there have been in a row."""
        self._varied = False
        """Whether the last batch had nearly as many distinct keys as rows."""

    def __len__(self) -> int:
        return self._size

    def rows(self, columns: Sequence[pa.Array]) -> Ints:
        """The slot of each row. New keys get slots, from the previous ``len`` on, in the order of their rows."""
        return self.add([stored(column) for column in columns])

    def add(self, columns: Sequence[pa.Array]) -> Ints:
        """The same of keys that come as ``table`` gives them."""
        if self._by_row(columns):
            return self._find_each(columns)
        codes, slots = self._encode(columns)
        return slots[codes]

    def grouped(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints, Ints]:
        """The rows sorted by key, equal keys in row order; of each distinct key of this batch how many rows have it, in
        the same order; and its slot. New keys get slots."""
        columns = [stored(column) for column in columns]
        if self._by_row(columns):
            order, sizes, slots = _groups(self._find_each(columns), self._size)
        else:
            codes, slots = self._encode(columns)
            order, sizes = stable_order(codes, len(slots)), np.bincount(codes, minlength=len(slots))
        self._varied = len(slots) > _FEW and _VARIED * len(slots) > len(order)
        return order, sizes, slots

    def table(self, slots: Ints) -> list[pa.Array]:
        """The stored key columns of some slots."""
        self._settle()
        return [column.take(slots) for column in self._columns]

    def _encode(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        codes, values = distinct(columns)
        return codes, self._slots(values)

    def _by_row(self, columns: Sequence[pa.Array]) -> bool:
        """Whether each row of a batch is best looked up by itself."""
        few = self._near is not None and len(columns[0]) <= _FEW
        return (self._range is not None and self._is_dense(columns[0], self._range)) or few or self._varied

    def _find_each(self, columns: Sequence[pa.Array]) -> Ints:
        if self._dense is not None:
            return self._find_dense(self._dense, columns[0])
        if self._near is not None and len(columns[0]) <= _FEW:
            return self._find_near(self._near, columns)
        return self._find_rows(columns)

    def _is_dense(self, column: pa.Array, before: tuple[int, int]) -> bool:
        """Whether the keys there are, in this range, and those of a batch lie close together; if that has changed, what
        finds them is made anew. From the first null on they do not."""
        if not len(column):
            return self._dense is not None
        least, most = before
        if column.null_count:
            self._range = None
        else:
            values = column.to_numpy(zero_copy_only=False)
            least, most = min(least, int(values.min())), max(most, int(values.max()))
            self._range = (least, most)
        width = most - least + 1
        # Of the first batch all keys may be different; whether they were is known with the second.
        if self._dense is None and self._range is not None and close(width, self._size or len(column)):
            self._settle()
            self._dense, self._near = Dense(self._columns[0].numbers), None
            self._places, self._others = Places(), {}
        elif self._dense is not None and (self._range is None or sparse(width, self._size)):
            self._dense = None
            self._place(0)
        if self._dense is not None:
            self._dense.cover(least, most)
        return self._dense is not None

    def _find_dense(self, dense: Dense, column: pa.Array) -> Ints:
        slots, first = dense.find(column.to_numpy(zero_copy_only=False), self._size)
        if len(first):
            self._append(_at([column], first))
        return slots

    def _find_rows(self, columns: Sequence[pa.Array]) -> Ints:
        """The slot of each row, found without knowing which rows are alike."""
        self._settle()
        slots = self._places.find(hash_columns(columns, _SEED))
        known = np.flatnonzero(slots >= 0)
        sure = np.zeros(len(slots), dtype=bool)
        sure[known] = self._same(slots[known], _at(columns, known))
        rest = np.flatnonzero(~sure)
        if len(rest):
            codes, found = self._encode(_at(columns, rest))
            slots[rest] = found[codes]
        return slots

    def _slots(self, keys: list[pa.Array]) -> Ints:
        """The slots of keys that are all different."""
        self._small = self._small + 1 if len(keys[0]) <= _FEW else 0
        if self._near is None and self._small >= _IN_A_ROW and self._size <= _NEAR_MAX:
            everything = [column.take(np.arange(self._size)) for column in self._columns]
            self._near = dict(zip(_values(everything), range(self._size), strict=True))
        if self._near is not None and self._small:
            return self._find_near(self._near, keys)
        self._settle()
        before, slots = self._size, self._find(keys)
        if self._near is not None:
            fresh = np.flatnonzero(slots >= before)
            self._near.update(zip(_values(_at(keys, fresh)), slots[fresh].tolist(), strict=True))
        return slots

    def _find_near(self, near: dict[_Key, int], keys: Sequence[pa.Array]) -> Ints:
        """The slots of a few keys, which need not be different."""
        values = _values(keys)
        found = list(map(near.get, values))
        if None in found:
            for key in values:
                if key not in near:
                    near[key] = self._size
                    self._size += 1
                    self._waiting.append(key)
            found = list(map(near.get, values))
        slots = np.array(found, dtype=np.int64)
        if self._size > _NEAR_MAX:
            self._settle()
            self._near = None
        return slots

    def _settle(self) -> None:
        """Put the keys that wait into the arrays; they get the slots that they have."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._size -= len(waiting)
            fields = [waiting] if len(self._types) == 1 else list(zip(*waiting, strict=True))
            self._find([pa.array(values, type=kind) for values, kind in zip(fields, self._types, strict=True)])

    def _find(self, keys: list[pa.Array]) -> Ints:
        hashes = hash_columns(keys, _SEED)
        slots = self._places.find(hashes)
        known = np.flatnonzero(slots >= 0)
        wrong = known[~self._same(slots[known], _at(keys, known))]
        slots[wrong] = [self._others.get(key, ABSENT) for key in _values(_at(keys, wrong))]
        fresh = np.flatnonzero(slots == ABSENT)
        if len(fresh):
            first = self._size
            slots[fresh] = self._append(_at(keys, fresh))
            self._place(first, hashes[fresh])
        return slots

    def _place(self, first: int, hashes: Hashes | None = None) -> None:
        """Let the slots from ``first`` on be found by their hashes."""
        if hashes is None:
            hashes = hash_columns([column.take(np.arange(first, self._size)) for column in self._columns], _SEED)
        others = self._places.add(hashes)
        if len(others):
            values = _values([column.take(others) for column in self._columns])
            self._others.update(zip(values, others.tolist(), strict=True))

    def _append(self, keys: list[pa.Array]) -> Ints:
        """Give keys the next slots."""
        for column, values in zip(self._columns, keys, strict=True):
            column.append(values)
        first, self._size = self._size, self._size + len(keys[0])
        return np.arange(first, self._size)

    def _same(self, slots: Ints, keys: Sequence[pa.Array]) -> NDArray[np.bool_]:
        same = np.ones(len(slots), dtype=bool)
        for column, values in zip(self._columns, keys, strict=True):
            same &= column.same(slots, values)
        return same


def _at(keys: Sequence[pa.Array], rows: Ints) -> list[pa.Array]:
    if len(rows) == len(keys[0]):
        return list(keys)
    return [column.take(pa.array(rows)) for column in keys]


def _values(keys: Sequence[pa.Array]) -> list[_Key]:
    return plain(keys[0]) if len(keys) == 1 else list(zip(*map(plain, keys), strict=True))


def first_rows(codes: Ints, distinct: int) -> Ints:
    """For each code from 0 to ``distinct`` the first row that has it."""
    rows = np.empty(distinct, dtype=np.int64)
    # Of several values assigned to one place NumPy keeps the last: here the first row, as the rows go backwards.
    rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return rows


def _groups(slots: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """Rows sorted by slot, of each slot that occurs how many rows have it, and those slots."""
    order = stable_order(slots, count)
    ordered = slots[order]
    bounds = np.ones(len(slots) + 1, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=bounds[1:-1])
    ends = bounds.nonzero()[0]
    return order, ends[1:] - ends[:-1], ordered[ends[:-1]]


def stable_order(codes: Ints, distinct: int) -> Ints:
    """The rows sorted by code, equal codes in row order: NumPy's radix sort, which takes 16 bits at a time."""
    order: Ints = np.argsort(codes.astype(np.uint16), kind="stable")
    shift = 16
    while distinct >> shift:
        digit = (codes >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += 16
    return order
