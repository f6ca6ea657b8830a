"""Where two outputs of a sink first differ: text by its lines, Parquet by its rows, Spark's tables by their epochs.

Both are read in large pieces, side by side, and only the piece that differs is looked at more closely. What is shown of
a line is what lies around the first difference: lines may be long.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dadstorm.core.hashing import hash_columns
from dadstorm.errors import UserError, printable
from dadstorm.spark.commits import epochs
from dadstorm.spark.table import Table

PIECE_BYTES = 1 << 20
BATCH_ROWS = 1 << 16
LINE_BYTES_MAX = 1 << 26
SHOWN = 160
"""How many characters of a line are shown."""
BEFORE = 60
"""How many of them stand before the first difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two outputs differ, and what stands there in each; None: it has ended before."""

    place: str
    first: str | None
    second: str | None


def compare(form: str, one: str, other: str) -> Difference | None:
    """The first difference between two outputs of one format. Raises UserError if one cannot be read."""
    try:
        if form == "spark":
            return _tables(one, other)
        return _parquet(one, other) if form == "parquet" else _text(one, other)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"cannot compare {one} with {other}: {error}") from None


def _tables(one: str, other: str) -> Difference | None:
    """The first epoch that differs between the manifests of two tables; their commits may end at different places."""
    first, second = (epochs(Table(path).commits()) for path in (one, other))
    for epoch in sorted(first.keys() | second.keys()):
        a, b = first.get(epoch), second.get(epoch)
        if a != b:
            shown = [None if found is None else f"{found[0]} rows, digest {found[1]:016x}" for found in (a, b)]
            return Difference(f"epoch {epoch}", *shown)
    return None


def _text(one: str, other: str) -> Difference | None:
    line = start = offset = 0
    """Lines that ended so far; where the line under way begins; how far both files are the same."""
    with open(one, "rb") as first, open(other, "rb") as second:
        while True:
            a, b = first.read(PIECE_BYTES), second.read(PIECE_BYTES)
            same = a if a == b else a[: _common(a, b)]
            line += same.count(b"\n")
            if b"\n" in same:
                start = offset + same.rindex(b"\n") + 1
            offset += len(same)
            if a != b:
                break
            if not a:
                return None
        lines: list[str | None] = []
        for file in (first, second):
            file.seek(start)
            found = file.readline(LINE_BYTES_MAX)
            lines.append(_around(found, offset - start) if found else None)
    return Difference(f"line {line + 1}", *lines)


def _common(a: bytes, b: bytes) -> int:
    """How many bytes two different pieces have in common at their beginning."""
    both = min(len(a), len(b))
    unequal = np.frombuffer(a, np.uint8, both) != np.frombuffer(b, np.uint8, both)
    return int(unequal.argmax()) if unequal.any() else both


def _around(line: bytes, at: int) -> str:
    """A line as it is shown: whole if it is short, else what lies around a byte of it."""
    text = line.rstrip(b"\r\n")
    start = max(0, at - BEFORE) if len(text) > SHOWN else 0
    piece = text[start : start + SHOWN].decode("utf-8", "replace")
    return printable(f"{'…' if start else ''}{piece}{'…' if start + SHOWN < len(text) else ''}")


def _parquet(one: str, other: str) -> Difference | None:
    first, second = _Batches(one), _Batches(other)
    place = 0
    while True:
        a, b = first.next(), second.next()
        if a is None or b is None:
            rest = a or b
            if rest is None:
                return None
            text = _row(rest, 0)
            return Difference(f"row {place + 1}", text if a else None, text if b else None)
        if a.schema.names != b.schema.names or a.schema.types != b.schema.types:
            return Difference("the fields", _fields(a), _fields(b))
        both = min(a.num_rows, b.num_rows)
        unequal = _hashes(a.slice(0, both)) != _hashes(b.slice(0, both))
        if unequal.any():
            row = int(unequal.argmax())
            return Difference(f"row {place + row + 1}", _row(a, row), _row(b, row))
        place += both
        first.rest(a.slice(both))
        second.rest(b.slice(both))


class _Batches:
    """The rows of a folder of Parquet files, in order; what was not used of a batch comes again."""

    def __init__(self, folder: str) -> None:
        self._batches = self._read(folder)
        self._rest: pa.RecordBatch | None = None

    @staticmethod
    def _read(folder: str) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq  # Takes long to load, and most outputs are text.

        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "part-*.parquet"))):
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(BATCH_ROWS)

    def rest(self, batch: pa.RecordBatch) -> None:
        self._rest = batch if batch.num_rows else None

    def next(self) -> pa.RecordBatch | None:
        if self._rest is not None:
            return self._rest
        return next((batch for batch in self._batches if batch.num_rows), None)


def _hashes(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return hash_columns(batch.columns, 0, exact=True)


def _fields(batch: pa.RecordBatch) -> str:
    return printable(", ".join(f"{field.name} {field.type}" for field in batch.schema))


def _row(batch: pa.RecordBatch, row: int) -> str:
    values = [column[row].as_py() for column in batch.columns]
    text = ", ".join(repr(value) if isinstance(value, str) else str(value) for value in values)
    return printable(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")
