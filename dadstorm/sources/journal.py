"""The journal of a live source: what was accepted, with the seqs it was given, on disk before anything of it is
emitted.

A file header (magic, version, how far the file counts, format of the lines) and then frames. Each frame has a header of
its own (length, kind, size of what is extra, checksum of the payload, checksum of the header and of its place in the
file) and one of four payloads:

- RECORDS: the seq of the first line, and the lines, each with its newline; the n-th line has the n-th seq from there.
  Lines that were pumped here from standard input have something extra, between the seq and themselves: how far the
  source is with what is pumped. (A program that knows of no extras takes such a frame for damaged, and stops.)
- BATCH: the seq of the first row, and which rows they are, of a file that is there already and does not change;
- LEASE: a seq; no ``hi`` above it has been announced unless a later frame says so;
- END: the source is complete.

When a frame is complete (and on the disk, with ``fsync``) the file header is told: the file *counts* up to there. Only
then is anything of the frame emitted. A process that dies while it writes leaves part of a frame behind what counts:
nothing of it was emitted, and it is cut off. A file that ends before what counts has lost records, and anything else
that does not check is damage: both stop the run. The frame header's own checksum is there so that a damaged length
does not make the rest of the file look like a torn frame.

A journal appears under its name with its header complete: one that is shorter than that has lost everything.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from dadstorm import logs
from dadstorm.errors import RunFailed
from dadstorm.sinks.disk import ensure_folder, sync_folder
from dadstorm.sources.pump import TOKEN_BYTES, Taken

MAGIC = b"DSJRNL\r\n"
VERSION = 2
RECORDS, LEASE, END_OF_SOURCE, BATCH = 1, 2, 3, 4
PAYLOAD_BYTES_MAX = 1 << 29
"""More than any batch that a source takes in at once: the longest record allowed has half as much."""

_FILE = struct.Struct("<8sHHI")
_COUNTS = struct.Struct("<QI4x")
"""How far the file counts, and a checksum of that: within one sector, so it is written whole or not at all."""
_FRAME = struct.Struct("<IBB2xII")
_SEQ = struct.Struct("<q")
_TAKEN = struct.Struct(f"<{TOKEN_BYTES}sQ")
_log = logs.get_logger()


class Reference(msgspec.Struct, frozen=True):
    """Rows of a file beside the journal."""

    file: str
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Frame:
    offset: int
    kind: int
    seq: int
    """Of the first line; the lease; 0 for END."""
    lines: bytes
    """Each with its newline; of a BATCH a ``Reference``; empty for the other kinds."""
    taken: Taken | None = None
    """Of lines that were pumped: how far the source is, with these."""

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.offset + _FRAME.size + _SEQ.size + (_TAKEN.size if self.taken else 0) + len(self.lines)

    @property
    def reference(self) -> Reference:
        """The rows that a BATCH is of."""
        return msgspec.json.decode(self.lines, type=Reference)

    @property
    def next_seq(self) -> int:
        """The first seq that is not taken or leased by this frame."""
        return self.seq + (self.reference.rows if self.kind == BATCH else self.lines.count(b"\n"))


def _frame_header(offset: int, kind: int, extra: int, payload: bytes) -> bytes:
    check = zlib.crc32(payload)
    return _FRAME.pack(len(payload), kind, extra, check, _header_check(offset, len(payload), kind, check))


def _header_check(offset: int, length: int, kind: int, check: int) -> int:
    return zlib.crc32(struct.pack("<QIBI", offset, length, kind, check))


class Journal:
    """A journal that is read from some offset to its end and then, unless it is finished, appended to."""

    def __init__(self, path: str, operator: str, meta: dict[str, Any], *, fsync: bool = False) -> None:
        self._path = path
        self._operator = operator
        self._fsync = fsync
        self._closed = False
        header = self._file_header(meta)
        self.start = len(header)
        """The offset of the first frame."""
        try:
            ensure_folder(os.path.dirname(path))
            if not os.path.exists(path):
                self._make(header)
            if fsync:  # Also for one that was there: whoever made it may have died just then.
                sync_folder(os.path.dirname(path))
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise self._failed(f"cannot be opened: {error.strerror}; choose a folder that can be written") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = os.fstat(self._fd).st_size
            self._counts = self._check_header(header, meta)
        except BlockingIOError:
            os.close(self._fd)
            raise self._failed("is in use by another process; a journal belongs to one source of one run") from None
        except BaseException:
            os.close(self._fd)
            raise
        self.finished = self._ends_with_end()
        """The source is complete: there is nothing to append."""

    def _make(self, header: bytes) -> None:
        """A new journal, with its header complete, unless somebody else is faster."""
        scratch = f"{self._path}.{os.getpid()}.tmp"
        file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, header)
            if self._fsync:
                os.fsync(file)
            try:
                os.link(scratch, self._path)
            except FileExistsError:
                pass
            except OSError:  # A file system without links.
                os.rename(scratch, self._path)
        finally:
            os.close(file)
            with contextlib.suppress(FileNotFoundError):
                os.remove(scratch)

    def _check_header(self, header: bytes, meta: dict[str, Any]) -> int:
        """How far the file counts, if its header is that of a journal of ours."""
        found = os.pread(self._fd, len(header), 0)
        slot = slice(_FILE.size, _FILE.size + _COUNTS.size)
        if found[: slot.start] + found[slot.stop :] != header[: slot.start] + header[slot.stop :]:
            raise self._not_this(meta)
        counts, _ = _COUNTS.unpack(found[slot])
        if found[slot] != _counts(counts):
            raise self._damaged(0)
        if counts > self._size:
            raise self._failed(
                f"has {self._size:,} bytes, and had {counts:,}: records were lost; restore it from a copy, "
                "or remove it and run from the beginning"
            )
        return int(counts)

    def frames(self, offset: int) -> Iterator[Frame]:
        """Every frame from an offset on. When they are through, a torn one at the end has been cut off."""
        if not self.start <= offset <= self._size:
            raise self._failed(
                f"has {self._size:,} bytes, but the run had got to byte {offset:,}: records were lost; restore the file"
            )
        while offset < self._size:
            frame = self._frame(offset)
            if frame is None:
                torn = self._size - offset
                _log.warning(
                    "torn frame cut off", journal=self._path, operator=self._operator, offset=offset, bytes=torn
                )
                os.ftruncate(self._fd, offset)
                self._size = offset
                return
            offset = frame.end
            if offset > self._counts:
                self._keep(frame.offset, offset)
                self._count(offset)
            yield frame

    @property
    def offset(self) -> int:
        """Where the next frame goes."""
        return self._size

    def append(self, kind: int, seq: int, lines: bytes = b"", taken: Taken | None = None) -> None:
        """Write a frame; when this returns, the operating system has it (and the disk, with ``fsync``)."""
        extra = b"" if taken is None else _TAKEN.pack(taken.session, taken.position)
        payload = _SEQ.pack(seq) + extra + lines
        self._write(_frame_header(self._size, kind, len(extra), payload) + payload)
        self._count(self._size)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        with self._told():
            _write_at(self._fd, data, self._size)
            if self._fsync:
                os.fsync(self._fd)
        self._size += len(data)

    def _keep(self, start: int, end: int) -> None:
        """A frame that does not count yet is on the disk, with ``fsync``. Its writer may have died before it was, or of
        a sync that failed; after that the system takes its pages for written, so they are written again."""
        if self._fsync:
            with self._told():
                _write_at(self._fd, os.pread(self._fd, end - start, start), start)
                os.fsync(self._fd)

    def _count(self, offset: int) -> None:
        """The file counts up to an offset. That need not be on the disk: a power cut may leave an earlier one."""
        with self._told():
            _write_at(self._fd, _counts(offset), _FILE.size)
        self._counts = offset

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cure = "make room on the disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the disk"
            raise self._failed(
                f"cannot be written: {error.strerror}; nothing that was not written has been emitted; {cure}"
            ) from None

    def _frame(self, offset: int) -> Frame | None:
        """The frame at an offset; None if the file ends within it."""
        head = os.pread(self._fd, _FRAME.size, offset)
        if len(head) < _FRAME.size:
            return None
        length, kind, extra, check, header_check = _FRAME.unpack(head)
        if header_check != _header_check(offset, length, kind, check) or not _SEQ.size <= length <= PAYLOAD_BYTES_MAX:
            if offset >= self._counts and self._only_zeros(offset):
                # A machine that lost power may leave a file longer than what reached the disk.
                return None
            raise self._damaged(offset)
        payload = os.pread(self._fd, length, offset + _FRAME.size)
        if len(payload) < length:
            return None
        sound = extra in ((0, _TAKEN.size) if kind == RECORDS else (0,)) and head[6:8] == b"\0\0"
        if zlib.crc32(payload) != check or not sound or length < _SEQ.size + extra:
            raise self._damaged(offset)
        taken = Taken(*_TAKEN.unpack_from(payload, _SEQ.size)) if extra else None
        return Frame(offset, kind, _SEQ.unpack_from(payload)[0], payload[_SEQ.size + extra :], taken)

    def _only_zeros(self, offset: int) -> bool:
        while part := os.pread(self._fd, 1 << 16, offset):
            if part.count(0) != len(part):
                return False
            offset += len(part)
        return True

    def _ends_with_end(self) -> bool:
        """Whether the last bytes are an END frame: its header's checksum knows where it stands, lines cannot pass for
        one."""
        offset = self._size - _FRAME.size - _SEQ.size
        if offset < self.start:
            return False
        length, kind, _, check, header_check = _FRAME.unpack(os.pread(self._fd, _FRAME.size, offset))
        sound: bool = header_check == _header_check(offset, length, kind, check)
        return sound and kind == END_OF_SOURCE and length == _SEQ.size

    def _file_header(self, meta: dict[str, Any]) -> bytes:
        text = json.dumps(meta, sort_keys=True).encode()
        head = _FILE.pack(MAGIC, VERSION, len(text), zlib.crc32(text))
        return head + _counts(len(head) + _COUNTS.size + len(text)) + text

    def _not_this(self, meta: dict[str, Any]) -> RunFailed:
        """What is wrong with a file whose header is not the one expected."""
        head = os.pread(self._fd, _FILE.size, 0)
        if self._size < self.start and head.startswith(MAGIC[: len(head)]):
            return self._failed(
                f"has {self._size} bytes, less than any journal: records were lost; restore it from a copy, "
                "or remove it and run from the beginning"
            )
        if len(head) < _FILE.size or not head.startswith(MAGIC):
            return self._failed("is not a journal; choose another folder for the source's journal")
        _, version, length, check = _FILE.unpack(head)
        text = os.pread(self._fd, length, _FILE.size + _COUNTS.size)
        if version != VERSION:
            return self._failed(f"is a journal of version {version}, this program reads version {VERSION}")
        if zlib.crc32(text) != check:
            return self._damaged(0)
        return self._failed(
            f"was written for lines of {text.decode(errors='replace')}, "
            f"the topology says {json.dumps(meta, sort_keys=True)}; use the same format or another folder"
        )

    def _damaged(self, offset: int) -> RunFailed:
        return self._failed(
            f"is damaged at byte {offset:,}; restore it from a copy, or truncate it to {offset} bytes to go on without "
            "what follows (records that were emitted may be lost)"
        )

    def _failed(self, what: str) -> RunFailed:
        return RunFailed(f"source {self._operator!r}: journal {self._path}: {what}")


def _counts(offset: int) -> bytes:
    return _COUNTS.pack(offset, zlib.crc32(struct.pack("<Q", offset)))


def _write_at(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
