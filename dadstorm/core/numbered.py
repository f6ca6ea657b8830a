"""The settled state of keys that are numbered: what is known of the key in slot n lies at place n.

A delta is written over what is there: a changed key costs one store, however much state there is and however often it
has changed. Keys themselves never change, so only those of new slots are looked at; they are kept in tables, each at
least twice as heavy as the next, so that laying them together costs little in all.

Only tables that keep to the rule of numbers (see ``kernel``) can be written so: slots ascend, the new ones go on where
the known ones end, and all that is said of a key are 64-bit integers. ``write`` refuses any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadstorm.core.growing import room
from dadstorm.core.line import Ints
from dadstorm.errors import RunFailed

SLOT = "slot"
"""The column with a key's number, the same in all tables of a slice; those that are known go from 0 without a gap."""
_NO_INTS: Ints = np.empty(0, dtype=np.int64)
HEAVY_BYTES = 1 << 30
"""What weighs so much together is left in several tables: one holds less than 2 GiB of text."""


class Numbered:
    def __init__(self) -> None:
        self._size = 0
        self._keys: list[pa.RecordBatch] = []
        self._values: dict[str, Ints] = {}
        self._whole: pa.RecordBatch | None = None
        """All of it, as it was last asked for."""

    def write(self, table: pa.RecordBatch) -> bool:
        """Take a delta; False, and nothing has changed, if it is none that can be taken."""
        keys, values = _columns(table)
        if not _plain(table, SLOT, pa.int32(), pa.int64()):
            return False
        if not all(_plain(table, name, pa.int64()) for name in values):
            return False
        slots = table.column(SLOT).to_numpy()
        known = int(np.searchsorted(slots, self._size))
        size = self._size + len(slots) - known
        same = not self._size or (list(self._values) == values and self._keys[0].schema == table.select(keys).schema)
        if not same or not _ascend(slots) or not np.array_equal(slots[known:], np.arange(self._size, size)):
            return False
        self._whole = None
        for name in values:
            column = room(self._values.get(name, _NO_INTS), self._size, size)
            column[slots] = table.column(name).to_numpy()
            self._values[name] = column
        if size > self._size:
            self._size = size
            # A copy: a slice would keep all of the delta in memory.
            self._keys.append(table.select(keys).take(pa.array(np.arange(known, len(slots)))))
            lay_together(self._keys, 0)
        return True

    def tables(self) -> list[pa.RecordBatch]:
        """All of it, as one delta; none if there is nothing."""
        if self._whole is not None or not self._size:
            return [] if self._whole is None else [self._whole]
        slots = pa.array(np.arange(self._size, dtype=np.int32))
        keys = whole(self._keys)
        values = [pa.array(column[: self._size].copy()) for column in self._values.values()]
        names = [SLOT, *keys.schema.names, *self._values]
        self._keys = [keys]
        self._whole = pa.RecordBatch.from_arrays([slots, *keys.columns, *values], names=names)
        return [self._whole]


def lay_together(tables: list[pa.RecordBatch], first: int) -> None:
    """Keep a list of tables short: from ``first`` on, each is at least twice as heavy as the next, or heavy."""
    while len(tables) > first + 1:
        older, newer = tables[-2].nbytes, tables[-1].nbytes
        if older >= 2 * newer or older + newer > HEAVY_BYTES:
            return
        tables[-2:] = [pa.concat_batches(tables[-2:])]


def whole(tables: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The tables as one; RunFailed where they are too large for that."""
    try:
        return pa.concat_batches(tables)
    except pa.ArrowInvalid:
        size = sum(table.nbytes for table in tables)
        if size <= HEAVY_BYTES:
            raise
        raise TooLarge(size) from None


class TooLarge(RunFailed):
    """The state of a slice cannot be laid in one table, to be given to anybody."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the state of a slice has {size >> 20} MB, more than one table takes (2048 MB of text). State that is so "
            "large is better spread over several replicas, or over more slices that stay apart (chain: false)"
        )


def _columns(table: pa.RecordBatch) -> tuple[list[str], list[str]]:
    """The names of key columns, and of those with values."""
    keys = [name for name in table.schema.names if name.startswith("key_")]
    return keys, [name for name in table.schema.names if name != SLOT and name not in keys]


def _plain(table: pa.RecordBatch, name: str, *kinds: pa.DataType) -> bool:
    """Whether there is such a column, of one of these types, and complete."""
    if name not in table.schema.names:
        return False
    column = table.column(name)
    return column.type in kinds and not column.null_count


def _ascend(slots: NDArray[Any]) -> bool:
    return len(slots) > 0 and int(slots[0]) >= 0 and bool((slots[1:] > slots[:-1]).all())
