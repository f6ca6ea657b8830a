"""The service: takes spawn requests, has the zygote fork replicas, and reports their ends.

It does what a request asks or refuses it with a reason; a request that makes no sense changes nothing. It ends when its
lifeline closes, when it is told to, and when its zygote is gone, without which it can neither start nor watch replicas;
whatever the reason, its replicas end before it does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import msgspec
import structlog

from dadstorm import logs
from dadstorm.core.messages import Peer
from dadstorm.errors import UserError
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.endpoint import Endpoint, Received
from pcs import zygote
from pcs.zygote import Ended, Fork, Forked, NotForked

REPLICAS_MAX = 1024
"""More processes than this on one host are a mistake, or an attack."""
ZYGOTE_PATIENCE_S = 3.0
"""How long the zygote may take to end the replicas, which it kills, and itself."""

log = structlog.get_logger()


class Service:
    def __init__(
        self, token: bytes, address: str, sockets: str, zygote_pid: int, line: zygote.Line, lifeline: int
    ) -> None:
        self._endpoint = Endpoint(token)
        self._endpoint.bind(address)
        self._token = token
        self._sockets = sockets
        self._zygote_pid = zygote_pid
        self._line = line
        self._lifeline = lifeline
        self._running: dict[Peer, int | None] = {}
        """The replicas that were asked for and have not ended, with their pids once they are known."""
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
        except (EOFError, ConnectionError):
            log.error("the zygote is gone", pid=self._zygote_pid)
        except Exception:
            log.exception("the PCS failed")
            raise
        finally:
            self._line.sock.close()
            self._end_replicas()
            self._endpoint.close(linger_ms=200)

    def _stop(self) -> None:
        self._stopping = True

    def _end_replicas(self) -> None:
        """The zygote kills its children when our line to it closes, and we go only when they are gone. If it was
        killed itself, or hangs, they are killed from here."""
        deadline = time.monotonic() + ZYGOTE_PATIENCE_S
        pid = status = 0
        while not pid and time.monotonic() < deadline:
            pid, status = os.waitpid(self._zygote_pid, os.WNOHANG)
            if not pid:
                time.sleep(0.002)
        if pid and status == 0:
            return
        orphans = [child for child in self._running.values() if child is not None]
        for process in orphans if pid else [self._zygote_pid, *orphans]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not pid:
            os.waitpid(self._zygote_pid, 0)

    def _on_message(self, received: Received) -> None:
        message = received.message
        if isinstance(message, control.Spawn):
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
        if self._owner is None:
            logs.configure(process="pcs", file=os.path.join(request.folder, "pcs.log"))
        self._owner = reply_to
        self._running[Peer(request.operator, request.replica)] = None
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
        if len(self._running) >= REPLICAS_MAX:
            raise UserError(f"this PCS already runs {REPLICAS_MAX} replicas, the most it may")
        if Peer(request.operator, request.replica) in self._running:
            raise UserError("it is running already")
        if "\0" in request.folder or not os.access(request.folder, os.W_OK | os.X_OK):
            raise UserError(f"the folder {request.folder!r} for its log cannot be written")
        try:
            plan = msgspec.msgpack.decode(request.plan, type=Plan)
            if min(request.operator, request.replica) < 0:
                raise IndexError("negative numbers")
            spec = plan.operators[request.operator].replicas[request.replica]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
            raise UserError(f"the plan cannot be read or has no such replica: {error}") from None
        return spec.address or f"ipc://{self._sockets}/{request.operator}.{request.replica}"

    def _on_zygote(self) -> None:
        for payload in self._line.receive():
            report = msgspec.msgpack.decode(payload, type=Forked | NotForked | Ended)
            peer = Peer(report.operator, report.replica)
            message: control.Spawned | control.Refused | control.Died
            if isinstance(report, Forked):
                self._running[peer] = report.pid
                message = control.Spawned(*peer, report.pid)
            elif isinstance(report, NotForked):
                self._running.pop(peer, None)
                message = control.Refused(*peer, report.reason)
            else:
                self._running.pop(peer, None)
                message = control.Died(*peer, report.pid, report.status)
                log.info("replica ended", operator=report.operator, replica=report.replica, status=report.status)
            if self._owner is not None:
                self._endpoint.reply(self._owner, message)
