"""A window on a file's bytes: forward only, as much as asked for, never the whole file.

Plain and gzip-compressed files look the same here: offsets count decompressed bytes. The input of a run must stay as it
is while the run lasts, because seqs are positions in it: a file that shrinks, grows or disappears stops the run with
a message instead of giving seqs that another reader of the same file would not agree with. Files are read with
``read``, not mapped: a mapped file that shrinks kills the process.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from typing import IO

from dadstorm.errors import RunFailed

READ_BYTES = 1 << 20
"""How much is discarded at a time on the way to an offset of a compressed file."""


class Window:
    """The bytes of one file from ``offset`` on."""

    def __init__(self, path: str, operator: str) -> None:
        self._path = path
        self._operator = operator
        self._held = b""
        self._at = 0
        self.offset = 0
        self.ended = False
        """All bytes that are left are held: ``peek`` cannot give more."""
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - it stays open as long as the window
        except OSError as error:
            raise self._failed(
                f"cannot be opened: {error.strerror or error}; check that it exists and is readable"
            ) from None
        info = os.fstat(self._file.fileno())
        if not stat.S_ISREG(info.st_mode):
            self._file.close()
            raise self._failed("is not a regular file; for a pipe use a stdin source")
        self._size = info.st_size
        self._bytes: IO[bytes] = self._file
        if path.endswith(".gz"):
            # An empty file is no gzip stream, but it is an input without records all the same.
            self._bytes = gzip.GzipFile(fileobj=self._file) if self._size else self._file  # type: ignore[assignment]

    def peek(self, size: int) -> bytes:
        """The bytes from ``offset`` on: at least ``size`` of them unless the file ends before (``ended``)."""
        missing = size - (len(self._held) - self._at)
        if missing > 0 and not self.ended:
            parts = [self._held[self._at :]]
            while missing > 0:
                part = self._read(missing)
                if not part:
                    self.ended = True
                    break
                parts.append(part)
                missing -= len(part)
            self._held, self._at = b"".join(parts), 0
        elif self._at:
            self._held, self._at = self._held[self._at :], 0
        return self._held

    def advance(self, size: int) -> None:
        """Go on by ``size`` bytes, all of them seen by ``peek``."""
        self._at += size
        self.offset += size

    def seek(self, offset: int) -> None:
        """Go forward to an offset at or after the current one."""
        ahead = offset - self.offset
        held = len(self._held) - self._at
        if ahead > held and not isinstance(self._bytes, gzip.GzipFile):
            if offset > self._size:
                raise self._failed(f"ends before byte {offset:,}, where reading should go on: it has changed since")
            self._held, self._at, self.offset, self.ended = b"", 0, offset, False
            self._file.seek(offset)
            return
        while self.offset < offset:
            step = min(READ_BYTES, offset - self.offset)
            if len(self.peek(step)) < step:
                raise self._failed(f"ends before byte {offset:,}, where reading should go on: it has changed since")
            self.advance(step)

    def skip_line(self) -> int:
        """Go past the next newline without keeping what is before it; how many newlines that were (0 at the end)."""
        while data := self.peek(READ_BYTES):
            newline = data.find(b"\n")
            self.advance(newline + 1 if newline >= 0 else len(data))
            if newline >= 0:
                return 1
        return 0

    def close(self) -> None:
        self._bytes.close()
        self._file.close()

    def _read(self, size: int) -> bytes:
        try:
            part = self._bytes.read(size)
        except EOFError:
            raise self._failed(
                "ends in the middle of its compressed data; it is incomplete, fetch or make it again"
            ) from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise self._failed(f"holds damaged compressed data ({error}); fetch or make it again") from None
        except OSError as error:
            raise self._failed(f"cannot be read: {error.strerror or error}") from None
        self._check_unchanged()
        return part

    def _check_unchanged(self) -> None:
        info = os.fstat(self._file.fileno())
        if info.st_nlink == 0:
            raise self._failed(
                "was removed or replaced while it was read; leave inputs in place until the run has ended"
            )
        if info.st_size != self._size:
            change = "shrank" if info.st_size < self._size else "grew"
            raise self._failed(
                f"{change} while it was read (from {self._size:,} to {info.st_size:,} bytes); "
                "leave inputs as they are until the run has ended"
            )

    def _failed(self, what: str) -> RunFailed:
        return RunFailed(f"source {self._operator!r}: {self._path}: {what}")
