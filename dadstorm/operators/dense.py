"""Dense: the slots of whole numbers that lie close together, in a table with a place for every number of their range.

Numbers of users, items or stations often do. Then nothing has to be hashed or compared: a number's place is its
distance from the least one, and a batch takes a handful of array operations, however small it is and however many keys
there are. A place takes four bytes, so the table is no larger than what hashing would take as long as the numbers are
not much further apart than the constants here say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadstorm.core.line import Ints

_WIDTH = 1 << 14
"""A range so wide may be as sparse as it likes."""
_CLOSE, _SPARSE = 8, 16
"""Beyond that: so many numbers of the range for each key make a table worth while, and so many are too many."""
LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Of all whole numbers that a field holds."""


def close(width: int, keys: int) -> bool:
    """Whether so many keys in a range of this width are worth a table."""
    return width <= max(_WIDTH, _CLOSE * keys)


def sparse(width: int, keys: int) -> bool:
    """Whether a table is too large for so many keys."""
    return width > max(_WIDTH, _SPARSE * keys)


class Dense:
    def __init__(self, values: Ints) -> None:
        """``values``: those that have slots already, by slot."""
        self._least = int(values.min()) if len(values) else 0
        width = int(values.max()) - self._least + 1 if len(values) else 0
        self._slots: NDArray[np.int32] = np.zeros(width, dtype=np.int32)
        """For each number from the least on its slot, plus one; 0: none yet."""
        self._slots[values - self._least] = np.arange(1, len(values) + 1)

    def cover(self, least: int, most: int) -> None:
        """Make room for numbers from ``least`` to ``most``; for half as much again where it was missing, so that this
        is not done with every batch."""
        start, end = self._least, self._least + len(self._slots)
        if not len(self._slots):
            start, end = least, most + 1
        extra = (max(end, most + 1) - min(start, least)) // 2
        if least < start:
            start = max(least - extra, LEAST)
        if most >= end:
            end = min(most + extra, MOST) + 1
        if end - start > len(self._slots):
            slots = np.zeros(end - start, dtype=np.int32)
            slots[self._least - start :][: len(self._slots)] = self._slots
            self._least, self._slots = start, slots

    def find(self, values: Ints, size: int) -> tuple[Ints, Ints]:
        """The slot of each of some values that there is room for, and the first row of each new one: these get the
        slots from ``size`` on, in the order of their rows."""
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
