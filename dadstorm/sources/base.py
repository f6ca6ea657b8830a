"""What every source offers: records with seqs, in order, resumable at any cut.

A reader serves one slice of a source. The seqs it gives are a pure function of the input (a file's record number, a
journal's entry): the same in every run and for every number of slices. Slices interleave: each covers the whole line
and owns some of the records. ``read`` never blocks for long: a live reader with nothing to say returns what it knows
about the line.

To resume, a reader is made anew with a ``mark`` (small plain data, from ``mark``) and the cut: it reads from a place
at or before the cut and gives out nothing below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dadstorm.core.rows import Rows

Mark = dict[str, Any]
"""Where to start reading again: plain data (ints, strings, lists), msgpack-able."""


@dataclass(frozen=True, slots=True)
class Records:
    """What a read gave: the slice's records from the last ``hi`` up to this one; ``sub`` is all zero."""

    rows: Rows
    hi: int
    """Nothing of this slice lies below ``hi`` any more: END when the input is exhausted."""
    dead: Rows | None = None
    """Dead letters (schema ``DEAD``), under ``on_error: dead-letter``, with the seqs of the records they stand for."""


class Reader(Protocol):
    def read(self, max_rows: int, max_bytes: int) -> Records:
        """Up to about so many more records; possibly none, with a ``hi`` that has or has not moved."""
        ...

    def mark(self, cut: int) -> Mark:
        """From where a new reader can give every record at or above ``cut``; cut is at most the last ``hi``.
        Marks below the newest cut asked for may be forgotten."""
        ...

    def wake_fds(self) -> list[int]:
        """File descriptors that become readable when there is news (live sources); [] for the others."""
        ...

    def drain(self) -> None:
        """Take in nothing new: the next reads give what was already accepted, then END."""
        ...

    def close(self) -> None: ...
