"""What strangers send: bytes that are no message, messages of other runs, messages that make no sense.

Run as a program it does to rows made of mutated bytes whatever operators may do to rows; if bytes get through that must
not, it crashes, which is why it is a program.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from dadstorm.core.messages import (
    Adopt,
    Attach,
    Beat,
    Copy,
    Done,
    Down,
    Found,
    Gone,
    Held,
    Here,
    Reach,
    Reached,
    Safe,
    Seek,
    Settle,
    Tiles,
    Want,
)
from dadstorm.core.rows import Rows
from dadstorm.core.vault import fold
from dadstorm.plan import Plan
from dadstorm.wire import codec, control
from dadstorm.wire.bodies import decode_rows, decode_table
from dadstorm.wire.codec import Content, Rubbish, encode

TOKEN = b"T" * codec.TOKEN_BYTES
FOREIGN = b"F" * codec.TOKEN_BYTES

SCHEMA = pa.schema(
    [("s", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()), ("t", pa.timestamp("us"))]
)


def some_rows(seqs: list[int] | None = None) -> Rows:
    seq = np.array([1, 2, 2, 5] if seqs is None else seqs, dtype=np.int64)
    data = {"s": ["a", "bé", None, "d" * 20], "i": [1, None, 3, 4], "f": [0.5, None, 1.5, 2.5]}
    columns = [*data.values(), [True, None, False, True], [1, 2, None, 4]]
    arrays = [pa.array(column[: len(seq)], field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return Rows(seq, np.arange(len(seq), dtype=np.int64), pa.record_batch(arrays, schema=SCHEMA))


def opening(token: bytes, plan: bytes) -> control.Open:
    """A request to open a run."""
    return control.Open(token, "localhost", plan, "ipc://x", "a\0b", "", control.Shake())


MESSAGES: list[tuple[control.Message, Content]] = [
    (Tiles(0, 0, 0, 0, 1, 0, 0, 10, (0, 1), (2, 2)), some_rows()),
    (Tiles(0, 0, 0, 0, 1, 0, 0, 10, (0,), (0,)), None),
    (Attach(1, 0, 0, 0, (Want(0, 0, 0),)), None),
    (Done(0, 0, 0, 0, 1, 0, 7, True), None),
    (Gone(0, 0, 1, 0, 0, 7), None),
    (Here(0, 0, 1, ((0, 1),)), None),
    (Reach(0, 0, 0, 1, 1, 0), None),
    (Reached(0, 0, 1, 1, 0, 0, 7), None),
    (Copy(0, 0, 0, 0, None, 7, {"line": 3}), some_rows().data),
    (Copy(0, 0, 0, 0, 7, 8), None),
    (Settle(0, 0, 0, 0, 7), None),
    (Held(0, 0, 0, 1, 0, 7, 5), None),
    (Seek(0, 0, 1, (0, 1), 1), None),
    (Found(0, 0, 1, 0, 1, 7, None), some_rows().data),
    (Beat(0, 0, 0), None),
    (Down(0, 0, 0), None),
    (Adopt(0, 1, 0, 0, ((0, 1), (2, 1))), None),
    (control.Respawn(0, 0, 1), None),
    (Safe(1, 0, ((0, 7),)), None),
    (opening(TOKEN, b"plan"), None),
    (control.Opened("localhost", "1", "3", "tcp://x:1", 0, 9, ("why",)), None),
    (control.Pulse("localhost"), None),
    (control.Log("localhost", "a.0.log", b"text"), None),
    (control.Closed("localhost"), None),
    (control.Spawn(0, 0), None),
    (control.Spawned(0, 0, 17), None),
    (control.Refused(0, 0, "why"), None),
    (control.Died(0, 0, 17, -9, 0), None),
    (control.Hello(0, 0, 17, "ipc://x"), None),
    (control.Directory((("ipc://x",), ("ipc://y", "tcp://z:1"))), None),
    (control.Stats(0, 0, 1, 2, 3, 4, 5, 6, 7), None),
    (control.Finished(0, 0), None),
    (control.Failed(0, 0, "run", "why", 0), None),
    (control.Said(0, "text"), None),
]


def forged(token: bytes, payload: bytes, body: bytes | None = None) -> list[bytes]:
    """Frames with the right checksum, whatever is in them."""
    checksum = xxhash.xxh3_64_intdigest(payload + (body or b""))
    head = struct.pack(f"<4s{codec.TOKEN_BYTES}sQ", codec.MAGIC, token, checksum)
    return [head + payload] if body is None else [head + payload, body]


def mutations(data: bytes) -> Iterator[bytes]:
    """Every byte changed in several ways, and every truncation."""
    for position, byte in enumerate(data):
        for other in {0, 1, 0x7F, 0x80, 0xFF, byte ^ 1, byte ^ 0x80, (byte + 1) & 255, (byte - 1) & 255} - {byte}:
            yield data[:position] + bytes([other]) + data[position + 1 :]
        yield data[:position]


def numbers(seqs: list[int]) -> Rows:
    """Rows as the topology's channels carry them."""
    seq = np.array(seqs, dtype=np.int64)
    return Rows(seq, np.zeros(len(seq), np.int64), pa.record_batch([pa.array(seqs, pa.int64())], names=["n"]))


def nonsense() -> list[list[bytes]]:
    """What a stranger might send, frame by frame."""
    chance = np.random.default_rng(1)
    good = [[bytes(frame) for frame in encode(FOREIGN, *pair)] for pair in MESSAGES]
    flipped = [[bytes([frames[0][0] ^ 1]) + frames[0][1:], *frames[1:]] for frames in good]
    truncated = [[frame[: len(frame) // 2] for frame in frames] for frames in good]
    rubbish = [[chance.bytes(size)] for size in (0, 1, 27, 28, 29, 1000, 1 << 20)]
    many = [[b""] * count for count in range(1, 21)] + [[b"x" * count] * count for count in range(1, 21)]
    http = [[b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]]
    large = [[b"\0" * (8 << 20)], [encode(FOREIGN, *MESSAGES[1])[0], b"\0" * (8 << 20)]]
    return [list(map(bytes, frames)) for frames in good + flipped + truncated + rubbish + many + http + large]


def sense_without(plan: Plan) -> list[tuple[control.Message, Content]]:
    """Well-formed messages, with the right token, that make no sense to whomever they come."""
    far = numbers([1 << 61, 1 << 62])
    tiles = [
        (Tiles(p, 0, s, 0, c, i, lo, hi, slices, counts), rows)
        for p, s, c, i in [(0, 9, 1, 0), (0, -1, 1, 0), (2**64 - 1, 0, 1, 0), (0, 0, 9, 0), (0, 0, 1, 7), (4, 0, 3, 0)]
        for lo, hi, slices, counts, rows in [
            (0, 10, (0,), (0,), None),
            (0, 2**63 - 1, (0, 1), (1, 1), far),
            (5, 5, (0,), (2,), far),
            (-1, 2**64 - 1, (0,), (2,), far),
        ]
    ]
    for consumer, producer in [(1, 0), (2, 0), (3, 1), (4, 3)]:
        tiles += [
            (Tiles(producer, 0, 0, 0, consumer, 0, 10, 20, (0,), (2,)), far),  # Outside of the range.
            (Tiles(producer, 0, 0, 0, consumer, 0, 0, 2**63 - 1, (0,), (-2,)), None),
            (Tiles(producer, 0, 0, 0, consumer, 0, 0, 2**63 - 1, (0, 0), (1,)), far),
            (Tiles(producer, 0, 0, 0, consumer, 0, 0, 2**63 - 1, (77,), (2,)), far),
            (Tiles(producer, 0, 0, 0, consumer, 0, 0, 2**63 - 1, (0,), (4,)), some_rows()),  # Of another schema.
            (Tiles(producer, 0, 0, 0, consumer, 0, 7, 3, (0,), (0,)), None),
        ]
    attach: list[Any] = [
        Attach(c, r, 0, i, (Want(*w),))
        for c, r, i, w in [(9, 0, 0, (0, 0, 0)), (1, 9, 0, (0, 0, 0)), (1, 0, 5, (0, 0, 0)), (-1, -1, -1, (-1, -1, -1))]
    ]
    safe = [Safe(9, 0, ((0, 1),)), Safe(1, 9, ((0, 1),)), Safe(1, 0, ((99, 1),)), Safe(1, 0, ((0, -5),))]
    ring: list[Any] = [
        Done(7, 0, 0, 0, 1, 0, 5, True),
        Done(0, 2**63, 0, -1, 9, 2**64 - 1, -1, False),
        Gone(7, 0, 1, 0, 0, 5),
        Here(2**64 - 1, -1, -1, ((2**64 - 1, -7),)),
        Here(0, 0, 1, ((99, 1),)),
        Adopt(0, 0, 7, 0, ((0, 1),)),
        Adopt(99, -1, 0, 2**64 - 1, ((2**64 - 1, -1),)),
        Copy(77, 0, 0, 0, None, 5, {"a": [{"b": None}]}),
        Copy(77, 0, 0, 99, -1, -5),
        Settle(77, 0, 0, -1, 5),
        Seek(99, 0, 0, (0, 2**64 - 1), -1),
        Beat(99, 0, 0),
        Down(99, 0, 0),
        control.Respawn(99, 0, 5),
    ]
    strange = [
        control.Directory(()),
        control.Directory((("ipc://x",),) * 5),
        control.Directory(tuple(("nowhere",) * len(op.replicas) for op in plan.operators)),
        control.Hello(2**64 - 1, 0, 1, "ipc://x"),
        control.Hello(0, 0, 1, "no address"),
        control.Stats(-1, 0, 1, 2, 3, 4, 5, 6, 7),
        control.Finished(0, 99),
        control.Failed(99, 0, "defect", "not ours", None),
        control.Died(0, 0, 1, -9, 0),
        control.Spawned(77, 0, 1),
        control.Refused(77, 0, "why"),
    ]
    return [*tiles, *((message, None) for message in [*attach, *safe, *ring, *strange])]


def use_mutated_rows() -> None:
    """Decode every mutation of a body and do to the rows whatever operators may do; then the same with snapshots."""
    body = bytes(encode(TOKEN, MESSAGES[0][0], some_rows())[1])
    accepted = 0
    for mutated in mutations(body):
        try:
            rows = decode_rows(mutated, SCHEMA)
        except Rubbish:
            continue
        accepted += 1
        order = np.arange(len(rows))
        Rows.concat([rows.take(order), rows.slice(0, 2)])
        for column in rows.data.columns:
            column.dictionary_encode()
        for column in rows.data.columns:
            try:
                column.to_pylist()
            except (UnicodeDecodeError, OverflowError):
                continue  # Bytes that are no text, a date beyond all calendars: wrong values, but values.
    for mutated in mutations(bytes(encode(TOKEN, Copy(0, 0, 0, 0, None, 7), some_rows().data)[1])):
        try:
            fold([decode_table(mutated), some_rows().data], forget=True)
        except (Rubbish, pa.ArrowInvalid):
            continue
    print("accepted", accepted)


if __name__ == "__main__":
    use_mutated_rows()
