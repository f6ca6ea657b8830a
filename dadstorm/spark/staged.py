"""Rows that Spark has staged for a source: a folder of Parquet files that appears whole, and never changes.

    DIR/part-00000-….parquet           the rows, in the order of the names
    DIR/rows.json                      what they were read from, and which files there are

Whoever reads the source again, after whatever crash, reads the same rows under the same seqs, though the table that
they came from may have changed in between. A lock beside the folder lets one process stage it while others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator

import msgspec

from dadstorm.errors import RunFailed
from dadstorm.sinks.disk import sync_folder
from dadstorm.spark.frames import Reading
from dadstorm.spark.table import sync_tree

RECORD = "rows.json"
_PART = re.compile(r"part-.*\.parquet\Z")


class Record(msgspec.Struct, frozen=True):
    """What staged rows are."""

    reading: Reading
    files: tuple[tuple[str, int], ...]
    """Names and sizes, in order."""


class Staged:
    """The staged rows of one source, there or to come."""

    def __init__(self, folder: str, source: str, reading: Reading, *, fsync: bool = False) -> None:
        self.folder = os.path.join(folder, f"{source}.rows")
        self._source = source
        self._reading = reading
        self._fsync = fsync

    def files(self) -> list[str] | None:
        """The files, in order; None if nothing is staged yet. Raises RunFailed if they are not what they were."""
        try:
            with open(os.path.join(self.folder, RECORD), "rb") as file:
                record = msgspec.json.decode(file.read(), type=Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise self._failed(f"cannot be read: {error}") from None
        if record.reading != self._reading:
            raise self._failed(
                f"holds what was read from {record.reading}, as the source was then; remove it to read anew, "
                "or put the source back as it was"
            )
        paths = []
        for name, size in record.files:
            path = os.path.join(self.folder, name)
            found = os.path.getsize(path) if os.path.exists(path) else None
            if found != size:
                raise self._failed(f"has changed: {name} had {size} bytes, found {found or 'none'}; restore it")
            paths.append(path)
        return paths

    def gone(self) -> RunFailed:
        """The run had got somewhere, and nothing is staged any more."""
        return self._failed("is gone; restore it, or run from the beginning")

    def scratch(self, attempt: int) -> str:
        """A folder to stage into that nobody else uses: not even a Java process that is just dying."""
        return f"{self.folder}.{os.getpid()}-{attempt}.tmp"

    def keep(self, scratch: str) -> None:
        """Let what was staged count, by one rename; what others have left half done goes."""
        names = sorted(name for name in os.listdir(scratch) if _PART.fullmatch(name))
        files = tuple((name, os.path.getsize(os.path.join(scratch, name))) for name in names)
        with open(os.path.join(scratch, RECORD), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(Record(self._reading, files))) + b"\n")
        if self._fsync:
            sync_tree(scratch)
        os.rename(scratch, self.folder)
        if self._fsync:
            sync_folder(os.path.dirname(self.folder))
        beginning = f"{os.path.basename(self.folder)}."
        for name in os.listdir(os.path.dirname(self.folder)):
            if name.startswith(beginning) and name.endswith(".tmp"):
                shutil.rmtree(os.path.join(os.path.dirname(self.folder), name), ignore_errors=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether this process is the one to stage, until the block is left."""
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        file = os.open(f"{self.folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(file)

    def _failed(self, what: str) -> RunFailed:
        return RunFailed(f"source {self._source!r}: {self.folder} {what}")
