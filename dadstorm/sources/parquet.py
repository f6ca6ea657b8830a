"""Parquet sources: a block is a row group.

The footer tells how many rows each row group has, so a slice passes over the others' without reading them. Columns
are found by name. Where a column holds the seqs, that column of the others' row groups is read too. A mark is a row
group: {"path", "offset", "seq", "line"} with the group's number as offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from dadstorm.core.line import END, START, Ints
from dadstorm.core.rows import Rows
from dadstorm.core.schemas import ARROW
from dadstorm.errors import RunFailed
from dadstorm.plan import Field, Operator
from dadstorm.sources.base import Mark, Records
from dadstorm.sources.fields import UTC, convert
from dadstorm.sources.formats import Declined, wrong_value
from dadstorm.sources.marks import Marks
from dadstorm.sources.pending import Pending
from dadstorm.sources.records import Refusals
from dadstorm.sources.seqs import Column, Numbers, Place, Seqs

BATCH_ROWS = 1 << 15
"""A row group may have millions of rows: so many of them are decoded at a time."""


class ParquetReader:
    """One slice of a Parquet source."""

    def __init__(
        self,
        operator: Operator,
        slice_index: int,
        *,
        mark: Mark | None = None,
        cut: int = START,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self._operator = operator
        self._slice = slice_index
        self._cut = cut
        self._batch_rows = batch_rows
        self._paths: list[str] = operator.params["paths"]
        self._pending = Pending(operator.schema, cut)
        self._marks = Marks()
        self._drained = False
        self._file: pq.ParquetFile | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        start = mark or {"path": 0, "offset": 0, "seq": START}
        self._path, self._group, self._seq = int(start["path"]), int(start["offset"]), int(start["seq"])
        self._row = 0
        """In the current row group."""
        self._note()

    def read(self, max_rows: int, max_bytes: int) -> Records:
        while self._pending.empty and not self._ended and not self._advance():
            pass
        if self._ended and self._pending.empty:
            self._pending.reach(END)
        return self._pending.take(max_rows, max_bytes)

    def mark(self, cut: int) -> Mark:
        return self._marks.at(cut)

    def wake_fds(self) -> list[int]:
        return []

    def drain(self) -> None:
        self._drained = True

    def close(self) -> None:
        self._batches = None
        if self._file:
            self._file.close()
            self._file = None

    @property
    def _ended(self) -> bool:
        return self._drained or self._path >= len(self._paths)

    def _advance(self) -> bool:
        """One batch, one row group passed over, or one file closed; whether a batch of rows was decoded."""
        path = self._paths[self._path]
        try:
            if self._batches is not None:
                batch = next(self._batches, None)
                if batch is not None:
                    self._take(path, batch)
                    return True
                self._batches = None
                self._next_group()
                return False
            file = self._file or self._open(path)
            if self._group >= file.num_row_groups:
                self.close()
                self._path, self._group = self._path + 1, 0
                self._note()
                return False
            owns = (self._path + self._group) % self._operator.slices == self._slice
            if owns and (self._seq >= self._cut or self._after(path, file) > self._cut):
                names = [field.name for field in self._operator.fields]
                self._batches = file.iter_batches(self._batch_rows, [self._group], names, use_threads=False)
                return False
            self._seq = self._after(path, file)
        except (pa.ArrowException, OSError) as error:
            raise self._failed(path, f"cannot be read as Parquet: {error}; make it again") from None
        self._pending.reach(max(self._seq, self._cut))
        self._next_group()
        return False

    def _next_group(self) -> None:
        self._group, self._row = self._group + 1, 0
        self._note()

    def _take(self, path: str, batch: pa.RecordBatch) -> None:
        numbers, place = self._numbers(path, batch.num_rows), self._place(path)
        rows, dead = typed_rows(self._operator, batch, numbers, place, self._cut)
        self._seq = numbers.next
        self._row += batch.num_rows
        self._pending.put(rows, dead, max(self._seq, self._cut))

    def _numbers(self, path: str, count: int) -> Numbers | Column:
        """The seqs of the next rows, of which the first has at least the seq where we are."""
        if "seq" in self._operator.params:
            return Column(self._operator, self._seq, self._place(path))
        return Numbers(np.arange(self._seq, self._seq + count, dtype=np.int64), self._seq)

    def _after(self, path: str, file: pq.ParquetFile) -> int:
        """The least seq that can come after the current row group, which is not read."""
        rows = file.metadata.row_group(self._group).num_rows
        numbers = self._numbers(path, 0)
        if not isinstance(numbers, Column):
            return self._seq + int(rows)
        field = self._operator.fields[self._operator.params["seq"]]
        read = file.read_row_group(self._group, [field.name], use_threads=False).column(0).combine_chunks()
        numbers.ends_with(_typed(read, field)[0], rows - 1)
        return numbers.next

    def _place(self, path: str) -> Place:
        """Where the next rows stand, for messages."""
        assert self._file is not None
        footer, group, row = self._file.metadata, self._group, self._row
        return lambda i: f"{path}:row {sum(footer.row_group(g).num_rows for g in range(group)) + row + i + 1}"

    def _note(self) -> None:
        self._marks.add(self._seq, {"path": self._path, "offset": self._group, "seq": self._seq, "line": 0})

    def _open(self, path: str) -> pq.ParquetFile:
        try:
            file = pq.ParquetFile(path)
        except FileNotFoundError:
            raise self._failed(path, "cannot be opened: no such file") from None
        schema = file.schema_arrow
        for field in self._operator.fields:
            index = schema.get_field_index(field.name)
            if index < 0:
                raise self._failed(path, f"expected a column {field.name!r}, found: {', '.join(schema.names[:50])}")
            if not _fits(schema.field(index).type, field):
                raise self._failed(
                    path,
                    f"column {field.name!r} is of type {schema.field(index).type}, not readable as {field.type}",
                )
        self._file = file
        return file

    def _failed(self, path: str, what: str) -> RunFailed:
        return RunFailed(f"source {self._operator.name!r}: {path}: {what}")


def typed_rows(
    operator: Operator, batch: pa.RecordBatch, numbers: Seqs, place: Place, cut: int
) -> tuple[Rows, Rows | None]:
    """A batch's records at or above the cut as rows of the operator's fields, and the dead letters among them."""
    columns: list[pa.Array] = []
    broken: dict[int, str] = {}
    for field in operator.fields:
        found = batch.column(batch.schema.get_field_index(field.name))
        column, bad = _typed(found, field)
        columns.append(column)
        for i in bad.tolist():
            broken.setdefault(i, wrong_value(field, found[i].as_py()))
    typed = pa.RecordBatch.from_arrays(columns, schema=operator.schema)
    count = typed.num_rows
    try:
        seqs = numbers.all(typed)
    except Declined:
        seqs, unplaced = numbers.each(typed, np.arange(count), count)
        broken = unplaced | broken
    rows = Rows(seqs, np.zeros(count, np.int64), typed)
    refusals = Refusals(operator, cut)
    for i in sorted(broken):
        refusals.add(int(seqs[i]), place(i), broken[i], str(batch.slice(i, 1).to_pylist()[0]))
    if broken:
        rows = rows.take(np.setdiff1d(np.arange(count), np.array(list(broken), np.int64), assume_unique=True))
    return rows.since(cut), refusals.rows()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def _fits(found: pa.DataType, field: Field) -> bool:
    """Whether a column can hold values of a field's type. Text can: it is read as a CSV field would be."""
    kind = _value_type(found)
    if _is_text(kind) or pt.is_null(kind):
        return True
    if field.type == "int":
        return bool(pt.is_integer(kind))
    if field.type == "float":
        return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))
    if field.type == "bool":
        return bool(pt.is_boolean(kind))
    return field.type == "timestamp" and bool(pt.is_timestamp(kind) or pt.is_date(kind))


def _typed(column: pa.Array, field: Field) -> tuple[pa.Array, Ints]:
    """A column as its field's type, and the positions of values that do not fit into it."""
    kind = _value_type(column.type)
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(kind):
        return convert(column.cast(pa.string()), field.type)
    try:
        return _cast(column, field), np.empty(0, np.int64)
    except pa.ArrowInvalid:
        pass
    values: list[pa.Scalar] = []
    bad = []
    for i in range(len(column)):
        try:
            values.append(_cast(column.slice(i, 1), field)[0])
        except pa.ArrowInvalid:
            values.append(pa.scalar(None, ARROW[field.type]))
            bad.append(i)
    return pa.array(values, ARROW[field.type]), np.array(bad, np.int64)


def _cast(column: pa.Array, field: Field) -> pa.Array:
    if pt.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(UTC)
    if field.type == "float" and pt.is_integer(column.type):
        # As in the other formats, an integer is rounded to the nearest float where it has no exact one.
        return column.cast(ARROW["float"], safe=False)
    return column.cast(ARROW[field.type])
