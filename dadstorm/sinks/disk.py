"""Files that sinks write: errors told in words, and bytes that are really there.

A disk that is full, a folder that may not be written, a path that is something else: each stops the run with the
operator, the path, what the system said and what can be done about it. Never half an output without a word.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from dadstorm.errors import RunFailed

_ELSEWHERE = "or write elsewhere (--out DIR, or the sink's path)"

_CURES = {
    errno.ENOSPC: f"free some space on that disk, {_ELSEWHERE}",
    errno.EDQUOT: f"free some of your disk quota, {_ELSEWHERE}",
    errno.EFBIG: f"raise the limit on file sizes, {_ELSEWHERE}",
    errno.EACCES: f"make the folder and file writable for you, {_ELSEWHERE}",
    errno.EPERM: f"make the folder and file writable for you, {_ELSEWHERE}",
    errno.EROFS: "that file system is read-only: write elsewhere (--out DIR, or the sink's path)",
    errno.EISDIR: "a folder is in the way: move it, or give the sink another path",
    errno.ENOTDIR: "a file stands where a folder is needed: move it, or give the sink another path",
    errno.EEXIST: "a file stands where a folder is needed: move it, or give the sink another path",
    errno.ENAMETOOLONG: "give the sink a shorter path",
}


@contextmanager
def told(operator: str, path: str) -> Iterator[None]:
    """Turn the system's errors on a sink's path into one that tells the user what to do."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        cure = _CURES.get(error.errno or 0, f"look after that path, {_ELSEWHERE}")
        raise RunFailed(f"sink {operator}: cannot write {path}: {cause}; {cure}") from error


def ensure_folder(path: str) -> None:
    """The folder, and the folders above it, exist, and will after a power cut."""
    if not path or os.path.isdir(path):
        return
    above = os.path.dirname(path)
    ensure_folder(above)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):  # Else somebody was faster.
            raise
    sync_folder(above or ".")


def sync(file: IO[bytes]) -> None:
    """What was written is on the disk. Pipes and devices have none: they are left alone."""
    file.flush()
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """A new, renamed or removed name in the folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some file systems have nothing to sync for a folder, and say so like this.
            raise
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """No file of this name remains."""
    with suppress(FileNotFoundError):
        os.remove(path)


def close_quietly(file: IO[bytes] | None) -> None:
    """Close even if what is still buffered can no longer be written: nobody was promised it."""
    if file is not None:
        with suppress(OSError):
            file.close()
