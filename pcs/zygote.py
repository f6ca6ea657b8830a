"""The warm process from which replicas are forked.

Importing what a replica needs takes a few hundred milliseconds; forking a process that has done so takes a few. The
zygote is that process: it has everything imported and nothing open (no sockets, no threads, no ZeroMQ context), so
that a fork of it is safe. It does four things: fork a replica when the PCS asks, kill one when the PCS asks (who is
not its parent might hit another process that has got the number since), tell the PCS when one ends (it is their parent,
so it knows at once), and, when the PCS is gone or says so, end them all and remove the folder of socket files (the PCS
does that too; it may have been killed). If the zygote itself is killed, the kernel kills its replicas.

Each replica is the head of a process group: what a user's function starts ends with it.

Requests and reports are msgpack behind a length, over one socket pair. A replica process is known by the serial number
of its fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from functools import partial

import msgspec

from dadstorm import replica
from dadstorm.assignment import Assignment
from dadstorm.core.messages import Peer
from dadstorm.wire import control

_LENGTH = struct.Struct("<I")
REQUEST_BYTES_MAX = 64 << 20
WARM = (
    "dadstorm.sinks.lines",
    "dadstorm.sources.files",
    "dadstorm.sources.generate",
    "dadstorm.sources.live",
    "numpy.ma",
    "zmq.utils.garbage",
)
"""What most replicas import only when they first use it: here it is done once, instead of in each of them. PyArrow
takes ``numpy.ma`` with the first array it gets, and that alone is most of what a small replica would compute."""

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Fork(msgspec.Struct, tag="fork", frozen=True):
    """PCS → zygote: fork a replica."""

    serial: int
    token: bytes
    plan: bytes
    operator: int
    replica: int
    master: str
    bind: str
    folder: str
    sockets: str
    shake: control.Shake
    pcs: str
    incarnation: int
    resume: control.Resume | None
    keys: str | None
    """The folder of the cluster's keys: the PCS's own, never one that a message named."""
    confined: bool
    """CUSTOM functions may come from the plan's folders only."""
    message_bytes_max: int
    """What the PCS takes."""


class Kill(msgspec.Struct, tag="kill", frozen=True):
    """PCS → zygote: end this process at once."""

    serial: int


class Forked(msgspec.Struct, tag="forked", frozen=True):
    serial: int
    pid: int


class NotForked(msgspec.Struct, tag="not-forked", frozen=True):
    """Zygote → PCS: the system would not have another process."""

    serial: int
    reason: str


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """Zygote → PCS: a replica has ended; a negative status is the signal that ended it."""

    serial: int
    pid: int
    status: int


Report = Forked | NotForked | Ended


class Line:
    """Messages over one end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pending = bytearray()

    def send(self, message: Fork | Kill | Report) -> None:
        payload = msgspec.msgpack.encode(message)
        self.sock.sendall(_LENGTH.pack(len(payload)) + payload)

    def receive(self) -> Iterator[bytes]:
        """The whole messages that have arrived; EOFError when the other end is closed."""
        chunk = self.sock.recv(1 << 20)
        if not chunk:
            raise EOFError
        self._pending += chunk
        while len(self._pending) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending)
            if len(self._pending) < _LENGTH.size + length:
                return
            payload = bytes(self._pending[_LENGTH.size : _LENGTH.size + length])
            del self._pending[: _LENGTH.size + length]
            yield payload


def start(lifeline: int | None, sockets: str | None, closes: int | None = None) -> tuple[int, Line]:
    """Fork the zygote off this process, which must not have threads or sockets yet: its pid and the line to it.

    ``closes`` is a file descriptor that the zygote must not hold: the other end of the lifeline, if we hold that."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, Line(ours)
    status = 1
    try:
        ours.close()
        if closes is not None:
            os.close(closes)
        for module in WARM:
            importlib.import_module(module)
        Zygote(Line(theirs), lifeline).run()
        if sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)
        status = 0
    finally:
        os._exit(status)


class Zygote:
    def __init__(self, line: Line, lifeline: int | None) -> None:
        self._line = line
        self._lifeline = lifeline
        self._children: dict[int, int] = {}
        """The serial number of each process."""

    def run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        watched = [self._line.sock.fileno(), wake_read]
        if self._lifeline is not None:
            watched.append(self._lifeline)
        try:
            while True:
                ready, _, _ = select.select(watched, [], [])
                if self._lifeline in ready:
                    return
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self._reap()
                if self._line.sock.fileno() in ready:
                    for payload in self._line.receive():
                        self._on_request(msgspec.msgpack.decode(payload, type=Fork | Kill))
        except (EOFError, BrokenPipeError, ConnectionError):
            pass
        finally:
            self._end_all()

    def _on_request(self, request: Fork | Kill) -> None:
        if isinstance(request, Fork):
            self._fork(request)
            return
        for pid, serial in self._children.items():
            if serial == request.serial:
                kill_group(pid)

    def _fork(self, request: Fork) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._line.send(NotForked(request.serial, f"no process for it: {error.strerror}"))
            return
        if pid == 0:
            self._become_replica(request, parent)
        _head_a_group(pid)
        self._children[pid] = request.serial
        self._line.send(Forked(request.serial, pid))

    def _become_replica(self, request: Fork, parent: int) -> None:
        """In the child: put everything of the zygote's aside and live as a replica; never returns."""
        status = 1
        try:
            _die_with(parent)
            _head_a_group(0)
            os.register_at_fork(after_in_child=partial(_die_with, os.getpid()))
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._line.sock.close()
            _redirect(os.path.join(request.folder, "printed.txt"))
            assignment = Assignment(
                token=request.token,
                plan=request.plan,
                me=Peer(request.operator, request.replica),
                master=request.master,
                bind=request.bind,
                folder=request.folder,
                sockets=request.sockets,
                lifeline=self._lifeline,
                shake=request.shake,
                pcs=request.pcs,
                incarnation=request.incarnation,
                resume=request.resume,
                keys=request.keys,
                confined=request.confined,
                pcs_bytes_max=request.message_bytes_max,
            )
            status = replica.main(assignment)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            kill_group(pid)
            self._line.send(Ended(self._children.pop(pid), pid, os.waitstatus_to_exitcode(status)))

    def _end_all(self) -> None:
        for pid in self._children:
            kill_group(pid)
        for pid in self._children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _head_a_group(pid: int) -> None:
    """Make a process the head of a group of its own. Parent and child both do it: neither can rely on the other."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def kill_group(pid: int) -> None:
    """Kill a replica, if it lives, and whatever a user's function has started in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however it dies, where the kernel can do that (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _redirect(path: str) -> None:
    """Standard input is empty; what a user's function prints goes to a file of the run."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
