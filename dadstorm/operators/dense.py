"""Dense: the slots of whole numbers that lie close together, in a table with a place for every number of their range.

Numbers of users, items or stations often do. Then nothing has to be hashed or compared: a number's place is its
distance from the least one, and a batch takes a handful of array operations, however small it is and however many keys
there are. Places that nobody uses cost little, for memory that was never written to is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadstorm.core.line import Ints

_WIDTH = 1 << 20
"""A range so wide may be as sparse as it likes; a place takes four bytes."""
_SPARSE = 16
"""So many places for each key at most, beyond that; many, since the slices of an operator share a range."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Dense:
    def __init__(self) -> None:
        self._least = 0
        self._slots: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """For each number from the least on its slot, plus one; 0: none yet."""
        self._range = (_MOST, _LEAST)
        """The least and the greatest number that there have been."""

    def covers(self, values: Ints, size: int) -> bool:
        """Whether these values have their places, or could be given them; there are ``size`` keys."""
        if not len(values):
            return True
        least, most = min(int(values.min()), self._range[0]), max(int(values.max()), self._range[1])
        if most - least >= max(_WIDTH, _SPARSE * (size + len(values))):
            return False
        if least < self._least or most >= self._least + len(self._slots):
            self._widen(least, most)
        self._range = (least, most)
        return True

    def _widen(self, least: int, most: int) -> None:
        """Room for this range, and as much again on the side where it was missing, so that this is seldom done."""
        width = most - least + 1
        slots = np.zeros(width if self._range[0] > self._range[1] else 2 * width, dtype=np.int32)
        start = max(least - (len(slots) - width), _LEAST) if least < self._least else least
        if len(self._slots):
            first, last = self._range
            slots[first - start : last + 1 - start] = self._slots[first - self._least : last + 1 - self._least]
        self._least, self._slots = start, slots

    def find(self, values: Ints, size: int) -> tuple[Ints, Ints]:
        """The slot of each of some values that are covered, and the first row of each new one: these get the slots from
        ``size`` on, in the order of their rows."""
        at = values - self._least
        slots = self._slots[at]
        fresh = (slots == 0).nonzero()[0]
        if not len(fresh):
            return slots.astype(np.int64) - 1, fresh
        places = at[fresh]
        numbers = np.arange(1, len(fresh) + 1, dtype=np.int32)
        # Of several values assigned to one place NumPy keeps the last: here the first row, as the rows go backwards.
        self._slots[places[::-1]] = numbers[::-1]
        first = fresh[self._slots[places] == numbers]
        self._slots[at[first]] = np.arange(size + 1, size + 1 + len(first))
        slots[fresh] = self._slots[places]
        return slots.astype(np.int64) - 1, first
