"""The merge: rows of several channels, each in ID order, into one sequence in ID order.

This is the paper's merge operator for whole batches. The input number is already packed into ``sub`` (see ``line``),
so comparing (seq, sub) also breaks ties by input stream, and no two rows compare equal. Where seq and sub fit into one
int64 together, that is the key. If the keys of all runs together have no gaps, each tells its row's place, and columns
of numbers are put there right away. Otherwise the keys are sorted: a stable sort over runs that are already sorted is a
merge, as NumPy's timsort finds the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadstorm.core.line import SUB_BITS_MAX, Ints
from dadstorm.core.rows import Rows

_LONG = 512
"""Rows in each run, on average, from which on it is worth while to put them in their places run by run."""


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
    count = sum(map(len, keys))
    least = min(int(key[0]) for key in keys)
    if count >= _LONG * len(runs) and max(int(key[-1]) for key in keys) - least < count:
        places = [key - least for key in keys]
        taken = np.zeros(count, dtype=bool)
        for place in places:
            taken[place] = True
        if taken.all():  # Else two rows have one ID: a producer is wrong, but no row may be lost by it here.
            return _put(runs, places)
    return Rows.concat(runs).take(np.concatenate(keys).argsort(kind="stable"))


def _put(runs: Sequence[Rows], places: Sequence[Ints]) -> Rows:
    """The rows of each run in their places."""
    schema, count = runs[0].data.schema, sum(map(len, places))
    order: pa.Array | None = None
    columns = []
    for number in range(len(schema)):
        parts = [run.data.column(number) for run in runs]
        if _is_number(schema.field(number).type) and not any(part.null_count for part in parts):
            columns.append(pa.array(_placed([part.to_numpy() for part in parts], places, count)))
            continue
        if order is None:
            rows = np.split(np.arange(count), np.cumsum([len(run) for run in runs])[:-1])
            order = pa.array(_placed(rows, places, count))
        columns.append(pc.take(pa.concat_arrays(parts), order, boundscheck=False))
    seq, sub = (_placed(parts, places, count) for parts in ([run.seq for run in runs], [run.sub for run in runs]))
    return Rows(seq, sub, pa.RecordBatch.from_arrays(columns, schema=schema))


def _placed(parts: Sequence[NDArray[Any]], places: Sequence[Ints], count: int) -> NDArray[Any]:
    """The parts of a column, each value in its place."""
    whole = np.empty(count, dtype=parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        whole[place] = part
    return whole


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_float64(kind))
