"""At-least-once: what is done again is taken again.

Nothing is lost: state is kept and tiles are sent until they are safe, exactly as under exactly-once. The difference is
what happens when a producer slice has been resumed and emits again what its predecessor emitted: exactly-once drops
it, at-least-once processes it a second time. Such *repeats* come out of order, so they pass beside the merge: after the
rows that the line has brought up to there, through the kernel, and on as tiles that say of themselves that they are
repeats and move no frontier. A copy that the network made of a message is no repeat: that is told by the slice's
incarnation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dadstorm.core.rows import Rows


@dataclass(slots=True)
class Again:
    """The repeats of one channel."""

    waiting: deque[Rows] = field(default_factory=deque)
    _incarnation: int | None = None
    """The producer slice's highest that was heard of."""
    _lo: int = 0
    _hi: int = 0
    """What it has still to repeat: ``[lo, hi)``."""

    def offer(self, incarnation: int, lo: int, hi: int, rows: Rows, known: int) -> None:
        """A tile has come; the channel is known up to ``known``. Keep what a new incarnation repeats of that."""
        if self._incarnation is None or incarnation > self._incarnation:
            # The first one we hear of repeats nothing: what is known at first is in our snapshot.
            self._lo, self._hi = (lo, known) if self._incarnation is not None else (known, known)
            self._incarnation = incarnation
        stop = min(hi, self._hi)
        if incarnation == self._incarnation and lo <= self._lo < stop:
            self.keep(rows.since(self._lo).below(stop))
            self._lo = stop

    def keep(self, rows: Rows) -> None:
        if len(rows):
            self.waiting.append(rows)

    def ready(self, done: int) -> bool:
        """Whether there are repeats of what is done already."""
        return bool(self.waiting) and int(self.waiting[0].seq[-1]) < done
