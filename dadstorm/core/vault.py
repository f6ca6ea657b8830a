"""The vault: the snapshots of one slice, as its owner and each of its holders keep them.

A snapshot is the state of a slice at a cut: exactly what follows from all rows below it. It comes as a delta on the
snapshot before it: a table of the keys that changed (see ``kernel``), and for sources and sinks a mark. The vault
keeps one *base*, the state at the cut that is settled (nobody will ever resume below it), and the deltas above it,
each with its cut.

The base is a short list of tables. The first has every key once; what was settled since lies behind it, unfolded, in
tables each at least twice as heavy as the next. Only when those outweigh the first some times is all of it folded: so
a changed key costs a folding or two in all, however much state there is, and all together is a small multiple of it.
A table that has no column but its key is a set which only ever grows: none of its keys comes twice, there is nothing
to fold. Where keys are numbered, in a column ``slot``, nothing lies unfolded: what changed is written to its place
(``numbered``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.distinct import distinct, last_rows
from dadstorm.core.line import START, Ints
from dadstorm.core.numbered import SLOT, Numbered, lay_together, whole

Mark = Mapping[str, Any]
DRAINED = "drained"
"""In a source's mark: the stream ends there because it was drained, not because its input does."""

OUTWEIGHS = 2
"""How many times as heavy as the folded table the others may become before they are folded into it."""
SMALL_BYTES = 1 << 12
"""A folded table of less counts as one of this size."""
SPARSE = 8
"""How many numbers to a row are still worth an array of them."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What happened to a slice's state up to ``cut``, since the snapshot before; ``mark`` is where I/O stands there."""

    cut: int
    table: pa.RecordBatch | None = None
    mark: Mark | None = None


class Vault:
    def __init__(self, base: Delta | None = None) -> None:
        self.settled = base.cut if base else START
        """The cut of the base: the slice can resume there, and never needs to go behind."""
        self.mark = base.mark if base else None
        self._base: list[pa.RecordBatch] = []
        self._numbered: Numbered | None = Numbered()
        """The base, as long as its keys are numbered."""
        if base and base.table is not None and base.table.num_rows:
            self._write(base.table)
        self._deltas: deque[Delta] = deque()

    @property
    def newest(self) -> int:
        return self._deltas[-1].cut if self._deltas else self.settled

    def add(self, delta: Delta) -> None:
        assert delta.cut > self.newest, f"a snapshot at {delta.cut} after one at {self.newest}"
        self._deltas.append(delta)

    def newest_up_to(self, limit: int) -> int:
        """The newest cut there is a snapshot of, at or below ``limit``; the settled one if there is no better."""
        found = self.settled
        for delta in self._deltas:
            if delta.cut > limit:
                break
            found = delta.cut
        return found

    def settle(self, cut: int) -> None:
        """Nobody will resume below ``cut``: make it the base."""
        while self._deltas and self._deltas[0].cut <= cut:
            delta = self._deltas.popleft()
            self.settled, self.mark = delta.cut, delta.mark
            if delta.table is not None and delta.table.num_rows:
                self._write(delta.table)

    def _write(self, table: pa.RecordBatch) -> None:
        """Write what changed over the base."""
        if self._numbered is not None:
            if self._numbered.write(table):
                return
            self._base, self._numbered = self._numbered.tables(), None
        self._base.append(table)
        self._tidy()

    def _tidy(self) -> None:
        """Keep the list of tables short, and its weight within bounds."""
        tables = self._base
        grows = grows_only(tables[0])
        lay_together(tables, 0 if grows else 1)
        most = OUTWEIGHS * max(tables[0].nbytes, SMALL_BYTES)
        if not grows and sum(table.nbytes for table in tables[1:]) > most:
            self._base = [fold(tables, forget=True)]

    def base(self) -> Delta:
        """The settled snapshot, whole. That of a drained source says so, though the end itself is not settled yet: who
        resumes there is to end there."""
        drained = self._deltas and DRAINED in (self._deltas[-1].mark or {})
        return Delta(self.settled, self._table(), {**(self.mark or {}), DRAINED: True} if drained else self.mark)

    def _table(self) -> pa.RecordBatch | None:
        if self._numbered is not None:
            return next(iter(self._numbered.tables()), None)
        self._base = [fold(self._base, forget=True)]
        return self._base[0]

    def since(self, cut: int) -> list[Delta]:
        """The deltas above ``cut``, in order."""
        return [delta for delta in self._deltas if delta.cut > cut]


def grows_only(table: pa.RecordBatch) -> bool:
    """Whether this is a set of keys: no table of one slice has a key that another has."""
    return all(name.startswith("key_") for name in table.schema.names)


def fold(tables: Sequence[pa.RecordBatch], forget: bool) -> pa.RecordBatch:
    """One table with the last row of every key; ``forget`` leaves out keys that are gone: nothing older is left."""
    if len(tables) == 1:
        table = tables[0]
    elif grows_only(tables[0]):
        table = whole(tables)
    else:
        table = _taken(tables, _last(tables))
    if forget and "gone" in table.schema.names and table.column("gone").true_count:
        table = table.filter(pc.invert(table.column("gone")))
    return table


def _last(tables: Sequence[pa.RecordBatch]) -> Ints:
    """The last row of every key, counted over all tables: ordered by their numbers if they have some, and as they come
    otherwise."""
    if SLOT not in tables[0].schema.names:
        names = [name for name in tables[0].schema.names if name.startswith("key_")]
        if not names:  # Nothing tells rows apart: all are about the same.
            return np.arange(sum(table.num_rows for table in tables))[-1:]
        codes, values = distinct(whole([table.select(names) for table in tables]).columns)
        return np.sort(last_rows(codes, len(values[0])))
    slots = np.concatenate([table.column(SLOT).to_numpy() for table in tables])
    if not len(slots):
        return np.empty(0, dtype=np.int64)
    least, count = int(slots.min()), int(slots.max()) - int(slots.min()) + 1
    if count <= SPARSE * len(slots):
        rows = last_rows(slots - least, count)
        return rows[rows >= 0]
    codes, values = distinct([pa.array(slots)])
    return last_rows(codes, len(values[0]))[np.argsort(values[0].to_numpy())]


def _taken(tables: Sequence[pa.RecordBatch], rows: Ints) -> pa.RecordBatch:
    """These rows of all tables. What is not among them is not copied: texts may be so long that all would be too much
    for one column."""
    among = np.zeros(sum(table.num_rows for table in tables), dtype=bool)
    among[rows] = True
    ends = np.cumsum([table.num_rows for table in tables]).tolist()
    parts = [
        table.filter(pa.array(among[end - table.num_rows : end])) for table, end in zip(tables, ends, strict=True)
    ]
    return whole(parts).take(pa.array(np.cumsum(among)[rows] - 1))
