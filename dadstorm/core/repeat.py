"""Saying it again, ever more rarely.

Messages may be lost, so what matters is said again on ticks until something shows that it was heard. But a message
that is merely slow must not be followed by a flood of copies of it: the more so on a machine that is already too busy.
So things are repeated at growing distances while nothing changes, and at once when something does.
"""

from __future__ import annotations

RARELY = 16
"""The largest distance, in ticks: what was lost again and again is still said now and then."""


def spaced(age: int) -> bool:
    """Whether to say something again that has been the same for ``age`` ticks: after 1, 2, 4, 8, 16, 32, 48…"""
    return age > 0 and (age % RARELY == 0 or age & (age - 1) == 0)


class Age:
    """For how many ticks a value has been the same."""

    def __init__(self) -> None:
        self._value: object = None
        self._ticks = 0

    def tick(self, value: object) -> int:
        self._ticks = self._ticks + 1 if value == self._value else 0
        self._value = value
        return self._ticks
