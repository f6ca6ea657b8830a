"""A PCS of one's own: forked by the front end for one run, and gone with it.

It is started before anything else. What replicas need takes long to load, NumPy and Arrow most of all; the front end
needs none of that, and understands the topology meanwhile. So this module, whose imports both have to wait for, takes
only what both need.

Two pipes tie them together. The *lifeline*: only the front end holds its write end, so however the front end ends, the
kernel closes it and the PCS, the zygote and the replicas, which all watch the other end, end too. The *deathline* is
the reverse: they all hold its write end, so when the front end reads its end of file, every one of them is gone.
(Before that it carries what the PCS has to say about its start.)

The folder for the socket files is made and removed by the PCS, not by the front end: a front end that is killed between
the two would leave it behind.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from dadstorm import logs
from dadstorm.entry import loading
from dadstorm.errors import RunFailed, UserError
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.keys import Keys
from dadstorm.wire.keys import load as load_keys

START_PATIENCE_S = 60.0
"""Loading takes a quarter of a second, and many seconds on a machine that is busy enough."""
END_PATIENCE_S = 8.0
"""More than the PCS itself gives its zygote: it is killed only if it cannot do its work."""
FOLDER_BYTES_MAX = 80
"""The path of a socket file may have little more than 100 bytes; the files in the folder need some of them."""
READY = b"ready"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a front end is ended."""

log = logs.get_logger()


@dataclass(slots=True)
class PrivatePcs:
    """A PCS that the front end started for itself, seen from the front end."""

    pid: int
    token: bytes
    keys: Keys | None
    address: str
    sockets: str
    """Its folder for socket files; there once it is ready."""
    _lifeline: int
    _deathline: int
    _status: int | None = None
    _ready: bool = False
    _ended: bool = False

    def wait_ready(self) -> None:
        """Return when the PCS listens; RunFailed if it does not come to that."""
        ready, _, _ = select.select([self._deathline], [], [], START_PATIENCE_S)
        said = os.read(self._deathline, 4096) if ready else b"nothing heard from it"
        if said != READY:
            raise RunFailed(f"the PCS did not start: {said.decode(errors='replace') or 'it died'}")
        self._ready = True

    @property
    def alive(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is None

    def end(self) -> None:
        """Close the lifeline and wait until the PCS, its replicas and their socket files are gone."""
        if self._ended:
            return
        self._ended = True
        os.close(self._lifeline)
        if not self._ready and self.alive:
            os.kill(self.pid, signal.SIGKILL)  # It would first load all that is needed to begin.
        if not self._all_gone(END_PATIENCE_S):
            log.error("the PCS did not end by itself", pid=self.pid)
            if self.alive:
                os.kill(self.pid, signal.SIGKILL)
            self._all_gone(END_PATIENCE_S)
        if self.alive:
            os.waitpid(self.pid, 0)
        os.close(self._deathline)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def _all_gone(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._deathline], [], [], left)[0] and not os.read(self._deathline, 4096):
                return True
        return False


@contextlib.contextmanager
def private_pcs(keys: str | None) -> Iterator[PrivatePcs]:
    """A PCS for this machine, while the block runs; ``keys`` is the folder of the cluster's keys.

    A signal that ends us ends the PCS first, if the block does nothing else about it: no exception then, which might
    hit us in the middle of loading a library."""
    own = None if keys is None else load_keys(keys)

    def die(number: int, frame: FrameType | None) -> None:
        pcs.end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        pcs = _start(secrets.token_bytes(TOKEN_BYTES), own)
        numbers = [number for number in ENDS if signal.getsignal(number) != signal.SIG_IGN]
        before = [signal.signal(number, die) for number in numbers]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    try:
        yield pcs
    finally:
        pcs.end()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _start(token: bytes, keys: Keys | None) -> PrivatePcs:
    """Fork a PCS off this process, which must not have ZeroMQ sockets or threads yet."""
    sockets = _folder()
    address = f"ipc://{sockets}/pcs"
    lifeline_read, lifeline_write = os.pipe()
    deathline_read, deathline_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(lifeline_read)
        os.close(deathline_write)
        return PrivatePcs(pid, token, keys, address, sockets, lifeline_write, deathline_read)
    status = 1
    try:
        os.close(lifeline_write)
        os.close(deathline_read)
        _serve(token, keys, address, sockets, lifeline_read, deathline_write)
        status = 0
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
        os._exit(status)


def _folder() -> str:
    """A name for the folder of socket files, in the system's folder for temporary files."""
    try:
        folder = os.path.join(tempfile.gettempdir(), f"dadstorm-{secrets.token_hex(6)}")
    except FileNotFoundError as error:
        raise UserError(f"no folder for temporary files can be written: {error.strerror}. Set TMPDIR to one") from None
    if len(os.fsencode(folder)) > FOLDER_BYTES_MAX:
        raise UserError(
            f"{folder}: too long for socket files, at most {FOLDER_BYTES_MAX} bytes. Set TMPDIR to a shorter folder"
        )
    return folder


def _serve(token: bytes, keys: Keys | None, address: str, sockets: str, lifeline: int, deathline: int) -> None:
    """In the child: be the PCS, out of the reach of the terminal's ^C."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    try:
        with loading():
            from pcs import zygote

        os.mkdir(sockets, 0o700)
        zygote_pid, line = zygote.start(lifeline, sockets)
        with loading():
            from pcs.service import Service, Settings

        service = Service(Settings(token, address, sockets, None, keys), zygote_pid, line, lifeline)
    except Exception as error:
        with contextlib.suppress(BrokenPipeError):
            os.write(deathline, str(error).encode()[:4096])
        raise
    with contextlib.suppress(BrokenPipeError):
        os.write(deathline, READY)
    service.run()
