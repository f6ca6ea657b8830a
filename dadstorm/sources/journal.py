"""The journal of a live source: what was accepted, with the seqs it was given, on disk before anything of it is
emitted.

A file header (magic, version, format of the lines) and then frames. Each frame has a header of its own (length, kind,
checksum of the payload, checksum of the header and of its place in the file) and one of three payloads:

- RECORDS: the seq of the first line, and the lines, each with its newline; the n-th line has the n-th seq from there;
- LEASE: a seq; no ``hi`` above it has been announced unless a later frame says so;
- END: the source is complete.

A process that dies while it writes leaves part of a frame at the end of the file. Nothing of that frame was emitted,
so it is cut off. Anything else that does not check is damage, and stops the run: what lies behind it may have been
emitted. The header's own checksum is what tells the two apart: a damaged length must not make the rest of the file
look like a torn frame.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from dadstorm.errors import RunFailed

MAGIC = b"DSJRNL\r\n"
VERSION = 1
RECORDS, LEASE, END_OF_SOURCE = 1, 2, 3
PAYLOAD_BYTES_MAX = 1 << 28
"""Far above any batch that a source takes in at once."""

_FILE = struct.Struct("<8sHHI")
_FRAME = struct.Struct("<IB3xII")
_SEQ = struct.Struct("<q")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Frame:
    offset: int
    kind: int
    seq: int
    """Of the first line; the lease; 0 for END."""
    lines: bytes
    """Each with its newline; empty unless kind is RECORDS."""

    @property
    def next_seq(self) -> int:
        """The first seq that is not taken or leased by this frame."""
        return self.seq + self.lines.count(b"\n")


def _frame_header(offset: int, kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(
        len(payload), kind, zlib.crc32(payload), _header_check(offset, len(payload), kind, zlib.crc32(payload))
    )


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
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._failed(f"cannot be opened: {error.strerror}; choose a folder that can be written") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = os.fstat(self._fd).st_size
            found = os.pread(self._fd, len(header), 0)
            if len(found) < len(header) and header.startswith(found):
                # New, or its first writer died before the header was complete.
                os.ftruncate(self._fd, 0)
                self._size = 0
                self._write(header)
                if fsync:
                    _sync_folder(os.path.dirname(path))
            elif found != header:
                raise self._not_this(meta)
        except BlockingIOError:
            os.close(self._fd)
            raise self._failed("is in use by another process; a journal belongs to one source of one run") from None
        except BaseException:
            os.close(self._fd)
            raise
        self.start = len(header)
        """The offset of the first frame."""
        self.finished = self._ends_with_end()
        """The source is complete: there is nothing to append."""

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
            yield frame
            offset += _FRAME.size + _SEQ.size + len(frame.lines)

    @property
    def offset(self) -> int:
        """Where the next frame goes."""
        return self._size

    def append(self, kind: int, seq: int, lines: bytes = b"") -> None:
        """Write a frame; when this returns, the operating system has it (and the disk, with ``fsync``)."""
        payload = _SEQ.pack(seq) + lines
        self._write(_frame_header(self._size, kind, payload) + payload)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            at = self._size
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
            if self._fsync:
                os.fsync(self._fd)
        except OSError as error:
            cure = "make room on the disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the disk"
            raise self._failed(
                f"cannot be written: {error.strerror}; nothing that was not written has been emitted; {cure}"
            ) from None
        self._size += len(data)

    def _frame(self, offset: int) -> Frame | None:
        """The frame at an offset; None if the file ends within it."""
        head = os.pread(self._fd, _FRAME.size, offset)
        if len(head) < _FRAME.size:
            return None
        length, kind, check, header_check = _FRAME.unpack(head)
        if header_check != _header_check(offset, length, kind, check) or not _SEQ.size <= length <= PAYLOAD_BYTES_MAX:
            if self._only_zeros(offset):
                # A machine that lost power may leave a file longer than what reached the disk.
                return None
            raise self._damaged(offset)
        payload = os.pread(self._fd, length, offset + _FRAME.size)
        if len(payload) < length:
            return None
        if zlib.crc32(payload) != check or head[5:8] != b"\0\0\0":
            raise self._damaged(offset)
        return Frame(offset, kind, _SEQ.unpack_from(payload)[0], payload[_SEQ.size :])

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
        length, kind, check, header_check = _FRAME.unpack(os.pread(self._fd, _FRAME.size, offset))
        sound: bool = header_check == _header_check(offset, length, kind, check)
        return sound and kind == END_OF_SOURCE and length == _SEQ.size

    def _file_header(self, meta: dict[str, Any]) -> bytes:
        text = json.dumps(meta, sort_keys=True).encode()
        return _FILE.pack(MAGIC, VERSION, len(text), zlib.crc32(text)) + text

    def _not_this(self, meta: dict[str, Any]) -> RunFailed:
        """What is wrong with a file whose header is not the one expected."""
        head = os.pread(self._fd, _FILE.size, 0)
        if len(head) < _FILE.size or not head.startswith(MAGIC):
            return self._failed("is not a journal; choose another folder for the source's journal")
        _, version, length, check = _FILE.unpack(head)
        text = os.pread(self._fd, length, _FILE.size)
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


def _sync_folder(path: str) -> None:
    """Make a new file's name durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
