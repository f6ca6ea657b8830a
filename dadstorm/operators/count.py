"""COUNT: for each tuple, how many tuples there have been so far, over the whole stream or per value of some fields.

Where the operator declares more fields than that, as ragged topologies may, the further ones are null; where it
declares strings, numbers become text.

State: one number, or one number per key, held in an array by slot; its tables carry the slots.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dadstorm.core.growing import room
from dadstorm.core.kernel import Kernel, Output
from dadstorm.core.line import Ints
from dadstorm.core.numbered import SLOT
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed
from dadstorm.operators.common import conform
from dadstorm.operators.keys import Keys
from dadstorm.operators.table import ONE_KEY, kept, numbered_table, state_table
from dadstorm.plan import Operator

_MANY = 16
"""If one key of so many has changed, it is quicker to look through all than to sort those that have."""


def make_count(operator: Operator, schema: pa.Schema) -> Kernel:
    return CountBy(operator, schema) if operator.params["by"] else Count(operator)


class Count:
    """1, 2, 3 … over the whole stream."""

    def __init__(self, operator: Operator) -> None:
        self._schema = operator.schema
        self._count = 0
        self._reported = 0

    def process(self, rows: Rows) -> Output:
        counts = np.arange(self._count + 1, self._count + 1 + len(rows))
        self._count += len(rows)
        return Output(_output([pa.array(counts)], self._schema))

    def delta(self) -> pa.RecordBatch | None:
        if self._count == self._reported:
            return None
        self._reported = self._count
        return state_table([ONE_KEY], {"count": pa.array([self._count], pa.int64())})

    def restore(self, state: pa.RecordBatch) -> None:
        _, values = kept(state)
        if len(values["count"]):
            self._count = self._reported = values["count"][-1].as_py()


class CountBy:
    """1, 2, 3 … for each value of the fields, after them."""

    def __init__(self, operator: Operator, schema: pa.Schema) -> None:
        self._schema = operator.schema
        self._fields: list[int] = operator.params["by"]
        self._keys = Keys([schema.field(field).type for field in self._fields])
        self._known = 0
        """How many slots there are values for."""
        self._counts = np.empty(0, dtype=np.int64)
        self._changed = np.empty(0, dtype=bool)
        self._touched: list[Ints] = []
        """The slots that have changed since the last delta, each once: nobody has to look at all there are."""
        self.numbered = True
        """Whether tables carry the slots; not if we were restored from some that do not."""

    def process(self, rows: Rows) -> Output:
        columns = [rows.data.column(field) for field in self._fields]
        order, sizes, slots = self._keys.grouped(columns)
        self._grow()
        before = self._counts[slots]
        after = self._counts[slots] = before + sizes
        # Key after key the counts go up by one, from what they were; then each goes to its row.
        steps, leaps = np.ones(len(rows), dtype=np.int64), before + 1
        leaps[1:] -= after[:-1]
        steps[np.cumsum(sizes) - sizes] = leaps
        running = np.cumsum(steps)
        counts = np.empty_like(running)
        counts[order] = running
        fresh = slots[~self._changed[slots]]
        if len(fresh):
            self._changed[fresh] = True
            self._touched.append(fresh)
        return Output(_output([*columns, pa.array(counts)], self._schema))

    def delta(self) -> pa.RecordBatch | None:
        if not self._touched:
            return None
        changed, self._touched = np.concatenate(self._touched), []
        if len(changed) * _MANY > self._known:
            changed = self._changed[: self._known].nonzero()[0]
        else:
            changed.sort()
        self._changed[changed] = False
        keys, counts = self._keys.table(changed), {"count": pa.array(self._counts[changed])}
        return numbered_table(changed, keys, counts) if self.numbered else state_table(keys, counts)

    def restore(self, state: pa.RecordBatch) -> None:
        keys, values = kept(state)
        slots = self._keys.add(keys)
        if SLOT not in state.schema.names:  # An earlier version wrote it.
            self.numbered = False
        elif not np.array_equal(slots, state.column(SLOT).to_numpy()):
            raise RunFailed("the state of a COUNT is not in the order in which its keys came: it cannot be resumed")
        self._grow()
        self._counts[slots] = values["count"].to_numpy(zero_copy_only=False)

    def _grow(self) -> None:
        """Begin at nothing for every new slot."""
        known, self._known = self._known, len(self._keys)
        if self._known > known:
            self._counts = room(self._counts, known, self._known)
            self._changed = room(self._changed, known, self._known)
            self._counts[known : self._known] = 0
            self._changed[known : self._known] = False


def _output(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    absent = [pa.nulls(len(columns[0]), field.type) for field in list(schema)[len(columns) :]]
    return conform([*columns, *absent], schema)
