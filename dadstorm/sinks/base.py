"""What every sink offers: rows in ID order, committed at cuts.

A sink gets each row once, in ID order. ``commit(cut)`` asks that all rows below the cut become part of the output for
good; the sink may take its time (Spark does), and ``committed`` tells the newest cut that is. What a sink has written
is a pure function of the rows, never of how they were batched or when commits came: two runs leave the same bytes.

Whoever writes splits at the cut: ``write`` the rows below it, ``commit`` it, go on with the rows from it. A sink that
had rows from above the cut already would have to remember where each of them begins.

To resume, a sink is made anew with the ``mark`` of a committed cut and discards whatever it had written beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dadstorm.core.rows import Rows

Mark = dict[str, Any]
"""What a sink needs to go on from a committed cut: plain data, msgpack-able."""


class Sink(Protocol):
    def write(self, rows: Rows, again: bool = False) -> None:
        """Take further rows, in ID order; or rows that have come ``again`` (at-least-once), of any place before."""
        ...

    def commit(self, cut: int) -> None:
        """Begin to make everything below ``cut`` permanent. All rows below it have been written and
        none from it on; END means: complete."""
        ...

    @property
    def committed(self) -> int:
        """The newest cut that is permanent."""
        ...

    def mark(self) -> Mark:
        """How to go on from ``committed``, as that was last told."""
        ...

    def wake_fds(self) -> Sequence[int]:
        """File descriptors that become readable when a commit that was under way is done; reading ``committed`` empties
        them. None for a sink whose commits hold at once."""
        ...

    def close(self) -> None:
        """Let go of files and connections; what is committed stays."""
        ...
