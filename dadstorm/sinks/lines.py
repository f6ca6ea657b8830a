"""CSV and JSON lines: one file that only grows.

Rows go to the operating system as they come, a commit remembers the length; to resume is to cut the file back to that
length. So whatever a dying process had written beyond its last commit is gone before the next byte is added.
The file is synced to the disk at the end, and at every commit if the sink says ``fsync``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Operator
from dadstorm.sinks.base import Mark
from dadstorm.sinks.disk import close_quietly, ensure_folder, lock, sync, sync_folder, told, unlock
from dadstorm.sinks.rows_out import Progress, Shape, pieces
from dadstorm.sinks.text import csv_lines, json_lines


class LineSink:
    """Rows as lines of one file. A file of an earlier run is replaced, unless ``mark`` says to go on with it."""

    def __init__(self, operator: Operator, *, mark: Mark | None, cut: int, alone: bool = True) -> None:
        self._name = operator.name
        self._path: str = operator.params["path"]
        self._lines = csv_lines if operator.params["format"] == "csv" else json_lines
        self._ragged = bool(operator.params.get("ragged"))
        self._fsync = bool(operator.params.get("fsync"))
        self._shape = Shape(operator)
        self._progress = Progress(operator, cut)
        self._bytes = self._bytes_committed = 0 if mark is None else int(mark["bytes"])
        with told(self._name, self._path):
            if mark is not None:
                self._check_length()
            else:
                ensure_folder(os.path.dirname(self._path) or ".")
            self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb")
            try:
                if alone:
                    lock(self._file.fileno(), self._name, self._path)
            except UserError:
                close_quietly(self._file)
                raise
            if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._file.truncate(self._bytes)
                self._file.seek(self._bytes)

    def _check_length(self) -> None:
        try:
            found = os.stat(self._path).st_size
        except FileNotFoundError:
            found = None
        if found is None or found < self._bytes:
            there = "no such file" if found is None else f"{found} bytes"
            raise RunFailed(
                f"sink {self._name}: cannot go on with {self._path}: expected at least the {self._bytes} bytes that "
                f"were committed, found {there}; put the file back as the last run left it, or start from the beginning"
            )

    def write(self, rows: Rows, again: bool = False) -> None:
        if not len(rows):
            return
        self._progress.wrote(rows, again)
        for piece in pieces(self._shape.batch(rows)):
            text = self._lines(piece, self._ragged)
            with told(self._name, self._path):
                self._file.write(text)
            self._bytes += text.size
        with told(self._name, self._path):
            self._file.flush()  # Whoever follows the file sees a row as soon as it is there.

    def commit(self, cut: int) -> None:
        self._progress.check(cut)
        with told(self._name, self._path):
            if self._fsync or cut == END:
                sync(self._file)
            if cut == END:
                sync_folder(os.path.dirname(self._path) or ".")
                unlock(self._file.fileno())
        self._progress.commit(cut)
        self._bytes_committed = self._bytes

    @property
    def committed(self) -> int:
        return self._progress.committed

    def mark(self) -> Mark:
        return {"bytes": self._bytes_committed}

    def wake_fds(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        close_quietly(self._file)
