"""Parcels: what travels between the stages of a step and to the driver, as elements of Spark's RDDs.

A parcel is addressed to a stage, and in it to an operator, an input and a slice. Most carry a tile: rows in ID order,
as they go over the wire. The others are for the driver: where a reader stands, which files hold a slice's state,
digests, and that something failed. A step has few parcels, each large and just bytes to Spark: so what it does per
element costs next to nothing, and rows are columns all the way.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from dadstorm.core.rows import Rows
from dadstorm.wire.bodies import decode_rows, encode_rows

TILE_BYTES_MAX = 16 << 20
"""A tile heavier than this is cut up where it has several rows."""
Sent = tuple[int, tuple[int, int, int, int, int, int, bytes]]
"""A parcel as Spark sees it: a key and plain data."""

class Kind(enum.IntEnum):
    TILE = 0
    READ = 1
    STATE = 2
    DIGESTS = 3
    FAILED = 4
    WEIGHT = 5


@dataclass(frozen=True, slots=True)
class Parcel:
    part: int
    """The partition of the next stage that it goes to."""
    stage: int
    """Where it is opened; stages before that pass it on."""
    kind: Kind
    operator: int
    input: int
    slice: int
    count: int
    """How many rows it stands for; of a WEIGHT, how many bytes its task took in."""
    payload: bytes

    def rows(self, schema: pa.Schema) -> Rows:
        return decode_rows(self.payload, schema)

    def plain(self, kind: type[Any]) -> Any:
        """What a parcel for the driver says."""
        return msgspec.msgpack.decode(self.payload, type=kind)


def tiles(part: int, stage: int, operator: int, input_index: int, slice_index: int, rows: Rows) -> Iterator[Parcel]:
    """Rows, as parcels of handy size."""
    if rows.nbytes > TILE_BYTES_MAX and len(rows) > 1:
        half = len(rows) // 2
        for piece in (rows.slice(0, half), rows.slice(half, len(rows))):
            yield from tiles(part, stage, operator, input_index, slice_index, piece)
        return
    yield Parcel(part, stage, Kind.TILE, operator, input_index, slice_index, len(rows), encode_rows(rows).to_pybytes())


def to_driver(stage: int, kind: Kind, operator: int, slice_index: int, told: Any, count: int = 0) -> Parcel:
    """A word to the driver; ``stage`` is its number."""
    return Parcel(0, stage, kind, operator, 0, slice_index, count, msgspec.msgpack.encode(told))


def sent(parcels: Iterable[Parcel]) -> Iterator[Sent]:
    """As Spark moves them: by the partition that they go to."""
    for one in parcels:
        yield one.part, (one.stage, int(one.kind), one.operator, one.input, one.slice, one.count, one.payload)


def received(items: Iterable[Sent]) -> Iterator[Parcel]:
    for part, (stage, kind, operator, input_index, slice_index, count, payload) in items:
        yield Parcel(part, stage, Kind(kind), operator, input_index, slice_index, count, payload)
