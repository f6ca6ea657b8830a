"""Tiles, and the receiving end of a channel, where they must tile the line.

A tile is a range ``[lo, hi)`` of the line together with all the channel's rows in it. A tile without rows is a flush
tuple: it says that nothing comes below ``hi``. The ``Inlet`` is the receiver's book-keeping for one channel; its ``hi``
is how far the channel is known. It enforces the tiling invariant: what lies below ``hi`` has been received and is
dropped, wherever it comes from; what overlaps is trimmed; a gap is refused and the receiver asks again from ``hi``.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from dadstorm.core.again import Again
from dadstorm.core.audit import Witness
from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows


@dataclass(frozen=True, slots=True)
class Tile:
    lo: int
    hi: int
    rows: Rows
    safe: int = START
    """Below this the producer will never emit anything again."""
    incarnation: int = 0
    """The producer slice's."""
    again: bool = False
    """The rows are repeats, and not all that there is in the range."""
    stride: int = END
    """How far apart the producer bears cuts to be."""


class Verdict(enum.Enum):
    """What an inlet made of a tile."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    GAP = "gap"


@dataclass(slots=True)
class Inlet:
    """The receiving end of one channel: how far it is known, and the rows that were not merged yet."""

    hi: int = START
    waiting: deque[Rows] = field(default_factory=deque)
    asked: int | None = None
    """From where a gap was last asked for: once is enough, for what follows the gap comes again with it."""
    stride: int = END
    """How far apart cuts may be, as the producer told last."""
    heard: bool = False
    """Whether anything has come by this channel since it was attached."""
    gaps_allowed: bool = False
    """At-most-once: what is missing stays missing, the stream goes on around it."""
    witness: Witness | None = None
    """With an audit: remembers what came, and compares what comes again."""

    again: Again | None = None
    """At-least-once: what comes again is taken again."""

    def offer(self, tile: Tile) -> Verdict:
        self.heard = True
        if self.again is not None:
            if tile.again:
                self.again.keep(tile.rows.below(self.hi))
                return Verdict.DUPLICATE
            self.again.offer(tile.incarnation, tile.lo, tile.hi, tile.rows, self.hi)
        if self.witness is not None:
            self.witness.forget(tile.safe)
            self.witness.again(tile.lo, min(tile.hi, self.hi), tile.rows)
        if tile.hi <= self.hi:
            return Verdict.DUPLICATE
        if tile.lo > self.hi and not self.gaps_allowed:
            return Verdict.GAP
        rows = tile.rows.since(self.hi) if tile.lo < self.hi else tile.rows
        if len(rows):
            self.waiting.append(rows)
            if self.witness is not None:
                self.witness.took(rows)
        self.hi = tile.hi
        return Verdict.TAKEN

    def take(self, frontier: int) -> list[Rows]:
        """Remove and return the rows below the frontier, in order."""
        taken: list[Rows] = []
        while self.waiting:
            rows = self.waiting[0]
            if int(rows.seq[-1]) < frontier:
                taken.append(self.waiting.popleft())
                continue
            count = rows.before(frontier)
            if count:
                taken.append(rows.slice(0, count))
                self.waiting[0] = rows.slice(count, len(rows))
            break
        return taken

    @property
    def queued(self) -> int:
        """Rows that wait here for the other channels."""
        return sum(len(rows) for rows in self.waiting)
