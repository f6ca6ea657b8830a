"""How many rows a second a replica takes and gives, over the last few seconds, from what it reports now and then."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SPAN_S = 3.0
"""Over how long rates are taken: long enough to be steady, short enough to see what a command did."""


@dataclass(slots=True)
class Rates:
    _reports: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, now: float, rows_in: int, rows_out: int) -> None:
        """A report; one with fewer rows than the last comes from a new incarnation, which counts anew."""
        if self._reports and rows_in < self._reports[-1][1]:
            self._reports.clear()
        self._reports.append((now, rows_in, rows_out))
        while len(self._reports) > 2 and self._reports[1][0] < now - SPAN_S:
            self._reports.popleft()

    @property
    def per_second(self) -> tuple[float, float]:
        """Rows in and rows out."""
        if len(self._reports) < 2:
            return 0.0, 0.0
        (begun, first_in, first_out), (ended, last_in, last_out) = self._reports[0], self._reports[-1]
        seconds = max(ended - begun, 1e-9)
        return (last_in - first_in) / seconds, (last_out - first_out) / seconds
