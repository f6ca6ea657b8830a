"""Tuples as lines of the event log: ``tuple tcp://HOST:PORT/op, <f1, f2>``.

Only with ``logging: full``, which costs what it costs: every tuple becomes text. Lines are gathered and leave in
batches. A line stays one line whatever the tuple holds: line ends and other control characters are written as escapes.
"""

from __future__ import annotations

from itertools import takewhile

import pyarrow as pa

from dadstorm.core.rows import Rows

BATCH_BYTES = 1 << 18
"""A batch that has so much text leaves without waiting for more."""

_ESCAPES = {code: repr(chr(code))[1:-1] for code in [*range(32), *range(127, 160), 0x2028, 0x2029]}


class EmittedLines:
    """The lines of one replica that have not left yet."""

    def __init__(self, address: str, *, ragged: bool = False) -> None:
        self._head = f"tuple {address}/op, <" if address.startswith("tcp://") else f"tuple {address}, <"
        self._ragged = ragged
        self._lines: list[str] = []
        self._bytes = 0

    def add(self, rows: Rows) -> None:
        """Tuples that were emitted, in order."""
        columns = [texts(column) for column in rows.data.columns]
        for row in zip(*columns, strict=True):
            there = takewhile(lambda field: field is not None, row) if self._ragged else row
            line = f"{self._head}{', '.join(field or '' for field in there)}>".translate(_ESCAPES)
            self._lines.append(line)
            self._bytes += len(line)

    @property
    def full(self) -> bool:
        return self._bytes >= BATCH_BYTES

    def take(self) -> str:
        """What has gathered, a line each; nothing if there is nothing."""
        text = "\n".join(self._lines)
        self._lines.clear()
        self._bytes = 0
        return text


def texts(column: pa.Array) -> list[str | None]:
    """A column's values as the log shows them."""
    found: list[str | None] = column.cast(pa.string()).to_pylist()
    return found
