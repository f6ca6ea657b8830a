"""How fast a replica may go: frozen or not, and how long it sleeps between two consecutive tuples.

Nothing here waits: the replica asks how many rows it may take now, tells when it has taken some, and learns when to ask
again. So a replica that is slow or frozen still receives, beats and holds copies like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

FEW_ROWS = 512
"""A source that gives fewer than it was asked for, and than this, trickles."""
POLL_SOURCE_MS = 1.0
"""How soon, at the soonest, to look again at a source that trickles and has no file descriptor to wait for."""
POLL_SOURCE_MS_MAX = 10.0
POLL_SHARE = 4


def pause_ms(took_ms: float) -> float:
    """When to look again at a source that trickles: after some times what the last look took. Small tiles cost as much
    as large ones, and with many consumers all the more."""
    return min(POLL_SOURCE_MS_MAX, max(POLL_SOURCE_MS, POLL_SHARE * took_ms))


@dataclass(slots=True)
class Pace:
    interval_ms: int = 0
    frozen: bool = False
    _next_ms: float = 0.0

    def set_interval(self, ms: int) -> None:
        """Sleep so long between two tuples from now on; 0 ends it at once."""
        self.interval_ms = ms
        self._next_ms = 0.0

    def allowed(self, rows: int, now_ms: float) -> int:
        """How many of these rows may be taken now."""
        if self.frozen or now_ms < self._next_ms:
            return 0
        return 1 if self.interval_ms else rows

    def took(self, now_ms: float) -> None:
        """A tuple was taken."""
        self._next_ms = now_ms + self.interval_ms

    def wait_ms(self, now_ms: float) -> float:
        """How long nothing may be taken, as far as is known; a frozen replica is told when that ends."""
        return float("inf") if self.frozen else max(0.0, self._next_ms - now_ms)
