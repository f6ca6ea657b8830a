"""The merge: rows of several channels, each in ID order, into one sequence in ID order.

This is the paper's merge operator for whole batches. The input number is already packed into ``sub`` (see ``line``),
so comparing (seq, sub) also breaks ties by input stream, and no two rows compare equal. Where seq and sub fit into one
int64 together, that is the key. If the keys have no gaps, each tells its row's place. Otherwise they are sorted: a
stable sort over runs that are already sorted is a merge, as NumPy's timsort finds the runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dadstorm.core.line import SUB_BITS_MAX, Ints
from dadstorm.core.rows import Rows


def merge(runs: Sequence[Rows], sub_bits: int) -> Rows:
    """One sequence in ID order out of runs that each are; ``sub_bits`` is how wide their subs may be."""
    runs = [run for run in runs if len(run)] or runs[:1]
    rows = Rows.concat(runs)
    if len(runs) == 1:
        return rows
    first, last = min(int(run.seq[0]) for run in runs), max(int(run.seq[-1]) for run in runs)
    order = _order(rows, first, last, sub_bits)
    return rows if order is None else rows.take(order)


def _order(rows: Rows, first: int, last: int, sub_bits: int) -> Ints | None:
    """The permutation that sorts rows of these seqs by (seq, sub); None if they are sorted already."""
    seq_bits = (last - first).bit_length()
    if seq_bits + sub_bits <= SUB_BITS_MAX:
        key = rows.seq if sub_bits == 0 else ((rows.seq - first) << sub_bits) | rows.sub
        if bool((key[1:] > key[:-1]).all()):
            return None
        least, most = int(key.min()), int(key.max())
        if most - least < len(key):
            order = np.full(len(key), -1)
            order[key - least] = np.arange(len(key))
            if order.min() >= 0:  # Else two rows have one ID: a producer is wrong, but no row may be lost by it here.
                return order
        return key.argsort(kind="stable")
    return np.lexsort((rows.sub, rows.seq))
