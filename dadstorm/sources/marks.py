"""Places from which reading can go on, by seq."""

from __future__ import annotations

from bisect import bisect_right

from dadstorm.sources.base import Mark

MARKS_MAX = 4096
"""Where nobody asks for marks, every second one is forgotten when there are so many: a resume then reads a little
more."""


class Marks:
    """Marks in order of seq: at each, everything at or above its seq is still to come."""

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._marks: list[Mark] = []

    def add(self, seq: int, mark: Mark) -> None:
        if self._seqs and self._seqs[-1] == seq:
            self._marks[-1] = mark
            return
        if len(self._seqs) >= MARKS_MAX:
            del self._seqs[1::2], self._marks[1::2]
        self._seqs.append(seq)
        self._marks.append(mark)

    def at(self, cut: int) -> Mark:
        """The last mark at or below the cut; those before it are forgotten."""
        place = max(0, bisect_right(self._seqs, cut) - 1)
        del self._seqs[:place], self._marks[:place]
        return dict(self._marks[0])
