"""The user stops the run: sources end where they stand, and what is under way comes out.

Nobody hears of it at the same moment; who is brought back afterwards hears of it soon. Where a slice of a source ends
is not told by its records, so every incarnation must end it at the same place; and then the output is what follows
from the records below those places.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator, Plan
from dadstorm.simulator.disk import Wrong, owners
from dadstorm.simulator.process import NEVER

HEARD_MS = 60.0
"""How long it takes at most until a process hears of it."""


class Stop:
    def __init__(self, at_ms: float) -> None:
        self._at_ms = at_ms
        self._ends: dict[tuple[str, int], int] = {}
        """Where slices of sources ended, other than with their records."""

    @property
    def will_be(self) -> bool:
        return self._at_ms < NEVER

    def heard_ms(self, now_ms: float, chance: random.Random) -> float:
        """When a process that begins now hears of it."""
        return max(now_ms, self._at_ms) + chance.random() * HEARD_MS if self.will_be else NEVER

    def ended(self, source: str, slice_index: int, place: int) -> None:
        before = self._ends.setdefault((source, slice_index), place)
        if before != place:
            raise Wrong(f"slice {slice_index} of {source} ends at {place}, and ended at {before} before")

    def has_ended(self, source: str, slice_index: int) -> bool:
        """Whether a slice has ended because of it: that is something to be lost, even if nothing was read."""
        return (source, slice_index) in self._ends

    def read(self, plan: Plan, records: Mapping[str, Rows]) -> dict[str, Rows]:
        """The records that came in before their slices ended."""
        return {name: self._read(plan[name], rows) for name, rows in records.items()}

    def _read(self, source: Operator, rows: Rows) -> Rows:
        ends = np.array([self._ends.get((source.name, index), END) for index in range(source.slices)])
        return rows.take(np.flatnonzero(rows.seq < ends[owners(rows, source.slices)]))
