"""How a message looks on the wire.

Two frames at most. The first: magic and version, the token of the run, a checksum over what follows, and the
message as msgpack. The second, only for tiles that have rows: those rows as one Arrow record batch (seq, sub, the
fields), without its schema, which both sides know from the plan. Decoding the rows copies nothing. Snapshots have a
table for a second frame: an Arrow stream, with its schema.

``decode`` accepts exactly what ``encode`` makes and raises ``Rubbish`` for everything else, whatever the bytes are:
the checksum keeps damaged Arrow data from being looked at, msgspec checks every field's type. Rows whose checksum is
right are still checked as far as memory is concerned: buffers long enough, and string offsets that never fall, without
which Arrow reads wherever they point to (0.3 ns a row; a full validation would take 6 to 26). Against a forger who
means harm that is not enough; CURVE is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias, Union

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from dadstorm.core.messages import Copy, Found, Tiles
from dadstorm.core.rows import Rows
from dadstorm.wire.control import Message

VERSION = 1
MAGIC = b"DST" + bytes([VERSION])
TOKEN_BYTES = 16
_HEAD = struct.Struct(f"<4s{TOKEN_BYTES}sQ")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
_STRING = pa.string()

Frame = bytes | memoryview


Content: TypeAlias = Union[Rows, "pa.RecordBatch", None]
"""What may follow a message: the rows of tiles, the table of a snapshot."""


class Rubbish(Exception):
    """Bytes that are not a message of this run."""


def encode(token: bytes, message: Message, content: Content = None) -> list[Frame]:
    payload = _encoder.encode(message)
    if content is None or (isinstance(content, Rows) and not len(content)):
        return [_HEAD.pack(MAGIC, token, xxhash.xxh3_64_intdigest(payload)) + payload]
    body = memoryview(encode_rows(content) if isinstance(content, Rows) else encode_table(content))
    digest = xxhash.xxh3_64(payload)
    digest.update(body)
    return [_HEAD.pack(MAGIC, token, digest.intdigest()) + payload, body]


class OtherVersion(Rubbish):
    """A message of another version of the wire."""

    def __init__(self, version: int) -> None:
        super().__init__(f"wire version {version}; expected {VERSION}")
        self.version = version


def token_of(frames: Sequence[Frame]) -> bytes:
    """Whose token a message claims to have: for those who serve several runs."""
    if not frames or len(frames[0]) < _HEAD.size:
        raise Rubbish("too short")
    magic, token, _ = _HEAD.unpack_from(frames[0])
    if magic[:3] == MAGIC[:3] and magic != MAGIC:
        raise OtherVersion(magic[3])
    return bytes(token)


def decode(token: bytes, frames: Sequence[Frame]) -> tuple[Message, Frame | None]:
    """The message and the still encoded body, if there is one."""
    if not 1 <= len(frames) <= 2 or not len(frames[-1]):
        raise Rubbish(f"{len(frames)} frames; a message has one or two, and they are not empty")
    head = frames[0]
    if len(head) < _HEAD.size:
        raise Rubbish(f"a head of {len(head)} bytes; at least {_HEAD.size} are needed")
    magic, found_token, checksum = _HEAD.unpack_from(head)
    if magic != MAGIC:
        raise Rubbish(f"magic {bytes(magic)!r}; expected {MAGIC!r}")
    if found_token != token:
        raise Rubbish("the token of another run")
    payload = memoryview(head)[_HEAD.size :]
    digest = xxhash.xxh3_64(payload)
    if len(frames) == 2:
        digest.update(frames[1])
    if digest.intdigest() != checksum:
        raise Rubbish("the checksum does not fit")
    try:
        message = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rubbish(str(error)) from None
    if len(frames) == 1:
        return message, None
    if not isinstance(message, Tiles | Copy | Found):
        raise Rubbish(f"a {type(message).__name__} with a body")
    return message, frames[1]


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
    """A table with its schema: how snapshots travel."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    return sink.getvalue()


def decode_table(body: Frame) -> pa.RecordBatch:
    """The table of a snapshot; fully checked, for there are few of them and they must be right."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(bytes(body))) as reader:
            table = reader.read_next_batch()
        table.validate(full=True)
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
