"""Slots: where what is known about a key lies, found for many keys at once.

Two parts, both made of arrays, so that no Python object exists per key. ``Places`` is a hash table with open addressing
from a key's 64-bit hash to its slot: all hashes of a batch are looked up together, and those that met another's hash
look elsewhere, together again. Each has a stride of its own, so that few have to look often. ``Column`` holds one field
of the keys by slot. A hash is only a hint: who finds a slot compares the key there with its own. What makes this quick
with many keys is how few places in memory a look-up touches: one of ``Places``, one of each ``Column``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadstorm.core.growing import room
from dadstorm.core.hashing import Hashes
from dadstorm.core.line import Ints

ABSENT = -1
_TAG, _SLOT = np.uint64(0xFFFF_FFFF_0000_0000), np.uint64(0xFFFF_FFFF)
_PLACES_FIRST = 1024
_SPACE, _GROWTH = 2, 4
"""At least so many places for each key, and how many times as many when those run out."""


class Places:
    """From hashes to slots, which are given out in order. A place is one word: the upper half of a hash, and a slot
    plus one; 0 is free. So one look tells almost surely whether a place is that of a key."""

    def __init__(self) -> None:
        self._places: Hashes = np.zeros(_PLACES_FIRST, dtype=np.uint64)
        self._hashes: Hashes = np.empty(_PLACES_FIRST, dtype=np.uint64)
        """By slot."""
        self._size = 0

    def find(self, hashes: Hashes) -> Ints:
        """The slot that each hash leads to, or ABSENT."""
        mask = len(self._places) - 1
        at = (hashes & np.uint64(mask)).view(np.int64)
        there = self._places[at]
        found: Ints = (there & _SLOT).view(np.int64) - 1
        rest = _others(there, hashes).nonzero()[0]
        at, wanted = at[rest], hashes[rest]
        strides = _strides(wanted)
        while len(rest):
            at += strides
            at &= mask
            there = self._places[at]
            found[rest] = (there & _SLOT).view(np.int64) - 1
            on = _others(there, wanted).nonzero()[0]
            rest, at, wanted, strides = rest[on], at[on], wanted[on], strides[on]
        return found

    def add(self, hashes: Hashes) -> Ints:
        """The next slots have these hashes. The slots of those that ``find`` does not lead to, but to another, since
        the two have too much in common."""
        first, self._size = self._size, self._size + len(hashes)
        self._hashes = room(self._hashes, first, self._size)
        self._hashes[first : self._size] = hashes
        if self._size * _SPACE > len(self._places):
            size = len(self._places)
            while self._size * _SPACE > size:
                size *= _GROWTH
            self._places = np.zeros(size, dtype=np.uint64)
            first = 0
        return self._put(first)

    def _put(self, first: int) -> Ints:
        """Give the slots from ``first`` on their places; those that got none."""
        hashes = self._hashes[first : self._size]
        mask = len(self._places) - 1
        words = (hashes & _TAG) | np.arange(first + 1, self._size + 1, dtype=np.uint64)
        at = (hashes & np.uint64(mask)).view(np.int64)
        strides = _strides(hashes)
        left_out = []
        while len(words):
            free = (self._places[at] == 0).nonzero()[0]
            # Of several that want the same free place, the one whose word stays there gets it.
            self._places[at[free]] = words[free]
            there = self._places[at]
            other = _others(there, words)
            left_out.append(words[(there != words) & ~other])
            on = other.nonzero()[0]
            words, strides = words[on], strides[on]
            at = (at[on] + strides) & mask
        slots: Ints = ((np.concatenate(left_out) if left_out else words) & _SLOT).view(np.int64) - 1
        return slots


def _others(there: Hashes, wanted: Hashes) -> NDArray[np.bool_]:
    """Which places have another's hash."""
    others: NDArray[np.bool_] = ((there ^ wanted) & _TAG).astype(bool) & there.astype(bool)
    return others


def _strides(hashes: Hashes) -> Ints:
    """How far each goes from place to place: odd, so that it comes to all of them."""
    strides: Ints = (hashes >> np.uint64(40) | np.uint64(1)).view(np.int64)
    return strides


class Column:
    """One field of all keys, by slot: numbers as they are, texts end to end."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._text = bool(pa.types.is_string(kind))
        self._size = 0
        self._values = np.zeros(1, dtype=np.int64)
        """Of texts, where each begins; one more, where the last one ends."""
        self._bytes = np.empty(0, dtype=np.uint8)
        self._missing: NDArray[np.bool_] | None = None

    def append(self, column: pa.Array) -> None:
        """The next slots' values."""
        size = self._size + len(column)
        if column.null_count or self._missing is not None:
            before = np.zeros(self._size, dtype=bool) if self._missing is None else self._missing
            self._missing = room(before, self._size, size)
            self._missing[self._size : size] = column.is_null().to_numpy(zero_copy_only=False)
        self._values = room(self._values, self._size + 1, size + 1)
        if self._text:
            lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
            ends = np.cumsum(lengths, dtype=np.int64)
            used = int(self._values[self._size])
            self._values[self._size + 1 : size + 1] = ends + used
            if len(ends) and ends[-1]:
                self._bytes = room(self._bytes, used, used + int(ends[-1]))
                self._bytes[used : used + int(ends[-1])] = _text_bytes(column)
        else:
            self._values[self._size : size] = _numbers(column)
        self._size = size

    @property
    def numbers(self) -> Ints:
        """All values, of a field of whole numbers without nulls."""
        return self._values[: self._size]

    def take(self, slots: Ints) -> pa.Array:
        missing = None if self._missing is None else self._missing[slots]
        if not self._text:
            numbers = pa.array(self._values[slots], mask=missing)
            return numbers if self._kind == pa.int64() else numbers.cast(self._kind)
        texts = pa.LargeStringArray.from_buffers(self._size, pa.py_buffer(self._values), pa.py_buffer(self._bytes))
        found = texts.take(pa.array(slots)).cast(self._kind)
        return found if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, self._kind), found)

    def same(self, slots: Ints, column: pa.Array) -> NDArray[np.bool_]:
        """Whether what lies at each slot is the value beside it; null is null."""
        if self._text:
            equal = pc.equal(self.take(slots), column)
            result = (pc.fill_null(equal, False) if equal.null_count else equal).to_numpy(zero_copy_only=False)
        else:
            result = self._values[slots] == _numbers(column)
        if column.null_count or self._missing is not None:
            absent = column.is_null().to_numpy(zero_copy_only=False)
            there = np.zeros(len(slots), dtype=bool) if self._missing is None else self._missing[slots]
            result = np.where(absent | there, absent & there, result)
        return np.asarray(result, dtype=bool)


def _numbers(column: pa.Array) -> Ints:
    if column.type != pa.int64():
        column = column.cast(pa.int64())
    numbers: Ints = (pc.fill_null(column, 0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return numbers


def _text_bytes(column: pa.Array) -> NDArray[np.uint8]:
    """The texts end to end."""
    if column.null_count:
        column = pc.fill_null(column, "")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=len(column) + 1, offset=4 * column.offset)
    return np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
