"""The simulated outside world: what sources read, the files that sinks write, and the disk of a durable run.

A source's records are dealt out to its slices in short runs of seqs, so that slices interleave. A sink writes at
offsets, as into a file. Under exactly-once every incarnation of a sink must write the same row at the same place, so
two of them may even write at once; otherwise a new incarnation cuts the file off where its last commit left it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dadstorm.core.holder import Holder
from dadstorm.core.line import END, START, Ints
from dadstorm.core.messages import DISK, Copy, Found, Held, Seek, Settle
from dadstorm.core.replica import Give, give
from dadstorm.core.rows import Rows
from dadstorm.core.vault import Delta

OWNED_RUN = 3
"""So many seqs in a row belong to one slice of a source."""

Row = tuple[object, ...]
"""(seq, sub, fields…) of a row that was written."""


class Wrong(AssertionError):
    """Something happened that must never happen."""


def owners(records: Rows, slices: int) -> Ints:
    """To which slice of a source each record belongs."""
    return records.seq // OWNED_RUN % slices


@dataclass(slots=True)
class SimulatedSource:
    """One slice of a source: the records it owns, and how far they were given out."""

    rows: Rows
    taken: int = 0
    ready_ms: float = 0.0
    """Nothing more comes before that."""

    @staticmethod
    def opened(records: Rows, slice_index: int, slices: int, cut: int) -> SimulatedSource:
        mine = np.flatnonzero((owners(records, slices) == slice_index) & (records.seq >= cut))
        return SimulatedSource(records.take(mine))

    def drain(self) -> None:
        """There is nothing more to be read."""
        self.rows = self.rows.slice(0, self.taken)

    def read(self, rows_max: int) -> tuple[Rows, int]:
        """Some records, all those of their seqs, and the end of the line that they cover."""
        stop = min(self.taken + rows_max, len(self.rows))
        while 0 < stop < len(self.rows) and self.rows.seq[stop] == self.rows.seq[stop - 1]:
            stop += 1
        rows = self.rows.slice(self.taken, stop)
        self.taken = stop
        return rows, END if stop == len(self.rows) else int(self.rows.seq[stop])


class SimulatedDisk:
    """What is settled on the disks of a durable run: it outlives everybody. A run that is started again numbers its
    incarnations anew, so what an earlier life has left counts as older than anything."""

    def __init__(self) -> None:
        self._holder = Holder(DISK, 0)
        self._before: dict[tuple[int, int], Delta] = {}
        """Per slice: what the lives before this one have settled."""

    def take(self, message: Copy | Settle, table: pa.RecordBatch | None) -> Held:
        return self._holder.copy(message, table) if isinstance(message, Copy) else self._holder.settle(message)

    def give(self, seek: Seek, index: int) -> Give:
        """The newest there is of a slice, for who resumes it."""
        found = give(self._holder, DISK, seek, index)
        before = self._before.get((seek.operator, index))
        if found.message.cut >= START or before is None:
            return found
        mark = None if before.mark is None else dict(before.mark)
        return Give(found.to, Found(seek.operator, index, seek.incarnation, 0, DISK, before.cut, mark), before.table)

    def next_life(self, slices: Iterable[tuple[int, int]]) -> None:
        """Everybody has died."""
        for operator, index in slices:
            found = self._holder.find(operator, index)
            if found is not None:
                self._before[operator, index] = found[1]
        self._holder = Holder(DISK, 0)


class SimulatedFile:
    """What the incarnations of one sink have written."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[Row] = []

    @property
    def rows(self) -> list[Row]:
        return list(self._rows)

    def truncate(self, offset: int) -> None:
        del self._rows[offset:]

    def write(self, offset: int, rows: Rows) -> int:
        """Put rows at an offset; what was written there before must be the same. The offset behind them."""
        columns = [column.to_pylist() for column in rows.data.columns]
        for row in zip(rows.seq.tolist(), rows.sub.tolist(), *columns, strict=True):
            if offset == len(self._rows):
                self._rows.append(row)
            elif offset > len(self._rows):
                raise Wrong(f"{self._name} writes {row} at {offset}, beyond the end at {len(self._rows)}")
            elif repr(self._rows[offset]) != repr(row):
                raise Wrong(f"{self._name} writes {row} at {offset}, where {self._rows[offset]} was")
            offset += 1
        return offset


@dataclass(slots=True)
class SimulatedSink:
    """A sink as one incarnation has it open: where in the file it writes, and what the next commit would say."""

    file: SimulatedFile
    offset: int
    done: int = START

    def write(self, rows: Rows, hi: int) -> None:
        self.offset = self.file.write(self.offset, rows)
        self.done = hi
