"""Parsed rows that wait to be handed out.

A block is parsed at once and given out in pieces of the size that the caller can take. Pieces are cut at seqs: rows
and dead letters of a piece lie below its ``hi``, those of the next at or above it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dadstorm.core.rows import Rows
from dadstorm.sources.base import Records


class Pending:
    def __init__(self, schema: pa.Schema, hi: int) -> None:
        self._none = Rows.empty(schema)
        self._rows = self._none
        self._dead: Rows | None = None
        self._hi = hi
        self.given = hi
        """The ``hi`` of what was handed out last."""

    @property
    def empty(self) -> bool:
        return not len(self._rows) and not self._dead

    def put(self, rows: Rows, dead: Rows | None, hi: int) -> None:
        """The next rows and dead letters, and up to where nothing else comes; only when ``empty``."""
        self._rows, self._dead, self._hi = rows, dead, hi

    def reach(self, hi: int) -> None:
        """Nothing comes below ``hi`` but what already waits."""
        self._hi = hi

    def take(self, max_rows: int, max_bytes: int) -> Records:
        rows, dead, hi = self._rows, self._dead, self._hi
        count = len(rows) + (len(dead) if dead else 0)
        if count and (max_rows <= 0 or max_bytes <= 0):
            return Records(self._none, self.given)
        if count:
            weight = rows.nbytes + (dead.nbytes if dead else 0)
            fit = max(1, min(max_rows, max_bytes * count // max(1, weight)))
            if fit < count:
                seqs = rows.seq if dead is None else np.sort(np.concatenate([rows.seq, dead.seq]))
                hi = int(seqs[fit])
        given = rows.below(hi)
        letters = dead.below(hi) if dead else None
        self._rows = rows.since(hi) if len(given) < len(rows) else self._none
        self._dead = dead.since(hi) if dead and letters is not None and len(letters) < len(dead) else None
        self.given = max(self.given, hi)
        return Records(given, self.given, letters if letters else None)
