"""Files that sinks write: errors told in words, and bytes that are really there.

A disk that is full, a folder that may not be written, a path that is something else: each stops the run with the
operator, the path, what the system said and what can be done about it. Never half an output without a word.

An output has one writer. A run that has lost its PuppetMaster goes on, and another one of the same topology would write
into the same files; so files and folders are locked while a sink has them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from dadstorm.errors import RunFailed, UserError

_ELSEWHERE = "or write elsewhere (--out DIR, or the sink's path)"

LOCKED_WITHIN_S = 5.0
"""How long to wait for one who is just dying: it was killed before its successor was started."""

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


def lock(descriptor: int, operator: str, path: str, within_s: float = LOCKED_WITHIN_S) -> None:
    """Nobody else writes there from now on, until the descriptor is closed. Pipes and devices are for all, and a file
    system that knows no locks has none."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return
    until = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise UserError(
                    f"sink {operator}: {path} is being written by another run; wait until that has ended, end it "
                    f"(puppetmaster --attach finds it, if it has lost its PuppetMaster), {_ELSEWHERE}"
                ) from None
            time.sleep(0.02)
        except OSError:
            return


def unlock(descriptor: int) -> None:
    """The output is complete: whoever wants to may write there."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


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
