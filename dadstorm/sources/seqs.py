"""How the records of a block come by their seqs: by their number, or from a column that they bring along.

Seqs of a column are sparse and ascend strictly over all files of the source. Whether a value can be a seq at all (it is
there, an integer, on the line) is a property of its record: one without a seq is broken, and ``on_error`` says what
becomes of it. The order is a property of the input: where it does not ascend the run stops, whatever ``on_error``
says, for nobody could tell which of two records is the one out of place, and which of them a slice has seen depends
on how many slices there are. Each slice looks at the last seq of the blocks that it passes over, so the order is
checked from block to block too, and a slice knows how far the line is without parsing what is others'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from dadstorm.core.line import END, START, Ints
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator
from dadstorm.sources.formats import Declined, Format
from dadstorm.sources.split import Split

SEQ_MAX = END - 2
"""What lies below a position, and the position itself, lie before END."""

NO_SEQ = -1
"""Of a broken record that does not tell its seq."""

Place = Callable[[int], str]
"""Where a block's i-th record stands, for messages: "FILE:LINE"."""


class Seqs(Protocol):
    """The seqs of one block's records. ``next`` is the least that the first record after them may have, once they
    are known."""

    next: int

    def all(self, batch: pa.RecordBatch) -> Ints:
        """Of records that are all sound so far; ``Declined`` unless they have sound seqs too."""
        ...

    def each(self, batch: pa.RecordBatch, positions: Ints, count: int) -> tuple[Ints, dict[int, str]]:
        """Of ``count`` records, of which those at ``positions`` have the rows of the batch; and what is wrong with
        records that have none."""
        ...


class Numbers:
    """Seqs that are known before the records are looked at."""

    def __init__(self, seqs: Ints, floor: int = START) -> None:
        self._seqs = seqs
        self.next = int(seqs[-1]) + 1 if len(seqs) else floor

    def all(self, batch: pa.RecordBatch) -> Ints:
        return self._seqs

    def each(self, batch: pa.RecordBatch, positions: Ints, count: int) -> tuple[Ints, dict[int, str]]:
        return self._seqs, {}


class Column:
    """Seqs that a field holds, from ``floor`` on."""

    def __init__(self, operator: Operator, floor: int, place: Place) -> None:
        self._operator = operator
        self._index: int = operator.params["seq"]
        self._name = operator.fields[self._index].name
        self._place = place
        self.next = floor

    def all(self, batch: pa.RecordBatch) -> Ints:
        column = batch.column(self._index)
        if column.null_count:
            raise Declined
        seqs: Ints = column.to_numpy()
        if len(seqs):
            if int(seqs[0]) < self.next or int(seqs[-1]) > SEQ_MAX or bool((seqs[1:] <= seqs[:-1]).any()):
                raise Declined
            self.next = int(seqs[-1]) + 1
        return seqs

    def each(self, batch: pa.RecordBatch, positions: Ints, count: int) -> tuple[Ints, dict[int, str]]:
        values = batch.column(self._index).to_pylist()
        seqs = np.full(count, NO_SEQ, np.int64)
        wrong: dict[int, str] = {}
        for i, value in zip(positions.tolist(), values, strict=True):
            if not _is_seq(value):
                expected = f"expected a seq, an integer from {START} to {SEQ_MAX}"
                wrong[i] = f"field {self._name!r}: {expected}, found {'nothing' if value is None else value}"
                continue
            if value < self.next:
                raise self._out_of_order(i, value)
            seqs[i] = value
            self.next = value + 1
        return seqs, wrong

    def passed_over(self, form: Format, data: bytes, split: Split) -> None:
        """Others' records: only the last that has a seq is looked at."""
        for i in range(len(split.starts) - 1, -1, -1):
            raw = data[split.starts[i] : split.stops[i]]
            if i in split.broken or b"\0" in raw:
                continue
            try:
                batch, _ = form.rows([raw.decode()])
            except UnicodeDecodeError:
                continue
            if self.ends_with(batch.column(self._index), i):
                return

    def ends_with(self, column: pa.Array, last: int) -> bool:
        """Whether there is a seq among these values, the last of which is that of record ``last``; if so, the line
        goes on behind it."""
        for i, value in enumerate(reversed(column.to_pylist())):
            if _is_seq(value):
                if value < self.next:
                    raise self._out_of_order(last - i, value)
                self.next = value + 1
                return True
        return False

    def _out_of_order(self, record: int, value: int) -> RunFailed:
        before = f"more than {self.next - 1}" if self.next else "at least 0"
        return RunFailed(
            f"source {self._operator.name!r}: {self._place(record)}: field {self._name!r}, the seq: expected {before}, "
            f"found {value}; seqs ascend, each once, over all files of a source in their order: sort its records by "
            f"{self._name!r}, or leave out seq, and records are numbered"
        )


def _is_seq(value: object) -> bool:
    return isinstance(value, int) and START <= value <= SEQ_MAX
