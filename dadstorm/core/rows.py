"""Rows: tuples in ID order, as columns.

The unit that everything handles: two int64 arrays (``seq``, ``sub``) and an Arrow record batch of the fields, all of
one length and sorted by (seq, sub). Rows are immutable; slicing is free, so splitting at a cut costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.line import Ints

_NO_INTS: Ints = np.empty(0, dtype=np.int64)


class Rows(msgspec.Struct, frozen=True, eq=False):
    seq: Ints
    sub: Ints
    data: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.seq)

    @staticmethod
    def empty(schema: pa.Schema) -> Rows:
        return Rows(_NO_INTS, _NO_INTS, empty_batch(schema))

    def slice(self, start: int, stop: int) -> Rows:
        """Rows ``start`` up to ``stop``, without copying."""
        if start == 0 and stop >= len(self.seq):
            return self
        return Rows(self.seq[start:stop], self.sub[start:stop], self.data.slice(start, stop - start))

    def take(self, order: Ints) -> Rows:
        """The rows at these positions, in this order. NumPy has looked whether they are within bounds."""
        seq, sub = self.seq[order], self.sub[order]
        return Rows(seq, sub, pc.take(self.data, pa.array(order), boundscheck=False))

    def before(self, cut: int) -> int:
        """How many rows lie below ``cut``."""
        if not len(self.seq) or self.seq[-1] < cut:
            return len(self.seq)
        return int(self.seq.searchsorted(cut))

    def below(self, cut: int) -> Rows:
        return self.slice(0, self.before(cut))

    def since(self, cut: int) -> Rows:
        return self.slice(self.before(cut), len(self))

    @property
    def nbytes(self) -> int:
        """What the rows weigh, as the window counts it."""
        return int(self.data.nbytes) + 16 * len(self.seq)

    def heavier_than(self, limit: int) -> bool:
        """Whether the rows weigh more; mostly all that they refer to does not, which is told at once."""
        return self.data.get_total_buffer_size() + 16 * len(self.seq) > limit and self.nbytes > limit

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """The parts one after the other; the caller knows that they are in order, or sorts afterwards."""
        if len(parts) == 1:
            return parts[0]
        return Rows(
            np.concatenate([part.seq for part in parts]),
            np.concatenate([part.sub for part in parts]),
            pa.concat_batches([part.data for part in parts]),
        )


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)
