"""The nest: a private folder of a PCS daemon, where its zygote can be found again by a PCS that takes its place.

``<runs>/.pcs-HOST-PORT``, for its owner alone, holds one socket file, on which the zygote listens. A PCS that is
started with the same host, port and runs looks there first. If the PCS before it was killed, the zygote hands over: its
replicas have never stopped. If it still lives, the zygote does not answer, and there is no room for another. What
cannot be taken over (a zygote of another version, one that hangs, rubbish) is ended, with its replicas, and told.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dadstorm import __version__
from dadstorm.errors import UserError
from pcs.line import Census, Line
from pcs.policy import NESTS
from pcs.zygote import Nest

NAME = "zygote"
ANSWER_S = 5.0
GONE_S = 3.0


@dataclass(frozen=True, slots=True)
class Found:
    """A zygote whose PCS is gone."""

    line: Line
    census: Census


def folder_of(runs: str, host: str, port: int) -> str:
    """The nest of the PCS at this address; made if it is not there, for our eyes only."""
    folder = os.path.join(runs, NESTS + re.sub(r"[^A-Za-z0-9.]", "-", f"{host}-{port}"))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.stat(folder)
    except OSError as error:
        raise UserError(f"--runs: cannot make {folder}: {error.strerror}") from None
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise UserError(f"{folder} can be reached by others: expected a folder of yours with mode 700; remove it")
    return folder


def make(folder: str, patience_s: float) -> Nest:
    """A place for a new zygote to wait in, so long."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, NAME))
    try:
        with _within(folder):
            listener.bind(NAME)
    except OSError as error:
        raise UserError(f"cannot make a socket file in {folder}: {error.strerror}") from None
    return Nest(listener, os.path.join(folder, NAME), patience_s)


def remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, NAME))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def find(folder: str) -> tuple[Found | None, str]:
    """The zygote that waits here, if there is one; or else why one that was here had to be ended.

    UserError if the PCS it belongs to is alive."""
    knocking = socket.socket(socket.AF_UNIX)
    knocking.settimeout(ANSWER_S)
    try:
        with _within(folder):
            knocking.connect(NAME)
    except OSError:
        # Nobody, or a file that somebody has left.
        knocking.close()
        return None, ""
    try:
        payload = _first(Line(knocking))
        if payload is None:
            raise UserError(f"another PCS is there with the same --host, --port and --runs ({folder}); end that first")
        census = msgspec.msgpack.decode(payload, type=Census)
        if census.version == __version__:
            knocking.settimeout(None)
            return Found(Line(knocking), census), ""
        problem = f"it is of DADSTORM {census.version}, and this is {__version__}"
    except TimeoutError:
        problem = f"it does not answer within {ANSWER_S:.0f} s"
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"it cannot be understood: {error}"
    except UserError:
        knocking.close()
        raise
    _end(knocking)
    return None, f"replicas that a PCS has left here cannot be adopted, and were ended: {problem}"


def _first(line: Line) -> bytes | None:
    """The first message; None if the line is closed instead."""
    try:
        while True:
            for payload in line.receive():
                return payload
    except EOFError:
        return None


def _end(knocking: socket.socket) -> None:
    """Kill who listens on the other end, and wait until he is gone; the kernel sees to his replicas."""
    try:
        pid, _, _ = struct.unpack("3i", knocking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (OSError, AttributeError):
        pid = 0
    knocking.close()
    deadline = time.monotonic() + GONE_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while pid > 0 and pid != os.getpid() and time.monotonic() < deadline:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


@contextlib.contextmanager
def _within(folder: str) -> Iterator[None]:
    """In this folder for a moment: the name of a socket file is short, its path may be too long for the system."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
