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
from typing import TYPE_CHECKING, TypeAlias, Union

import msgspec
import xxhash

from dadstorm.core.messages import Copy, Found, Tiles
from dadstorm.wire.control import Message

if TYPE_CHECKING:
    import pyarrow as pa

    from dadstorm.core.rows import Rows

VERSION = 2
MAGIC = b"DST" + bytes([VERSION])
TOKEN_BYTES = 16
_HEAD = struct.Struct(f"<4s{TOKEN_BYTES}sQ")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)

Frame = bytes | memoryview


Content: TypeAlias = Union["Rows", "pa.RecordBatch", None]
"""What may follow a message: the rows of tiles, the table of a snapshot."""


class Rubbish(Exception):
    """Bytes that are not a message of this run."""


def encode(token: bytes, message: Message, content: Content = None) -> list[Frame]:
    """A message, and what it carries, as the frames that ``decode`` takes."""
    payload = _encoder.encode(message)
    body = None
    if content is not None:
        from dadstorm.wire.bodies import encode_body  # With Arrow, which takes long to load and not everybody needs.

        body = encode_body(content)
    if body is None:
        return [_HEAD.pack(MAGIC, token, xxhash.xxh3_64_intdigest(payload)) + payload]
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
