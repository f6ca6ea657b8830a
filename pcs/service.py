"""The service: takes spawn requests, has the zygote fork replicas, and reports their ends.

A *private* PCS serves one ``dadstorm run``: it listens on a socket file in a folder of its own, and it lives exactly as
long as its lifeline, a pipe that the front end holds open. However the front end ends, the kernel closes the pipe; the
PCS then ends its replicas, removes the folder and ends itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from dataclasses import dataclass

import msgspec
import structlog

from dadstorm import logs
from dadstorm.errors import UserError
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.endpoint import Endpoint, Received
from pcs import zygote
from pcs.zygote import Ended, Fork, Forked

REPLICAS_MAX = 1024
"""More processes than this on one host are a mistake, or an attack."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PrivatePcs:
    """A PCS that the front end started for itself."""

    pid: int
    address: str
    sockets: str
    lifeline: int
    """The write end of its lifeline: closing it ends the PCS and all its replicas."""


def start_private(token: bytes, sockets: str) -> PrivatePcs:
    """Fork a PCS off this process, which must not have ZeroMQ sockets or threads yet."""
    lifeline_read, lifeline_write = os.pipe()
    address = f"ipc://{sockets}/pcs"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(lifeline_read)
        return PrivatePcs(pid, address, sockets, lifeline_write)
    status = 1
    try:
        os.close(lifeline_write)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        _, line = zygote.start(lifeline_read)
        Service(token, address, sockets, line, lifeline_read).run()
        status = 0
    except Exception:
        log.exception("the PCS failed")
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
        os._exit(status)


class Service:
    def __init__(self, token: bytes, address: str, sockets: str, line: zygote.Line, lifeline: int) -> None:
        self._endpoint = Endpoint(token)
        self._endpoint.bind(address)
        self._token = token
        self._sockets = sockets
        self._line = line
        self._lifeline = lifeline
        self._alive: set[int] = set()
        self._owner: bytes | None = None
        """The PuppetMaster's connection, to report deaths to."""
        self._stopping = False

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        self._endpoint.also_wake_for([self._line.sock.fileno(), self._lifeline])
        try:
            while not self._stopping:
                received, woke = self._endpoint.receive(1000)
                if self._lifeline in woke:
                    return
                if self._line.sock.fileno() in woke:
                    self._on_zygote()
                for item in received:
                    self._on_message(item)
        except EOFError:
            log.error("the zygote is gone")
        finally:
            self._line.sock.close()
            self._wait_for_zygote()
            self._endpoint.close(linger_ms=200)

    def _stop(self) -> None:
        self._stopping = True

    def _wait_for_zygote(self) -> None:
        """The zygote ends its children when our line to it closes; we go only when they are gone."""
        with contextlib.suppress(ChildProcessError):
            os.wait()

    def _on_message(self, received: Received) -> None:
        message = received.message
        if isinstance(message, control.Spawn):
            if self._owner is None:
                logs.configure(process="pcs", file=os.path.join(message.folder, "pcs.log"))
            self._owner = received.reply_to
            self._spawn(message, received.reply_to)
        elif isinstance(message, control.Shutdown):
            self._stopping = True
        else:
            self._endpoint.drop(f"a {type(message).__name__} is not for a PCS")

    def _spawn(self, request: control.Spawn, reply_to: bytes) -> None:
        try:
            bind = self._check(request)
        except UserError as refusal:
            log.warning("spawn refused", reason=str(refusal))
            self._endpoint.reply(reply_to, control.Refused(request.operator, request.replica, str(refusal)))
            return
        self._line.send(
            Fork(
                token=self._token,
                plan=request.plan,
                operator=request.operator,
                replica=request.replica,
                master=request.master,
                bind=bind,
                folder=request.folder,
                sockets=self._sockets,
                shake=request.shake,
            )
        )

    def _check(self, request: control.Spawn) -> str:
        """Where the replica is to listen; UserError if the request cannot be met."""
        if len(self._alive) >= REPLICAS_MAX:
            raise UserError(f"this PCS already runs {REPLICAS_MAX} replicas, the most it may")
        try:
            plan = msgspec.msgpack.decode(request.plan, type=Plan)
            spec = plan.operators[request.operator].replicas[request.replica]
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
            raise UserError(f"the plan cannot be read or has no such replica: {error}") from None
        return spec.address or f"ipc://{self._sockets}/{request.operator}.{request.replica}"

    def _on_zygote(self) -> None:
        for payload in self._line.receive():
            report = msgspec.msgpack.decode(payload, type=Forked | Ended)
            message: control.Spawned | control.Died
            if isinstance(report, Forked):
                self._alive.add(report.pid)
                message = control.Spawned(report.operator, report.replica, report.pid)
            else:
                self._alive.discard(report.pid)
                message = control.Died(report.operator, report.replica, report.pid, report.status)
                log.info("replica ended", operator=report.operator, replica=report.replica, status=report.status)
            if self._owner is not None:
                self._endpoint.reply(self._owner, message)
