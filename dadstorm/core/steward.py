"""The steward: the host's PCS as the holder of copies for a replica that has no peers to hold them.

A PCS that was killed has lost the copies; the one that takes its place is another incarnation of the holder, and gets
them anew. As long as there is none, ``safe`` stands still, and with it, once its window is full, the stream. After some
patience the replica goes on without a copy: if it dies before a PCS is back, its state is lost.
"""

from __future__ import annotations

import math

PATIENCE = 10
"""How many times ``suspect_after`` to wait for a PCS that may come back."""


class Steward:
    def __init__(self) -> None:
        self.incarnation = 0
        self.patience_ms = math.inf
        """How long to wait for a PCS that is silent; by default for ever."""
        self.gone = False
        self._heard_ms: float | None = None

    def heard(self, incarnation: int, now_ms: float) -> bool:
        """A sign of life. True if it changes who holds copies."""
        if incarnation < self.incarnation:
            return False
        news = self.gone or incarnation > self.incarnation
        self.incarnation, self.gone, self._heard_ms = incarnation, False, now_ms
        return news

    def tick(self, now_ms: float) -> bool:
        """Time passes. True if our patience has just ended."""
        if self._heard_ms is None:
            self._heard_ms = now_ms
        if self.gone or now_ms - self._heard_ms <= self.patience_ms:
            return False
        self.gone = True
        return True
