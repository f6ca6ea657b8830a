"""One file of a durable run: a header, a body, and a checksum over every byte of both.

A file appears under its name only when it is complete and on the disk, so there are no torn ones: a file that does not
check is damaged, and is never taken for anything else. Layout, little-endian: magic (8 bytes), version (2), nothing
(2), length of the header (4), length of the body (8), checksum (XXH3, 16 bytes, over what stands before and after it),
the header (msgpack), the body (an Arrow stream, or nothing).

Paths may be those of other file systems, see ``remote``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import xxhash

from dadstorm.durable import remote
from dadstorm.durable.remote import SCRATCH as SCRATCH
from dadstorm.errors import RunFailed
from dadstorm.sinks.disk import ensure_folder, sync_folder

MAGIC = b"DSKEPT\r\n"
VERSION = 3
READABLE = (2, VERSION)
"""In the second version, the tables of a COUNT had no slots."""
_HEAD = struct.Struct("<8sHHIQ")
_CHECK_BYTES = 16

_CURES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your disk quota",
    errno.EFBIG: "raise the limit on file sizes",
    errno.EACCES: "make the folder writable for you",
    errno.EPERM: "make the folder writable for you",
    errno.EROFS: "make that file system writable",
}


class Damaged(Exception):
    """A file that is not what was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")


def write(path: str, header: bytes, body: bytes | memoryview = b"", *, sync: bool = True) -> int:
    """Put a file on the disk, whole or not at all; its size. When this returns it will be there after a power cut,
    with ``sync``."""
    head = _HEAD.pack(MAGIC, VERSION, 0, len(header), len(body))
    parts = head, _check(head, header, body), header, body
    if remote.is_remote(path):
        remote.write(path, parts)
    else:
        _write(path, parts, sync)
    return sum(map(len, parts))


def _write(path: str, parts: Iterable[bytes | memoryview], sync: bool) -> None:
    folder, scratch = os.path.dirname(path), path + SCRATCH
    try:
        file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[os.write(file, view) :]
            if sync:
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(scratch, path)
        if sync:
            sync_folder(folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(scratch)
        raise


def read(path: str) -> tuple[bytes, memoryview]:
    """The header and the body of a file; Damaged unless it is, to the bit, what was written."""
    if remote.is_remote(path):
        try:
            return _checked(path, memoryview(remote.read(path)))
        except FileNotFoundError:
            pass
        try:
            return _checked(path, memoryview(remote.read_unfinished(path)))
        except Damaged:
            raise FileNotFoundError(path) from None
    with open(path, "rb") as file:
        return _checked(path, memoryview(file.read()))


def _checked(path: str, data: memoryview) -> tuple[bytes, memoryview]:
    if len(data) < _HEAD.size + _CHECK_BYTES:
        raise Damaged(path, f"it has {len(data)} bytes, too few for any")
    magic, version, _, header_bytes, body_bytes = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Damaged(path, "it does not begin as DADSTORM's files do")
    if version not in READABLE:
        known = " and ".join(map(str, READABLE))
        raise Damaged(path, f"it says that it is of version {version}, and this program reads versions {known}")
    start = _HEAD.size + _CHECK_BYTES
    if len(data) != start + header_bytes + body_bytes:
        raise Damaged(path, f"it has {len(data)} bytes instead of {start + header_bytes + body_bytes}")
    header, body = data[start : start + header_bytes], data[start + header_bytes :]
    if _check(data[: _HEAD.size], header, body) != data[_HEAD.size : start]:
        raise Damaged(path, "the checksum does not fit")
    return bytes(header), body


def _check(*parts: bytes | memoryview) -> bytes:
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.digest()


def make_folder(path: str) -> None:
    """The folder and those above it exist, and will after a power cut."""
    if remote.is_remote(path):
        remote.make_folder(path)
    else:
        ensure_folder(path)


def names(folder: str) -> Iterator[str]:
    """The files below a folder, by their paths from there on."""
    if remote.is_remote(folder):
        yield from remote.names(folder)
        return
    for found, _, files in os.walk(folder, topdown=False):
        for name in files:
            yield os.path.relpath(os.path.join(found, name), folder)


def remove(path: str) -> None:
    """Remove a file that nobody needs, if it can be; and its folder, if it was the last one there."""
    with contextlib.suppress(OSError):
        if remote.is_remote(path):
            remote.remove(path)
        else:
            os.remove(path)
            os.rmdir(os.path.dirname(path))


def remove_folder(folder: str) -> None:
    """Remove a folder that nobody needs, if it can be."""
    if remote.is_remote(folder):
        with contextlib.suppress(OSError):
            remote.remove_folder(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def told(who: str, path: str) -> Iterator[None]:
    """Turn the system's errors into one that says what is lost (nothing) and what to do."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        cure = _CURES.get(error.errno or 0, "look after that disk")
        raise RunFailed(
            f"{who}: cannot write {error.filename or path}: {cause}. Nothing that was kept before is lost: {cure}, and "
            "go on with --resume"
        ) from error
