"""The window: the whole of flow control.

A source emits nothing further than ``rows`` rows and ``bytes`` bytes beyond its ``safe`` cut. Since every slice may
always run up to where the sources stand, that bounds all memory downstream and cannot deadlock: the source that stands
lowest on the line is the one whose rows everybody else is done with, so it always has room.

At least one row may be out at any time, however large: a record bigger than the window passes alone.

How many rows fill a window is only known once they are seen: where they are heavy its bytes run out first. A source
tells everybody downstream, so that nobody's next cut lies beyond (see ``stride``).
"""

from __future__ import annotations

from collections import deque

from dadstorm.core.line import START


class Window:
    def __init__(self, rows: int, bytes_: int, gap: int = 1) -> None:
        """``gap``: about how many seqs there are to a row."""
        self._gap = gap
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
    def stride(self) -> int:
        """The most seqs that may lie between two cuts: half of what the window holds of rows like those that are out,
        for the source goes on with the other half while the cut becomes safe."""
        rows = self.rows_max
        if self.bytes_out * rows > self.bytes_max * self.rows_out:
            rows = self.rows_out * self.bytes_max // self.bytes_out
        return max(1, rows // 2) * self._gap

    @property
    def room(self) -> tuple[int, int]:
        """How many rows and bytes may be emitted now; (0, 0) when the source has to stand still."""
        rows, bytes_ = self.rows_max - self.rows_out, self.bytes_max - self.bytes_out
        return (rows, bytes_) if rows > 0 and bytes_ > 0 else (0, 0)
