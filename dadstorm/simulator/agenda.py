"""Simulated time: what is to happen when.

Nothing waits and nothing polls: the clock jumps from one event to the next, so that quiet times cost nothing. Events of
one moment happen in the order in which they were noted down, so a run depends on its seed alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Agenda:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.events = 0
        """How many events there have been."""
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._noted = 0

    def at(self, when_ms: float, what: Callable[[], None]) -> None:
        self._noted += 1
        heapq.heappush(self._waiting, (when_ms, self._noted, what))

    def after(self, delay_ms: float, what: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, what)

    def step(self) -> None:
        """Let the next event happen. There always is one: clocks never stop ticking."""
        self.now_ms, _, what = heapq.heappop(self._waiting)
        self.events += 1
        what()
