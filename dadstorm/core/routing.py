"""Routing: which slice of the consumer gets a row.

A pure function of the row and its ID: never of time, of the producer's slice or of how rows were batched. ``primary``
sends all to slice 0; ``hashing`` goes by the key's value, so that equal keys meet; ``random`` is a seeded function of
the ID. Where an operator has keyed state the compiler has already replaced the user's policy by hashing on that key.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dadstorm.core.hashing import hash_columns, hash_ids, slice_of
from dadstorm.core.line import Ints
from dadstorm.core.rows import Rows


class Router:
    """Spreads an operator's input over its slices."""

    def __init__(
        self, policy: Literal["primary", "random", "hashing"], key: tuple[int, ...], slices: int, seed: int
    ) -> None:
        self._policy = policy if slices > 1 else "primary"
        self._key = key
        self._seed = seed
        self.slices = slices

    def partition(self, rows: Rows) -> tuple[Rows, Ints]:
        """The rows grouped by slice, ID order kept within each, and the offsets of the groups (slices + 1 of them)."""
        count = len(rows)
        if count == 0 or self._policy == "primary":
            offsets = np.full(self.slices + 1, count, dtype=np.int64)
            offsets[0] = 0
            return rows, offsets
        if self._policy == "random":
            hashes = hash_ids(rows.seq, rows.sub, self._seed)
        else:
            hashes = hash_columns([rows.data.column(index) for index in self._key], 0)
        slices = slice_of(hashes, self.slices)
        counts = np.bincount(slices, minlength=self.slices)
        offsets = np.zeros(self.slices + 1, dtype=np.int64)
        counts.cumsum(out=offsets[1:])
        if counts[slices[0]] == count:
            return rows, offsets
        # Of so small numbers NumPy's stable sort is a radix sort.
        narrow = np.uint8 if self.slices <= 1 << 8 else np.uint16
        return rows.take(slices.astype(narrow).argsort(kind="stable")), offsets
