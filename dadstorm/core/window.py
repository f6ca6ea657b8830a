"""The window: the whole of flow control.

A source emits nothing further than ``rows`` rows and ``bytes`` bytes beyond its ``safe`` cut. Since every slice may
always run up to where the sources stand, that bounds all memory downstream and cannot deadlock: the source that stands
lowest on the line is the one whose rows everybody else is done with, so it always has room.

At least one row may be out at any time, however large: a record bigger than the window passes alone.
"""

from __future__ import annotations

from collections import deque

from dadstorm.core.line import START


class Window:
    def __init__(self, rows: int, bytes_: int) -> None:
        self.rows_max = rows
        self.bytes_max = bytes_
        self.rows_out = 0
        self.bytes_out = 0
        self._out: deque[tuple[int, int, int]] = deque()
        self.safe = START

    def emitted(self, hi: int, rows: int, bytes_: int) -> None:
        """So much has gone out, ending below ``hi``."""
        if rows:
            self._out.append((hi, rows, bytes_))
            self.rows_out += rows
            self.bytes_out += bytes_

    def advance(self, safe: int) -> None:
        """What lies below ``safe`` no longer counts. A tile that reaches beyond still counts whole."""
        self.safe = max(self.safe, safe)
        while self._out and self._out[0][0] <= self.safe:
            _, rows, bytes_ = self._out.popleft()
            self.rows_out -= rows
            self.bytes_out -= bytes_

    @property
    def room(self) -> tuple[int, int]:
        """How many rows and bytes may be emitted now; (0, 0) when the source has to stand still."""
        rows, bytes_ = self.rows_max - self.rows_out, self.bytes_max - self.bytes_out
        return (rows, bytes_) if rows > 0 and bytes_ > 0 else (0, 0)
