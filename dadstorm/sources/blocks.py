"""Blocks: how a file is shared out among slices.

A file's bytes fall into blocks of a fixed size; a record belongs to the block in which it starts, and block b of path
p to slice (p + b) mod slices. Every slice goes over the whole file, counts the records in the others' blocks and
parses its own: so each knows the exact number of every record, without asking anybody, and the number does not depend
on how many slices there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dadstorm.sources.split import NEWLINE, Rules, Split
from dadstorm.sources.window import Window

BLOCK_BYTES = 1 << 20
"""Large enough that Arrow's readers run at full speed, small enough to hold a few in memory."""

SLACK_BYTES = 1 << 14
"""Read beyond a block at once: most often the last record's end is there."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole units that begin in one block, and all of that block's units from the first one on unless one of them is
    overlong."""

    data: bytes
    split: Split
    offset: int
    line: int
    """Of the first byte, counted from 1."""
    block: int

    def line_of(self, record: int) -> int:
        """The physical line on which a record begins."""
        return self.line + self.data.count(b"\n", 0, int(self.split.starts[record]))


class Blocks:
    """One file's chunks, one after the other."""

    def __init__(self, window: Window, rules: Rules, block_bytes: int) -> None:
        self._window = window
        self._rules = rules
        self._block_bytes = block_bytes
        self.line = 1
        if window.peek(3)[:3] == b"\xef\xbb\xbf":
            window.advance(3)

    @property
    def offset(self) -> int:
        return self._window.offset

    def go_to(self, offset: int, line: int) -> None:
        """Go on at the start of a unit further on."""
        self._window.seek(offset)
        self.line = line

    def next(self) -> Chunk | None:
        """The next chunk, None at the end of the file."""
        return self._take(self._block_bytes - self._window.offset % self._block_bytes, SLACK_BYTES)

    def next_unit(self) -> Chunk | None:
        """A chunk of a single unit, for a header."""
        return self._take(1, SLACK_BYTES)

    def _take(self, want: int, slack: int) -> Chunk | None:
        window = self._window
        size = want + slack
        while True:
            data = window.peek(size)
            if not data:
                return None
            split = self._rules.split(data, want, window.ended)
            if split is not None:
                break
            # The last unit begins before ``want``, so a limit's worth of bytes after that is always enough to tell.
            size = min(2 * len(data), want + self._rules.limit + 2)
            assert size > len(data), "the end of a unit must be known once a limit's worth of bytes is there"
        data = data[: split.end]
        chunk = Chunk(data, split, window.offset, self.line, window.offset // self._block_bytes)
        window.advance(split.end)
        self.line += int(np.count_nonzero(np.frombuffer(data, np.uint8) == NEWLINE))
        if split.overlong:
            self.line += window.skip_line()
        return chunk
