"""Formats of line-like records: CSV, JSON lines, text.

A format turns records into columns in one of two ways. ``batch`` takes a whole block with Arrow's readers; it may
decline (``Declined``) for whatever reason, and then ``rows`` goes record by record and says which are broken and why.
What ``batch`` accepts ``rows`` would accept with the same values, so it never shows which way a record went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from dadstorm.core.line import Ints
from dadstorm.core.schemas import ARROW, schema_of
from dadstorm.plan import Field
from dadstorm.sources.fields import EXPECTED, convert
from dadstorm.sources.split import Rules, Split


class Declined(Exception):
    """The fast way does not know what to do with a block: go record by record."""


class Format(Protocol):
    rules: Rules

    def batch(self, data: bytes, split: Split) -> pa.RecordBatch:
        """All records of a block, or ``Declined``. The bytes are valid UTF-8 without NUL and no record is known to be
        broken."""
        ...

    def rows(self, records: list[str]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Records one by one: a row for each (nulls for a broken one) and what is wrong with the broken ones."""
        ...


class TextFormat:
    """Every line is a record of one string field."""

    def __init__(self, fields: tuple[Field, ...], limit: int) -> None:
        self.rules = Rules(limit, blank=None)
        self._schema = schema_of(fields)

    def batch(self, data: bytes, split: Split) -> pa.RecordBatch:
        # A string column is the lines without their ends, and where each begins in that.
        body = data[: split.end]
        if b"\r" in body:
            if body.count(b"\r") != body.count(b"\r\n"):
                raise Declined
            body = body.replace(b"\r\n", b"")
        body = body.replace(b"\n", b"")
        offsets = np.zeros(len(split.starts) + 1, np.int32)
        np.cumsum(split.stops - split.starts, out=offsets[1:])
        column = pa.StringArray.from_buffers(len(split.starts), pa.py_buffer(offsets), pa.py_buffer(body))
        return pa.RecordBatch.from_arrays([column], schema=self._schema)

    def rows(self, records: list[str]) -> tuple[pa.RecordBatch, dict[int, str]]:
        return pa.RecordBatch.from_arrays([pa.array(records, pa.string())], schema=self._schema), {}


def records_only(data: bytes, split: Split) -> pa.Buffer:
    """The records of a block with their line ends, as Arrow's readers take them; blank lines may be left, comments
    are not."""
    if split.commented:
        ranges = zip(split.starts.tolist(), split.stops.tolist(), strict=True)
        return pa.py_buffer(b"\n".join([data[start:stop] for start, stop in ranges]))
    start = int(split.starts[0])
    return pa.py_buffer(data).slice(start, int(split.stops[-1]) - start)


def typed_columns(
    columns: Sequence[Sequence[str | None]], fields: tuple[Field, ...]
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Columns of strings as the fields' types; the first wrong value of a row says what is wrong with it."""
    broken: dict[int, str] = {}
    arrays = []
    for strings, field in zip(columns, fields, strict=True):
        array, bad = convert(pa.array(strings, pa.string()), field.type)
        arrays.append(array)
        for i in bad.tolist():
            broken.setdefault(i, wrong_value(field, strings[i]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(fields)), broken


def wrong_value(field: Field, found: object) -> str:
    shown = repr(found)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return f"field {field.name!r}: expected {EXPECTED[field.type]}, found {shown}"


def with_nulls(batch: pa.RecordBatch, count: int, positions: Ints) -> pa.RecordBatch:
    """A batch of ``count`` rows with these rows at these positions and nulls elsewhere."""
    index = np.full(count, -1, np.int64)
    index[positions] = np.arange(len(positions))
    return batch.take(pa.array(index, mask=index < 0))


def arrow_type(field: Field) -> pa.DataType:
    """What a block's reader is asked for: timestamps come as strings, because Arrow's readers take them only all with
    or all without a zone."""
    return pa.string() if field.type == "timestamp" else ARROW[field.type]


def finish(table: pa.Table, fields: tuple[Field, ...], count: int) -> pa.RecordBatch:
    """A reader's table as the fields' batch; ``Declined`` unless it has a row for every record."""
    if table.num_rows != count:
        raise Declined
    arrays = []
    for column, field in zip(table.columns, fields, strict=True):
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if field.type == "timestamp":
            array, bad = convert(array, "timestamp")
            if len(bad):
                raise Declined
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(fields))
