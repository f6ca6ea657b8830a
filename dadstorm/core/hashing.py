"""A hash of rows that is the same in every process, every batch and every run.

Routing sends a row to the slice that holds its key's state, so the hash may never change and depends on nothing but the
values. Equal values have equal hashes however they are stored (string, large or dictionary-encoded; sliced or not);
-0.0 equals 0.0, every NaN equals every NaN, and null is a value.

All steps work on whole columns of 64-bit words with wrap-around arithmetic. A number is one word. A string is cut into
words of 8 bytes, little-endian, the last filled up with zeros; its words are mixed, each is multiplied by a power of an
odd number that belongs to its place, and they are summed; the length goes into the sum. A murmur-like finaliser spreads
every bit of a word over all 64. The hash spreads keys well; it does not withstand somebody who looks for collisions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadstorm.core.line import Ints

Hashes = NDArray[np.uint64]

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xFF51_AFD7_ED55_8CCD)
_SECOND = np.uint64(0xC4CE_B9FE_1A85_EC53)
_PLACE = np.uint64(0xD6E8_FEB8_6659_FD93)
_NULL = np.uint64(0x5851_F42D_4C95_7F2D)
_NAN_BITS = np.uint64(0x7FF8_0000_0000_0000)
_33, _32, _29 = np.uint64(33), np.uint64(32), np.uint64(29)
_PLACES = 8
"""How many words of a string are taken place by place, which is the cheaper way for short strings."""
_KEEP = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)
"""The mask that leaves the first ``count`` bytes of a little-endian word."""


def hash_columns(columns: Sequence[pa.Array], seed: int, exact: bool = False) -> Hashes:
    """One hash per row over the columns in their order. ``exact``: -0.0 is not 0.0, for who tells outputs apart."""
    rows = len(columns[0])
    hashes = np.full(rows, _finish_int(seed), dtype=np.uint64)
    for column in columns:
        hashes *= _GOLDEN
        hashes += _column(column, exact)
        _finish(hashes)
    return hashes


def hash_ids(seq: Ints, sub: Ints, seed: int) -> Hashes:
    """One hash per ID: what ``random`` routing goes by."""
    hashes = seq.astype(np.uint64)
    hashes += np.uint64(_finish_int(seed))
    _finish(hashes)
    hashes *= _GOLDEN
    hashes += sub.astype(np.uint64)
    _finish(hashes)
    return hashes


def slice_of(hashes: Hashes, slices: int) -> Ints:
    """The slice of each hash: the upper half of its bits, scaled; slices get equal shares up to one in 2^32."""
    if not 1 <= slices <= 1 << 31:
        raise ValueError(f"{slices} slices; expected 1 to 2^31")
    scaled: Ints = (((hashes >> _32) * np.uint64(slices)) >> _32).astype(np.int64)
    return scaled


def _column(column: pa.Array, exact: bool) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _dictionary(column, exact)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        words = _strings(column)
    elif pa.types.is_floating(kind):
        words = _floats(column, exact)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        words = _integers(column)
    else:
        raise TypeError(f"a field of type {kind} cannot be hashed")
    _finish(words)
    if column.null_count:
        words[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return words


def _dictionary(column: pa.DictionaryArray, exact: bool) -> Hashes:
    """Hash the distinct values, and hand them out by index; a null may be in the indices or in the dictionary."""
    if len(column.dictionary) == 0:
        return np.full(len(column), _NULL, dtype=np.uint64)
    indices = column.indices
    hashes: Hashes = _column(column.dictionary, exact)[pc.fill_null(indices, 0).to_numpy(zero_copy_only=False)]
    if indices.null_count:
        hashes[indices.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _integers(column: pa.Array) -> Hashes:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us")).view(pa.int64())
    elif column.type != pa.int64():
        column = column.cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, 0)
    words: Hashes = column.to_numpy(zero_copy_only=False).astype(np.uint64)
    return words


def _floats(column: pa.Array, exact: bool) -> Hashes:
    if column.null_count:
        column = pc.fill_null(column, 0.0)
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    nans = np.isnan(values)
    values[nans] = 0.0
    if not exact:
        values += 0.0  # Turns -0.0 into 0.0.
    words: Hashes = values.view(np.uint64)
    words[nans] = _NAN_BITS
    return words


def _strings(column: pa.Array) -> Hashes:
    rows = len(column)
    if rows == 0:
        return np.empty(0, dtype=np.uint64)
    _, offset_buffer, byte_buffer = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(offset_buffer, dtype=width, count=rows + 1, offset=column.offset * width().itemsize)
    offsets = offsets.astype(np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    # A copy with room behind, so that the last word of the last string can be read whole.
    padded = np.zeros(end - start + 8, dtype=np.uint8)
    if end > start:
        padded[: end - start] = np.frombuffer(byte_buffer, dtype=np.uint8, count=end - start, offset=start)
    offsets -= start
    lengths = np.diff(offsets)
    sums: Hashes = lengths.astype(np.uint64) * _GOLDEN
    starts = offsets[:-1]
    # Place by place over all strings that reach so far; what is left of long ones is laid out and summed per string.
    rest: Ints | None = None
    power = 1
    for _ in range(_PLACES):
        words = _words_at(padded, starts)
        words &= _KEEP[np.minimum(lengths, 8)]
        words = _spread(words) * np.uint64(power)
        if rest is None:
            sums += words
        else:
            sums[rest] += words
        longer = np.flatnonzero(lengths > 8)
        if not len(longer):
            return sums
        power = power * int(_PLACE) & _MASK
        rest = longer if rest is None else rest[longer]
        starts, lengths = starts[longer] + 8, lengths[longer] - 8
    sums[rest] += _long_strings(padded, starts, lengths) * np.uint64(power)
    return sums


def _long_strings(data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> Hashes:
    """The sum over all places of each string, none of which is empty: their words laid out one after the other."""
    counts = (lengths + 7) >> 3
    firsts = np.cumsum(counts) - counts
    place = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(firsts, counts)
    words = _words_at(data, np.repeat(starts, counts) + (place << 3))
    words &= _KEEP[np.minimum(np.repeat(lengths, counts) - (place << 3), 8)]
    powers = np.full(int(counts.max()), _PLACE, dtype=np.uint64)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    sums: Hashes = np.add.reduceat(_spread(words) * powers[place], firsts)
    return sums


def _words_at(data: NDArray[np.uint8], starts: Ints) -> Hashes:
    """The 8 bytes from each start on, as little-endian words, at any alignment."""
    overlapping = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    words: Hashes = overlapping[starts].astype(np.uint64, copy=False)
    return words


def _spread(words: Hashes) -> Hashes:
    """Carry the upper bits of each word down before words are summed, or they would only meet other upper bits."""
    words ^= words >> _32
    words *= _FIRST
    words ^= words >> _29
    return words


def _finish(words: Hashes) -> None:
    words ^= words >> _33
    words *= _FIRST
    words ^= words >> _33
    words *= _SECOND
    words ^= words >> _33


def _finish_int(value: int) -> int:
    """The finaliser for one Python int, moved by the golden ratio because 0 stays 0."""
    word = (value + int(_GOLDEN)) & _MASK
    word ^= word >> 33
    word = word * int(_FIRST) & _MASK
    word ^= word >> 33
    word = word * int(_SECOND) & _MASK
    return word ^ word >> 33
