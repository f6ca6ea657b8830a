"""The micro-batches of a stream that Spark reads for a source, as folders that appear whole.

    DIR/0000000007/part-00000-….parquet      the rows of micro-batch 7
    DIR/0000000007/batch.json                its files, and how many rows each has

Spark may do a batch again: after a crash it does the last one that it had not noted as done. One that is there already
is left as it is, so each counts once. Batches come one after the other; who reads goes through them in order, and
remembers by a ``Reference`` how far.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dadstorm.sinks.disk import ensure_folder, sync_folder
from dadstorm.sources.journal import Reference
from dadstorm.spark.table import sync_tree

RECORD = "batch.json"
PIECE_ROWS = 1 << 15
"""The most rows that are taken in at once."""
_BATCH = re.compile(r"\d{10}\Z")
_PART = re.compile(r"part-.*\.parquet\Z")


class Record(msgspec.Struct, frozen=True):
    files: tuple[tuple[str, int], ...]
    """Names and numbers of rows, in order."""


class Batches:
    """The folder of one source's batches."""

    def __init__(self, folder: str, *, fsync: bool = False) -> None:
        self.folder = folder
        self._fsync = fsync

    def numbers(self) -> list[int]:
        """The batches that are there, in order."""
        try:
            return sorted(int(name) for name in os.listdir(self.folder) if _BATCH.fullmatch(name))
        except FileNotFoundError:
            return []

    def has(self, number: int) -> bool:
        return os.path.isdir(self._place(number))

    def scratch(self, number: int) -> str:
        """A folder to write a batch into that nobody else uses."""
        ensure_folder(self.folder)
        return os.path.join(self.folder, f"{number:010d}.{os.getpid()}.tmp")

    def keep(self, number: int, scratch: str) -> None:
        """Let a batch count, by one rename."""
        names = sorted(name for name in os.listdir(scratch) if _PART.fullmatch(name))
        files = ((name, int(pq.read_metadata(os.path.join(scratch, name)).num_rows)) for name in names)
        record = Record(tuple((name, rows) for name, rows in files if rows))
        with open(os.path.join(scratch, RECORD), "wb") as file:
            file.write(msgspec.json.encode(record))
        if self._fsync:
            sync_tree(scratch)
        os.rename(scratch, self._place(number))
        if self._fsync:
            sync_folder(self.folder)
        for name in os.listdir(self.folder):
            if name.endswith(".tmp"):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def pieces(self, number: int, after: Reference | None = None) -> Iterator[Reference]:
        """The rows of a batch in pieces, those after a given one."""
        with open(os.path.join(self._place(number), RECORD), "rb") as file:
            record = msgspec.json.decode(file.read(), type=Record)
        passed = after is None
        for name, rows in record.files:
            where = f"{number:010d}/{name}"
            start = 0
            if not passed:
                assert after is not None
                if where != after.file:
                    continue
                start, passed = after.start + after.rows, True
            for first in range(start, rows, PIECE_ROWS):
                yield Reference(where, first, min(PIECE_ROWS, rows - first))

    def read(self, reference: Reference) -> pa.RecordBatch:
        """The rows of a piece."""
        first, last = reference.start, reference.start + reference.rows
        parts: list[pa.RecordBatch] = []
        with pq.ParquetFile(os.path.join(self.folder, reference.file)) as file:
            at = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if at + rows > first and at < last:
                    table = file.read_row_group(group, use_threads=False)
                    parts += table.slice(max(0, first - at), min(last, at + rows) - max(first, at)).to_batches()
                at += rows
        return pa.concat_batches(parts)

    def _place(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:010d}")


def number_of(reference: Reference) -> int:
    """Which batch a piece is of."""
    return int(reference.file.partition("/")[0])
