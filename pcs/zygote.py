"""The warm process from which replicas are forked.

Importing what a replica needs takes a few hundred milliseconds; forking a process that has done so takes a few. The
zygote is that process: it has everything imported and nothing open (no threads, no ZeroMQ context), so that a fork of
it is safe. It does four things: fork a replica when the PCS asks, kill one when the PCS asks (who is not its parent
might hit another process that has got the number since), tell the PCS when one ends (it is their parent, so it knows at
once), and, when the PCS says so, end them all. If the zygote itself is killed, the kernel kills its replicas.

What it does when the PCS is gone without a word depends. The zygote of a private PCS ends its replicas and removes the
folder of socket files (the PCS does that too; it may have been killed). That of a daemon lets them go on, and waits in
its ``nest`` for a PCS that is started in the place of the one that was killed; but not for ever.
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
import sys
import time
from dataclasses import dataclass
from functools import partial

import msgspec

from dadstorm import __version__, replica
from dadstorm.assignment import Assignment
from dadstorm.core.messages import Peer
from dadstorm.entry import loading
from pcs.line import (
    Bye,
    Census,
    Ended,
    Fork,
    Forked,
    Keep,
    Kill,
    Kin,
    Line,
    NotForked,
    Report,
    Request,
)

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
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MAPPED_BYTES_MIN, FREE_BYTES_MAX = 8 << 20, 32 << 20
"""From what size on memory is mapped for itself, and how much may be free at the heap's end before it is given back to
the kernel. A column of a tile has a megabyte, is freed within milliseconds and wanted again at once: given back, it has
to be got page by page, zeroed, each time, which is a tenth and more of all CPU."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Where a zygote waits for its PCS."""

    listener: socket.socket
    path: str
    """Of the socket's file."""
    patience_s: float


def start(
    lifeline: int | None, sockets: str | None, closes: int | None = None, nest: Nest | None = None
) -> tuple[int, Line]:
    """Fork the zygote off this process, which must not have threads or ZeroMQ sockets yet: its pid and the line to it.

    ``closes`` is a file descriptor that the zygote must not hold: the other end of the lifeline, if we hold that. With
    a ``nest`` it is a daemon's: it outlives the PCS, out of reach of its terminal."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        if nest is not None:
            nest.listener.close()
        return pid, Line(ours)
    status = 1
    try:
        ours.close()
        if closes is not None:
            os.close(closes)
        if nest is not None:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _redirect(os.devnull)
        with loading():
            for module in WARM:
                importlib.import_module(module)
        _keep_freed_memory()
        Zygote(Line(theirs), lifeline, nest).run()
        if sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)
        status = 0
    finally:
        os._exit(status)


def _keep_freed_memory() -> None:
    """For whoever is forked from here on; where the C library is not GNU's, it goes by its own rules."""
    with contextlib.suppress(AttributeError):
        _libc.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        _libc.mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)


class Zygote:
    def __init__(self, line: Line, lifeline: int | None, nest: Nest | None) -> None:
        self._line: Line | None = line
        self._nest = nest
        self._watched = lifeline
        """Ends us when it closes."""
        self._own_lifeline: int | None = None
        """That of the replicas, if it is not also ours: this end is held by us alone."""
        if lifeline is None:
            lifeline, self._own_lifeline = os.pipe()
        self._lifeline = lifeline
        self._children: dict[int, int] = {}
        """The serial number of each process."""
        self._kin: dict[tuple[bytes, int, int], Kin] = {}
        self._kept: dict[bytes, bytes] = {}
        self._serial = -1
        self._deadline = 0.0
        """Until when to wait for a PCS, if there is none."""
        self._over = False

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if self._nest is not None:
            self._nest.listener.listen(1)
        try:
            while not self._over:
                line, listener = self._line, self._nest.listener if self._nest else None
                watched = [wake_read, *(fd.fileno() for fd in (line and line.sock, listener) if fd)]
                if self._watched is not None:
                    watched.append(self._watched)
                patience_s = None if line else max(0.0, self._deadline - time.monotonic())
                ready, _, _ = select.select(watched, [], [], patience_s)
                if self._watched in ready or not ready:
                    return
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self._reap()
                if line is not None and line.sock.fileno() in ready:
                    self._listen(line)
                if listener is not None and listener.fileno() in ready:
                    self._admit(listener)
        finally:
            if self._nest is not None:
                # From here on nobody finds us; a new PCS begins with a zygote of its own.
                with contextlib.suppress(OSError):
                    os.unlink(self._nest.path)
                self._nest.listener.close()
            self._end_all()
            self._tell(Bye())

    # -- the PCS -------------------------------------------------------------------------------------------------

    def _listen(self, line: Line) -> None:
        """Do what the PCS asks."""
        try:
            for payload in line.receive():
                self._on_request(msgspec.msgpack.decode(payload, type=Request))
        except (EOFError, OSError):
            self._on_broken_line()

    def _tell(self, report: Report) -> None:
        if self._line is not None:
            try:
                self._line.send(report)
            except OSError:
                self._on_broken_line()

    def _on_broken_line(self) -> None:
        """The PCS is gone without a word: end, or wait for another."""
        if self._line is not None:
            self._line.sock.close()
            self._line = None
        if self._nest is None:
            self._over = True
        else:
            self._deadline = time.monotonic() + self._nest.patience_s

    def _admit(self, listener: socket.socket) -> None:
        """A PCS wants to take the place of ours: it may if that is gone."""
        knocking, _ = listener.accept()
        if self._line is not None:
            knocking.close()
            return
        self._line = Line(knocking)
        census = Census(__version__, os.getpid(), self._serial, tuple(self._kept.items()), tuple(self._kin.values()))
        try:
            self._line.send(census)
        except OSError:
            self._on_broken_line()

    # -- replicas ------------------------------------------------------------------------------------------------

    def _on_request(self, request: Request) -> None:
        if isinstance(request, Fork):
            self._fork(request)
        elif isinstance(request, Kill):
            for pid, serial in self._children.items():
                if serial == request.serial:
                    kill_group(pid)
        elif isinstance(request, Keep):
            self._keep(request)
        else:
            self._over = True

    def _keep(self, request: Keep) -> None:
        self._kept[request.token] = request.state
        if not request.state:
            del self._kept[request.token]
            self._kin = {whose: kin for whose, kin in self._kin.items() if kin.token != request.token}

    def _fork(self, request: Fork) -> None:
        parent = os.getpid()
        self._serial = max(self._serial, request.serial)
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(NotForked(request.serial, f"no process for it: {error.strerror}"))
            return
        if pid == 0:
            self._become_replica(request, parent)
        _head_a_group(pid)
        self._children[pid] = request.serial
        whose = request.token, request.operator, request.replica
        self._kin[whose] = Kin(request.serial, pid, *whose, request.incarnation, request.bind)
        self._tell(Forked(request.serial, pid))

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
            for what in (self._line.sock if self._line else None, self._nest.listener if self._nest else None):
                if what is not None:
                    what.close()
            if self._own_lifeline is not None:
                os.close(self._own_lifeline)
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
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            kill_group(pid)
            serial, status = self._children.pop(pid), os.waitstatus_to_exitcode(wait_status)
            for whose, kin in self._kin.items():
                if kin.serial == serial:
                    self._kin[whose] = msgspec.structs.replace(kin, status=status)
            self._tell(Ended(serial, pid, status))

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
