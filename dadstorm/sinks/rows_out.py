"""From rows to the record batches that a sink writes: its own column names, and pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator

ID_FIELDS = [pa.field("_seq", pa.int64()), pa.field("_sub", pa.int64())]
"""The columns that ``with_id`` puts in front."""

PIECE_ROWS_MAX = 1 << 15
"""Rows that are turned into text at once: enough that a call's fixed cost vanishes, few enough for the cache."""

PIECE_BYTES_MAX = 32 << 20
"""Bytes that are turned into text at once. Escaping may grow it sixfold; Arrow's limit is 2 GiB a column."""


class Shape:
    """What a sink's batches look like: its operator's fields by position, after the ID if that was asked for."""

    def __init__(self, operator: Operator) -> None:
        self.with_id = bool(operator.params.get("with_id"))
        fields = list(operator.schema)
        self.schema = pa.schema(ID_FIELDS + fields if self.with_id else fields)

    def batch(self, rows: Rows) -> pa.RecordBatch:
        columns = rows.data.columns
        if self.with_id:
            columns = [pa.array(rows.seq), pa.array(rows.sub), *columns]
        plain = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(plain, schema=self.schema)


class Progress:
    """Which rows have come and which cut holds: the order that callers of a sink owe it, checked."""

    def __init__(self, operator: Operator, cut: int) -> None:
        self._name = operator.name
        self._last: int | None = None
        self.committed = cut

    def wrote(self, rows: Rows, again: bool = False) -> None:
        if again:
            return
        first, least = int(rows.seq[0]), self.committed if self._last is None else self._last
        assert first >= least and self.committed != END, (
            f"sink {self._name}: rows from seq {first} came after the line was written up to {least}"
        )
        self._last = int(rows.seq[-1])

    def check(self, cut: int) -> None:
        """A commit at ``cut`` may begin."""
        assert self.committed <= cut and (self._last is None or self._last < cut), (
            f"sink {self._name}: commit at {cut} with rows written up to {self._last}, committed {self.committed}: "
            "write the rows below a cut, commit, then write the rows from it"
        )

    def commit(self, cut: int) -> None:
        """The commit at ``cut`` holds."""
        self.committed, self._last = cut, None


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices of bounded rows and bytes, in order; a single row is never split."""
    for start in range(0, batch.num_rows, PIECE_ROWS_MAX):
        yield from _halves(batch.slice(start, PIECE_ROWS_MAX))


def _halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or batch.nbytes <= PIECE_BYTES_MAX:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle))
    yield from _halves(batch.slice(middle))
