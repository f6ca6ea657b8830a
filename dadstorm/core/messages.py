"""What replicas say to each other: plain data.

Downstream go ``Tiles``, and ``Done`` now and then; upstream go ``Attach`` ("send me your tiles from here") and
``Safe`` ("I will never need what is below this"). Before a resumed source ends early, ``Reach`` and ``Reached`` pass
between them ("how far have you got?"). Around the ring go ``Copy``, ``Settle`` and ``Held`` (snapshots and
their acknowledgements), ``Seek`` and ``Found`` (a resumed slice asks for its state), ``Here`` (a new incarnation
introduces itself). All are idempotent: a repeated, late or lost one does no harm. Operators and replicas are named by
their index in the plan.

Replicas and slices have incarnations. A replica's grows when it is brought back, a slice's when it is resumed: with it,
or, with ``recovery: spread``, by a peer that adopts it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from dadstorm.core.line import END

PCS = -1
"""In place of a replica's number: the PCS of the host, which holds the snapshots of an operator without peers."""
DISK = -2
"""In place of a replica's number: the owner's own disk, which holds what is settled if the plan is durable."""


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
    other: the first ``counts[0]`` are for ``slices[0]``, and so on. ``replica`` and ``incarnation`` tell where the
    producer slice lives."""

    producer: int
    replica: int
    producer_slice: int
    incarnation: int
    consumer: int
    input: int
    lo: int
    hi: int
    slices: tuple[int, ...]
    counts: tuple[int, ...]
    safe: int = 0
    """With an audit: the producer slice's safe cut. What is below it will not come again."""
    again: bool = False
    """At-least-once: the rows are repeats, not all that there is in the range."""
    stride: int = END
    """How far apart cuts may be: what the windows of the sources upstream bear."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """A producer slice has sent everything below ``hi``: who has not got it asks again. ``still``: a source stands
    still there, so take a snapshot at ``hi``."""

    producer: int
    replica: int
    producer_slice: int
    incarnation: int
    consumer: int
    input: int
    hi: int
    still: bool


class Attach(msgspec.Struct, tag="attach", frozen=True):
    """A consumer's slices, all of this incarnation, are at this replica and want these channels from these seqs on."""

    consumer: int
    replica: int
    incarnation: int
    input: int
    wants: tuple[Want, ...]


class Gone(msgspec.Struct, tag="gone", frozen=True):
    """A producer's answer to an Attach from below ``floor``: what is below it cannot be had any more."""

    producer: int
    producer_slice: int
    consumer: int
    input: int
    slice: int
    floor: int


class Safe(msgspec.Struct, tag="safe", frozen=True):
    """The safe cuts of a consumer's slices: ``(slice, cut)``. A producer may forget what all consumers are safe of."""

    consumer: int
    input: int
    cuts: tuple[tuple[int, int], ...]


class Reach(msgspec.Struct, tag="reach", frozen=True):
    """A producer slice that is to end its stream early asks how far anybody downstream has got of what its earlier
    incarnations have emitted. From then on nothing of those is taken any more."""

    producer: int
    replica: int
    producer_slice: int
    incarnation: int
    consumer: int
    input: int


class Reached(msgspec.Struct, tag="reached", frozen=True):
    """The answer of one slice of the consumer, to this incarnation of the producer slice: so far."""

    producer: int
    producer_slice: int
    incarnation: int
    consumer: int
    input: int
    slice: int
    hi: int


class Here(msgspec.Struct, tag="here", frozen=True):
    """A replica has resumed slices: attach to them, and let it hold copies. ``slices``: each with its incarnation."""

    operator: int
    replica: int
    incarnation: int
    slices: tuple[tuple[int, int], ...] = ()


class Copy(msgspec.Struct, tag="copy", frozen=True):
    """A snapshot of a slice at ``cut``, as a delta on the one at ``after``, or whole (None). The body is its table."""

    operator: int
    slice: int
    incarnation: int
    replica: int
    after: int | None
    cut: int
    mark: dict[str, Any] | None = None


class Settle(msgspec.Struct, tag="settle", frozen=True):
    """The slice will never be resumed below ``cut``."""

    operator: int
    slice: int
    incarnation: int
    replica: int
    cut: int


class Held(msgspec.Struct, tag="held", frozen=True):
    """A holder's answer: what it has of a slice. ``incarnation`` is the slice's that it knows, ``holder`` and
    ``holder_incarnation`` say who answers; ``cut`` is -1 if it has nothing."""

    operator: int
    slice: int
    incarnation: int
    holder: int
    holder_incarnation: int
    cut: int
    settled: int


class Seek(msgspec.Struct, tag="seek", frozen=True):
    """A replica asks a holder for slices that it is to resume, in this incarnation of theirs; it is itself of the
    incarnation ``reborn``."""

    operator: int
    replica: int
    incarnation: int
    slices: tuple[int, ...]
    reborn: int


class Found(msgspec.Struct, tag="found", frozen=True):
    """A holder's answer to the incarnation ``sought`` of a slice: its settled snapshot, of this earlier incarnation;
    ``cut`` is -1 if it has none. Body: its table."""

    operator: int
    slice: int
    sought: int
    incarnation: int
    holder: int
    cut: int
    mark: dict[str, Any] | None = None
    holder_incarnation: int = 0


class Beat(msgspec.Struct, tag="beat", frozen=True):
    """To the ring, now and then: alive."""

    operator: int
    replica: int
    incarnation: int


class Down(msgspec.Struct, tag="down", frozen=True):
    """To the ring, from a PCS: this incarnation of a replica has ended."""

    operator: int
    replica: int
    incarnation: int


class Adopt(msgspec.Struct, tag="adopt", frozen=True):
    """To a living replica, from a PCS: this incarnation of ``lost`` has ended; resume these (slice, incarnation) of
    its slices."""

    operator: int
    replica: int
    lost: int
    lost_incarnation: int
    slices: tuple[tuple[int, int], ...]


Flow = Tiles | Done | Attach | Gone | Safe | Here | Reach | Reached
Message = Flow | Copy | Settle | Held | Seek | Found | Beat | Down | Adopt
