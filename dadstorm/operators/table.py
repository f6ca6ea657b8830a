"""State as tables: key columns ``key_0``, ``key_1`` …, value columns, and ``gone`` for keys that were deleted.

Every kernel's delta has this shape, so that whoever holds a snapshot can fold deltas without knowing the operator.
State without a key (COUNT of a whole stream) is a table of one row with the key 0. State that is nothing but keys, and
only ever gets more of them (UNIQ), is a table of key columns alone. Where keys stay for ever (COUNT), their slots go
along in a column of their own instead of ``gone``, which makes folding cheap. See ``vault``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadstorm.core.line import Ints
from dadstorm.core.numbered import SLOT

ONE_KEY = pa.array([0], pa.int64())
"""The key column of state that has no key."""


def state_table(
    keys: Sequence[pa.Array], values: Mapping[str, pa.Array], gone: NDArray[np.bool_] | None = None
) -> pa.RecordBatch:
    names = [f"key_{i}" for i in range(len(keys))] + [*values, "gone"]
    marks = np.zeros(len(keys[0]), dtype=bool) if gone is None else gone
    return pa.RecordBatch.from_arrays([*keys, *values.values(), pa.array(marks)], names=names)


def set_table(keys: Sequence[pa.Array]) -> pa.RecordBatch:
    """Keys that are new; none was in such a table before."""
    return pa.RecordBatch.from_arrays(list(keys), names=[f"key_{i}" for i in range(len(keys))])


def numbered_table(slots: Ints, keys: Sequence[pa.Array], values: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Keys with their slots; none of them is ever deleted."""
    names = [SLOT, *(f"key_{i}" for i in range(len(keys))), *values]
    return pa.RecordBatch.from_arrays([pa.array(slots.astype(np.int32)), *keys, *values.values()], names=names)


def kept(state: pa.RecordBatch) -> tuple[list[pa.Array], dict[str, pa.Array]]:
    """Key and value columns of the rows that are not gone. (For kernels that never delete, all of them.)"""
    if "gone" in state.schema.names and state.column("gone").true_count:
        state = state.filter(pc.invert(state.column("gone")))
    names = state.schema.names
    keys = [state.column(f"key_{i}") for i in range(sum(name.startswith("key_") for name in names))]
    values = {name: state.column(name) for name in names if name not in ("gone", SLOT) and name[:4] != "key_"}
    return keys, values
