"""Which rows are equal: codes from 0 for the distinct values of some columns. Null is a value like any other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dadstorm.core.line import Ints


def distinct(columns: Sequence[pa.Array]) -> tuple[Ints, list[pa.Array]]:
    """For each row its code, in the order in which values first come; and what the codes stand for, as columns."""
    codes, values = _distinct(columns[0])
    if len(columns) == 1:
        return codes, [values]
    parts, dictionaries = [np.arange(len(values))], [values]
    for column in columns[1:]:
        more, values = _distinct(column)
        # One code for the pair, below 2^62 since no batch has 2^31 rows; then numbered densely again.
        width = max(1, len(values))
        codes, pairs = _distinct(pa.array(codes * width + more))
        numbers = pairs.to_numpy(zero_copy_only=False)
        parts = [part[numbers // width] for part in parts] + [numbers % width]
        dictionaries.append(values)
    return codes, [d.take(pa.array(part)) for d, part in zip(dictionaries, parts, strict=True)]


def last_rows(codes: Ints, count: int) -> Ints:
    """For each code below ``count`` the last row that has it, or -1."""
    rows = np.full(count, -1, dtype=np.int64)
    # Of several values assigned to one place NumPy keeps the last.
    rows[codes] = np.arange(len(codes))
    return rows


def _distinct(column: pa.Array) -> tuple[Ints, pa.Array]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary
