"""The second frame of a message: the rows of tiles, or the table of a snapshot, in Arrow's format (see ``codec``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dadstorm.core.rows import Rows
from dadstorm.wire.codec import Frame, Rubbish

_STRING = pa.string()
_END_BYTES = 8
"""Of the mark that ends a stream of Arrow's."""


def encode_body(content: Rows | pa.RecordBatch) -> memoryview | None:
    """What follows a message, as a frame; no rows need none."""
    if not isinstance(content, Rows):
        return memoryview(encode_table(content))
    return memoryview(encode_rows(content)) if len(content) else None


def encode_rows(rows: Rows) -> pa.Buffer:
    """Rows as the body of tiles."""
    columns = [pa.array(rows.seq), pa.array(rows.sub), *rows.data.columns]
    return pa.RecordBatch.from_arrays(columns, schema=wire_schema(rows.data.schema)).serialize()


def decode_rows(body: Frame, schema: pa.Schema) -> Rows:
    """The rows of a body; ``schema`` is that of the fields."""
    buffer = pa.py_buffer(body)
    if buffer.address % 8:
        buffer = pa.py_buffer(bytes(body))
    try:
        batch = pa.ipc.read_record_batch(buffer, wire_schema(schema))
        batch.validate()
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise Rubbish(f"rows that cannot be read: {error}") from None
    seq, sub = batch.column(0), batch.column(1)
    if seq.null_count or sub.null_count:
        raise Rubbish("rows without an ID")
    if any(kind == _STRING and _offsets_fall(batch.column(i)) for i, kind in enumerate(schema.types, 2)):
        raise Rubbish("rows with strings that overlap")
    return Rows(seq.to_numpy(), sub.to_numpy(), batch.select(range(2, 2 + len(schema))))


def encode_table(table: pa.RecordBatch) -> pa.Buffer:
    """A table with its schema: how snapshots travel. Its size is known, so memory is taken once and not as it grows."""
    size = table.schema.serialize().size + pa.ipc.get_record_batch_size(table) + _END_BYTES
    whole = pa.allocate_buffer(size)
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(whole), table.schema) as writer:
        writer.write_batch(table)
    return whole


def decode_table(body: Frame) -> pa.RecordBatch:
    """The table of a snapshot; fully checked, for there are few of them and they must be right."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(bytes(body))) as reader:
            table = reader.read_next_batch()
        table.validate(full=True)
        if not all(table.schema.names):
            raise ValueError("a column without a name")
    except (pa.ArrowException, OSError, ValueError, EOFError, StopIteration) as error:
        raise Rubbish(f"a table that cannot be read: {error}") from None
    return table


def _offsets_fall(column: pa.Array) -> bool:
    """Whether a string would end before it begins; the first and the last offset were checked before."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, count=len(column) + 1 if len(column) else 0)
    return bool((offsets[1:] < offsets[:-1]).any())


_wire_schemas: list[tuple[pa.Schema, pa.Schema]] = []
"""Those used last; a replica has two or three."""


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the rows that travel, for the schema of their fields."""
    for fields, whole in _wire_schemas:
        if fields is schema or fields.equals(schema):
            return whole
    whole = pa.schema([pa.field("_seq", pa.int64()), pa.field("_sub", pa.int64()), *schema])
    _wire_schemas[:] = [(schema, whole), *_wire_schemas[:7]]
    return whole
