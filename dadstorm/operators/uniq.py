"""UNIQ: a tuple, whole, the first time its key fields have these values.

Where ``drop_nulls`` is set, a tuple without a value in one of them is dropped: it lacks the field it was asked for.

State: the keys seen. They only ever grow, so what changed since the last delta is a run of slots.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import Output
from dadstorm.core.rows import Rows
from dadstorm.operators.common import conformed
from dadstorm.operators.keys import Keys, first_rows
from dadstorm.operators.table import kept, set_table
from dadstorm.plan import Operator


class Uniq:
    def __init__(self, operator: Operator, schema: pa.Schema) -> None:
        self._schema = operator.schema
        self._fields: list[int] = operator.params["fields"]
        self._drop_nulls = bool(operator.params.get("drop_nulls"))
        self._keys = Keys([schema.field(field).type for field in self._fields])
        self._reported = 0

    def process(self, rows: Rows) -> Output:
        data = conformed(rows.data, self._schema)
        known = len(self._keys)
        keys = [data.column(field) for field in self._fields]
        whole = np.flatnonzero(np.all([key.is_valid() for key in keys], axis=0)) if self._drop_nulls else None
        if whole is not None:
            keys = [key.take(pa.array(whole)) for key in keys]
        slots = self._keys.rows(keys)
        fresh = np.flatnonzero(slots >= known)
        parent = fresh[first_rows(slots[fresh] - known, len(self._keys) - known)]
        if whole is not None:
            parent = whole[parent]
        if len(parent) == len(rows):
            return Output(data)
        return Output(data.take(pa.array(parent)), parent)

    def delta(self) -> pa.RecordBatch | None:
        if self._reported == len(self._keys):
            return None
        fresh = np.arange(self._reported, len(self._keys))
        self._reported = len(self._keys)
        return set_table(self._keys.table(fresh))

    def restore(self, state: pa.RecordBatch) -> None:
        keys, _ = kept(state)
        self._keys.add(keys)
        self._reported = len(self._keys)
