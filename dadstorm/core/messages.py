"""What replicas say to each other: plain data, three messages.

Downstream go ``Tiles``; upstream go ``Attach`` ("send me your tiles from here") and ``Safe`` ("I will never need what
is below this"). All are idempotent, so that a repeated or late one does no harm. Operators and replicas are named by their index in the
plan.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Peer(NamedTuple):
    """A replica: the index of its operator in the plan, and its place in that operator's ring."""

    operator: int
    replica: int


class Want(NamedTuple):
    """A channel (producer slice → consumer slice) and the seq from which its tiles are wanted."""

    producer_slice: int
    consumer_slice: int
    lo: int


class Tiles(msgspec.Struct, tag="tiles", frozen=True):
    """Tiles ``[lo, hi)`` of one producer slice for some slices of one consumer. The body holds their rows one after the
    other: the first ``counts[0]`` are for ``slices[0]``, and so on."""

    producer: int
    producer_slice: int
    consumer: int
    input: int
    lo: int
    hi: int
    slices: tuple[int, ...]
    counts: tuple[int, ...]


class Attach(msgspec.Struct, tag="attach", frozen=True):
    """A consumer's slices are at this replica now and want these channels from these seqs on."""

    consumer: int
    replica: int
    input: int
    wants: tuple[Want, ...]


class Safe(msgspec.Struct, tag="safe", frozen=True):
    """The safe cuts of a consumer's slices: ``(slice, cut)``. A producer may forget what all consumers are safe of."""

    consumer: int
    input: int
    cuts: tuple[tuple[int, int], ...]


Message = Tiles | Attach | Safe
