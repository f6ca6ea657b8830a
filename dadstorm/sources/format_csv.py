"""CSV (RFC 4180): fields between delimiters, double quotes around those that hold delimiters, quotes or newlines.

Nothing is trimmed. As in most readers, a quote inside an unquoted field is an ordinary character, and what follows a
closing quote up to the delimiter belongs to the field. A bare carriage return outside quotes is refused: half the
tools would see a line end there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dadstorm.core.schemas import schema_of
from dadstorm.plan import Field
from dadstorm.sources.csv_record import fields_of
from dadstorm.sources.fields import FALSE, TRUE, convert_plain
from dadstorm.sources.formats import Declined, arrow_type, finish, records_only, typed_columns, with_nulls
from dadstorm.sources.split import Rules, Split

FEW = 1024
"""So many fields, of all records together, are taken without Arrow's reader."""


class CsvFormat:
    def __init__(self, fields: tuple[Field, ...], limit: int, delimiter: str = ",", comment: str | None = None) -> None:
        self.rules = Rules(limit, b"", comment.encode() if comment else None, ord(delimiter))
        self._delimiter = delimiter
        self._fields = fields
        self.set_columns(list(range(len(fields))), len(fields))

    def set_columns(self, positions: list[int], width: int) -> None:
        """Where the fields stand in a record of so many columns, for a file whose header says so."""
        self._positions = positions
        self._width = width
        names = [f"c{i}" for i in range(width)]
        self._read = pyarrow.csv.ReadOptions(use_threads=False, column_names=names)
        self._convert = pyarrow.csv.ConvertOptions(
            check_utf8=False,
            column_types={names[i]: arrow_type(field) for i, field in zip(positions, self._fields, strict=True)},
            include_columns=[names[i] for i in positions],
            null_values=[""],
            true_values=TRUE,
            false_values=FALSE,
            strings_can_be_null=False,
        )

    def batch(self, data: bytes, split: Split) -> pa.RecordBatch:
        if len(split.starts) * self._width <= FEW and b'"' not in data and b"\r" not in data:
            return self._few(data, split)
        records = records_only(data, split)
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            raise Declined
        # Arrow's reader drops a byte order mark from what it takes for the start of a file.
        if data.startswith(b"\xef\xbb\xbf", int(split.starts[0])):
            raise Declined
        self._read.block_size = max(records.size, 1 << 16)
        parse = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in data)
        try:
            table = pyarrow.csv.read_csv(pa.BufferReader(records), self._read, parse, self._convert)
        except pa.ArrowInvalid:
            raise Declined from None
        return finish(table, self._fields, len(split.starts))

    def _few(self, data: bytes, split: Split) -> pa.RecordBatch:
        """A few records without quotes, as live sources have them: here Arrow's reader, which makes a thread for every
        block, takes longer than they do."""
        ranges = zip(split.starts.tolist(), split.stops.tolist(), strict=True)
        records = [data[start:stop].decode() for start, stop in ranges]
        if any(record.count(self._delimiter) != self._width - 1 for record in records):
            raise Declined
        values = self._delimiter.join(records).split(self._delimiter)
        arrays = []
        for position, field in zip(self._positions, self._fields, strict=True):
            array, bad = convert_plain(pa.array(values[position :: self._width], pa.string()), field.type)
            if len(bad):
                raise Declined
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(self._fields))

    def rows(self, records: list[str]) -> tuple[pa.RecordBatch, dict[int, str]]:
        broken: dict[int, str] = {}
        columns: list[list[str]] = [[] for _ in self._positions]
        whole = []
        for i, record in enumerate(records):
            try:
                values = fields_of(record, self._delimiter)
            except ValueError as error:
                broken[i] = str(error)
                continue
            if len(values) != self._width:
                broken[i] = f"expected {self._width} columns, found {len(values)}"
                continue
            whole.append(i)
            for column, position in zip(columns, self._positions, strict=True):
                column.append(values[position])
        batch, wrong = typed_columns(columns, self._fields)
        broken.update((whole[i], why) for i, why in wrong.items())
        return (
            batch if len(whole) == len(records) else with_nulls(batch, len(records), np.array(whole, np.int64))
        ), broken
