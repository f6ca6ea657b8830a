"""The merge: rows of several channels, each in ID order, into one sequence in ID order.

This is the DADSTORM report's merge operator for whole batches. The input number is already packed into ``sub`` (see
``line``), so comparing (seq, sub) also breaks ties by input stream, and no two rows compare equal. Where seq and sub
fit into one int64 together, that is the key. If the keys of all runs together have no gaps, each tells its row's place,
and each place its row's ID; numbers in long runs are put there right away. Otherwise the keys are sorted: a stable sort
over runs that are already sorted is a merge, as NumPy's timsort finds the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.line import SUB_BITS_MAX, Ints
from dadstorm.core.rows import Rows

_LONG = 1 << 12
"""Rows in each run, on average, from which on it is worth while to go through the columns run by run."""


def merge(runs: Sequence[Rows], sub_bits: int) -> Rows:
    """One sequence in ID order out of runs that each are; ``sub_bits`` is how wide their subs may be."""
    runs = [run for run in runs if len(run)] or runs[:1]
    if len(runs) == 1:
        return runs[0]
    first, last = min(int(run.seq[0]) for run in runs), max(int(run.seq[-1]) for run in runs)
    if (last - first).bit_length() + sub_bits > SUB_BITS_MAX:
        rows = Rows.concat(runs)
        return rows.take(np.lexsort((rows.sub, rows.seq)))
    keys = [run.seq if sub_bits == 0 else ((run.seq - first) << sub_bits) | run.sub for run in runs]
    if all(one[-1] < other[0] for one, other in pairwise(keys)):
        return Rows.concat(runs)
    key = np.concatenate(keys)
    least, count = min(int(one[0]) for one in keys), len(key)
    if max(int(one[-1]) for one in keys) - least < count:
        places, taken = key - least, np.zeros(count, dtype=bool)
        taken[places] = True
        if taken.all():  # Else two rows have one ID: a producer is wrong, but no row may be lost by it here.
            whole = np.arange(least, least + count)
            seq, sub = (whole >> sub_bits) + first, whole & ((1 << sub_bits) - 1)
            return Rows(seq if sub_bits else whole, sub, _laid(runs, places))
    return Rows.concat(runs).take(key.argsort(kind="stable"))


def _laid(runs: Sequence[Rows], places: Ints) -> pa.RecordBatch:
    """The fields of all runs, each row in its place."""
    parts = [run.data for run in runs]
    if len(places) >= _LONG * len(runs) and _are_numbers(parts):
        return _put(parts, places)
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    return pc.take(pa.concat_batches(parts), pa.array(order), boundscheck=False)


def _are_numbers(parts: Sequence[pa.RecordBatch]) -> bool:
    """Whether all fields are columns of plain numbers, which can be written anywhere."""
    return all(
        pa.types.is_int64(column.type) or pa.types.is_float64(column.type) for column in parts[0].columns
    ) and not any(column.null_count for part in parts for column in part.columns)


def _put(parts: Sequence[pa.RecordBatch], places: Ints) -> pa.RecordBatch:
    """Rows of numbers, each in its place: read and written once."""
    columns = []
    for number, field in enumerate(parts[0].schema):
        whole = np.empty(len(places), dtype=field.type.to_pandas_dtype())
        start = 0
        for part in parts:
            whole[places[start : start + part.num_rows]] = part.column(number).to_numpy()
            start += part.num_rows
        columns.append(pa.array(whole))
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)
