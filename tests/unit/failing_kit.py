"""Disks that fail, without any special hardware or rights: syncs that give errors, and files that may not grow.

A real sync error needs a device that fails; here ``os.fsync`` itself is replaced. A limit on file sizes is what a full
disk looks like to a program: part of a write succeeds, the rest does not.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Syncs:
    """``os.fsync``, counted; the one with the number ``fails`` does. Only that one, as on Linux: after an error the
    system takes the pages for written, and the next sync says that all is well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails = -1
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, file: int) -> None:
        number, self.count = self.count, self.count + 1
        if number == self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(file)


class Platters:
    """What of one file is really on the disk: what was written since the last sync gets there with the next one. If
    that fails it never does, whatever later syncs say, unless it is written again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
        self.image = bytearray(content)
        self.failing = False
        self._dirty: list[tuple[int, bytes]] = []
        self._pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._write)
        monkeypatch.setattr(os, "fsync", self._sync)

    def _write(self, file: int, data: memoryview, offset: int) -> int:
        self._dirty.append((offset, bytes(data)))
        return self._pwrite(file, data, offset)

    def _sync(self, file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            return
        dirty, self._dirty = self._dirty, []
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for offset, data in dirty:
            self.image[offset : offset + len(data)] = data


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file that this process, or one that it starts meanwhile, writes may have more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
