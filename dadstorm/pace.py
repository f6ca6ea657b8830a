"""How fast a replica goes: frozen or not, how long it sleeps between two tuples, how much it does in one step, how soon
it looks again at a source that trickles.

Nothing here waits: the replica asks how many rows it may take now, tells when it has taken some, and learns when to ask
again. So a replica that is slow or frozen still receives, beats and holds copies like any other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

STEP_ROWS_FIRST = 2048
"""Not too many, for a user's function may be slow; doubled from step to step while steps are short."""
STEP_ROWS_MAX = 1 << 17
STEP_MS_GOAL = 20.0
"""A step should not take longer than this, so that messages are answered; its rows are adapted to it."""
FEW_ROWS = 512
"""A source that gives fewer than it was asked for, and than this, trickles."""
REST_MS_MIN = 2.0
REST_MS_MAX = 20.0
REST_SHARE = 2
LATE_SHARE = 2


@dataclass(slots=True)
class Steps:
    """How many rows to take in one step."""

    rows: int = STEP_ROWS_FIRST

    def took(self, ms: float) -> None:
        """The last step took so long."""
        if ms > 2 * STEP_MS_GOAL:
            self.rows = max(1, self.rows // 2)
        elif ms < STEP_MS_GOAL / 2:
            self.rows = min(STEP_ROWS_MAX, self.rows * 2)


@dataclass(slots=True)
class Rest:
    """When to look again at a source: after some times what the last look took, if it trickles. Small tiles cost as
    much as large ones, here and at every operator downstream; a source that took every line by itself would drown them.
    Who is woken late shares a busy machine, most likely with those operators, and rests longer.

    A source that has file descriptors is then looked at when one of them wakes us. If none does, it is looked at for
    a flush: to learn how far it has come without giving anything."""

    flush_ms: float
    _until_ms: float = 0.0
    _late_ms: float | None = 0.0
    """How late the end of the rest was noticed."""
    _flush_ms: float = 0.0

    def looked(self, begun_ms: float, now_ms: float, *, more: bool) -> None:
        """It was looked at; ``more``: it has more to give right away."""
        rest = max(REST_MS_MIN, REST_SHARE * (now_ms - begun_ms), LATE_SHARE * (self._late_ms or 0.0))
        self._until_ms = 0.0 if more else now_ms + min(REST_MS_MAX, rest)
        self._late_ms = 0.0 if more else None
        self._flush_ms = now_ms + self.flush_ms

    def over(self, now_ms: float) -> bool:
        """Whether a file descriptor may wake us; to be asked in every turn."""
        if now_ms < self._until_ms:
            return False
        if self._late_ms is None:
            self._late_ms = now_ms - self._until_ms
        return True

    def due(self, now_ms: float, fds: Collection[int], woke: Collection[int]) -> bool:
        """Whether to look now; ``woke`` are the file descriptors that did."""
        return self.over(now_ms) and (not fds or now_ms >= self._flush_ms or any(fd in woke for fd in fds))

    def left_ms(self, now_ms: float, fds: Collection[int]) -> float:
        """How long to wait for the next look, or for a file descriptor."""
        until = self._until_ms if now_ms < self._until_ms or not fds else self._flush_ms
        return max(0.0, until - now_ms)


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
