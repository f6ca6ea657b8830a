"""How long a recovery took, step by step, as the new incarnation and its PCS can tell.

*Detected*: from the death (of one that hung, or whose host is lost: from its last sign of life) until the PCS was to
bring it back. *Spawned*: until the new process ran. *Restored*: until it had its snapshots. *Replayed*: until its
slices stood where their predecessors stood, which is where their consumers have got to; the next output is new. All
times are of one host, whose clock its processes share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from dadstorm.core.messages import Peer
from dadstorm.core.slice import Slice
from dadstorm.wire import control


class Stopwatch:
    """Runs from when the process does."""

    def __init__(self, me: Peer, incarnation: int, resume: control.Resume | None) -> None:
        self._me = me
        self._incarnation = incarnation
        self._resume = resume
        self._born_ms = now_ms()
        self._restored_ms: float | None = None

    def look(self, resumed: bool, slices: Iterable[Slice]) -> control.Recovered | None:
        """The times, once and when they are known."""
        if self._resume is None or not resumed:
            return None
        now = now_ms()
        if self._restored_ms is None:
            self._restored_ms = now
        if not all(outlet.attached and one.done >= outlet.owed for one in slices for outlet in one.outlets):
            return None
        resume, self._resume = self._resume, None
        return control.Recovered(
            *self._me,
            self._incarnation,
            detected_ms=resume.detected_ms,
            spawned_ms=max(0.0, self._born_ms - resume.asked_ms),
            restored_ms=self._restored_ms - self._born_ms,
            replayed_ms=now - self._restored_ms,
        )


def now_ms() -> float:
    return time.monotonic() * 1000
