"""The service: starts replicas on request, sees them die, and has the last word on bringing them back.

It does what a request asks or refuses it with a reason; a request that makes no sense changes nothing. It is the
parent of its replicas (through the zygote), so it knows of a death at once and tells the ring; the ring's next living
replica then asks for a new incarnation. A replica that lives and was heard of lately is never replaced, whoever asks;
one that hangs is killed first, so that two incarnations do not write one file. If nobody of a ring is left to ask, the
PCS acts by itself. It holds the snapshots of operators that have no peers.

It ends when its lifeline closes, when it is told to, and when its zygote is gone, without which it can neither start
nor watch replicas; whatever the reason, its replicas end before it does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

import msgspec
import structlog

from dadstorm import logs
from dadstorm.core.holder import Holder
from dadstorm.core.messages import PCS, Beat, Copy, Down, Peer, Seek, Settle
from dadstorm.core.replica import give
from dadstorm.errors import UserError
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.codec import Rubbish, decode_table
from dadstorm.wire.endpoint import Endpoint, Received, directory_problem
from pcs import zygote
from pcs.zygote import Ended, Fork, Forked, NotForked

REPLICAS_MAX = 1024
"""More processes than this on one host are a mistake, or an attack."""
ZYGOTE_PATIENCE_S = 3.0
"""How long the zygote may take to end the replicas, which it kills, and itself."""
TICK_S = 0.1
SHORT_LIFE_S = 1.0
SHORT_LIVES_MAX = 5
"""So many incarnations in a row that died this young: something kills them each time; to bring them back is no help."""
FAILED_STATUS = 1
"""A replica that ends with this has said why; bringing it back would only make it say so again."""

log = structlog.get_logger()


@dataclass(slots=True)
class Child:
    """A replica of this host: what it was asked for with, and its present incarnation."""

    name: str
    request: control.Spawn
    bind: str
    ring: int
    """How many replicas its operator has."""
    suspect_after_s: float
    incarnation: int = 0
    pid: int | None = None
    alive: bool = True
    born: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    short_lives: int = 0
    over: bool = False
    """It has ended for good: finished, failed, or not worth another try."""


class Service:
    def __init__(
        self, token: bytes, address: str, sockets: str, zygote_pid: int, line: zygote.Line, lifeline: int
    ) -> None:
        self._endpoint = Endpoint(token)
        self._endpoint.bind(address)
        self._address = address
        self._token = token
        self._sockets = sockets
        self._zygote_pid = zygote_pid
        self._line = line
        self._lifeline = lifeline
        self._children: dict[Peer, Child] = {}
        self._holder = Holder(PCS, 0)
        self._sizes: list[int] = []
        """How many replicas each operator of the plan has."""
        self._directory: tuple[tuple[str, ...], ...] = ()
        self._started = False
        self._draining = False
        self._owner: bytes | None = None
        """The PuppetMaster's connection, to report deaths to."""
        self._stopping = False
        self._next_tick = 0.0

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        self._endpoint.also_wake_for([self._line.sock.fileno(), self._lifeline])
        try:
            while not self._stopping:
                received, woke = self._endpoint.receive(TICK_S * 1000)
                if self._lifeline in woke:
                    return
                if self._line.sock.fileno() in woke:
                    self._on_zygote()
                for item in received:
                    self._on_message(item)
                self._tick()
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
        orphans = [child.pid for child in self._children.values() if child.pid is not None]
        for process in orphans if pid else [self._zygote_pid, *orphans]:
            kill(process)
        if not pid:
            os.waitpid(self._zygote_pid, 0)

    # -- requests ------------------------------------------------------------------------------------------------

    def _on_message(self, received: Received) -> None:
        message = received.message
        if isinstance(message, control.Spawn):
            self._spawn(message, received.reply_to)
        elif isinstance(message, control.Respawn):
            self._respawn_on_request(message)
        elif isinstance(message, Beat):
            child = self._children.get(Peer(message.operator, message.replica))
            if child is not None and message.incarnation == child.incarnation:
                child.heard = time.monotonic()
        elif isinstance(message, Copy | Settle | Seek):
            self._hold(message, received)
        elif isinstance(message, control.Directory):
            self._on_directory(message)
        elif isinstance(message, control.Start):
            self._started = True
        elif isinstance(message, control.Drain):
            self._draining = True
        elif isinstance(message, control.Shutdown):
            self._stopping = True
        else:
            self._endpoint.drop(f"a {type(message).__name__} is not for a PCS")

    def _on_directory(self, message: control.Directory) -> None:
        problem = directory_problem(message, self._sizes)
        if problem:
            self._endpoint.drop(problem)
        else:
            self._directory = message.addresses

    def _spawn(self, request: control.Spawn, reply_to: bytes) -> None:
        try:
            child = self._check(request)
        except UserError as refusal:
            log.warning("spawn refused", reason=str(refusal))
            self._endpoint.reply(reply_to, control.Refused(request.operator, request.replica, str(refusal)))
            return
        if self._owner is None:
            logs.configure(process="pcs", file=os.path.join(request.folder, "pcs.log"))
        self._owner = reply_to
        peer = Peer(request.operator, request.replica)
        self._children[peer] = child
        self._fork(peer, child, None)

    def _check(self, request: control.Spawn) -> Child:
        """What is to be started; UserError if the request cannot be met."""
        if len(self._children) >= REPLICAS_MAX:
            raise UserError(f"this PCS already runs {REPLICAS_MAX} replicas, the most it may")
        if Peer(request.operator, request.replica) in self._children:
            raise UserError("it is running already")
        if "\0" in request.folder or not os.access(request.folder, os.W_OK | os.X_OK):
            raise UserError(f"the folder {request.folder!r} for its log cannot be written")
        try:
            plan = msgspec.msgpack.decode(request.plan, type=Plan)
            if min(request.operator, request.replica) < 0:
                raise IndexError("negative numbers")
            operator = plan.operators[request.operator]
            spec = operator.replicas[request.replica]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
            raise UserError(f"the plan cannot be read or has no such replica: {error}") from None
        self._sizes = [len(each.replicas) for each in plan.operators]
        bind = spec.address or f"ipc://{self._sockets}/{request.operator}.{request.replica}"
        name = f"{operator.name} replica {request.replica}"
        return Child(name, request, bind, len(operator.replicas), plan.suspect_after_ms / 1000)

    def _fork(self, peer: Peer, child: Child, resume: control.Resume | None) -> None:
        child.pid, child.alive = None, True
        child.born = child.heard = time.monotonic()
        self._line.send(
            Fork(
                token=self._token,
                plan=child.request.plan,
                operator=peer.operator,
                replica=peer.replica,
                master=child.request.master,
                bind=child.bind,
                folder=child.request.folder,
                sockets=self._sockets,
                shake=child.request.shake,
                pcs=self._address,
                incarnation=child.incarnation,
                resume=resume,
            )
        )

    def _hold(self, message: Copy | Settle | Seek, received: Received) -> None:
        """Snapshots of an operator without peers."""
        child = self._children.get(Peer(message.operator, message.replica))
        if child is None:
            self._endpoint.drop(f"a {type(message).__name__} of a replica that is not ours")
            return
        if isinstance(message, Seek):
            for index in message.slices:
                found = give(self._holder, PCS, Peer(message.operator, message.replica), index)
                self._endpoint.send(child.bind, found.message, found.table)
        elif isinstance(message, Copy):
            try:
                table = None if received.body is None else decode_table(received.body)
            except Rubbish as reason:
                self._endpoint.drop(str(reason))
                return
            self._endpoint.send(child.bind, self._holder.copy(message, table))
        else:
            self._endpoint.send(child.bind, self._holder.settle(message))

    # -- deaths and recoveries -----------------------------------------------------------------------------------

    def _on_zygote(self) -> None:
        for payload in self._line.receive():
            report = msgspec.msgpack.decode(payload, type=Forked | NotForked | Ended)
            peer = Peer(report.operator, report.replica)
            child = self._children[peer]
            if isinstance(report, Forked):
                child.pid = report.pid
                self._tell_owner(control.Spawned(*peer, report.pid))
            elif isinstance(report, NotForked):
                child.alive, child.over = False, True
                self._tell_owner(control.Refused(*peer, report.reason))
            elif report.pid == child.pid:
                self._on_death(peer, child, report)

    def _tell_owner(self, message: control.Message) -> None:
        if self._owner is not None:
            self._endpoint.reply(self._owner, message)

    def _on_death(self, peer: Peer, child: Child, report: Ended) -> None:
        log.info("replica ended", operator=peer.operator, replica=peer.replica, pid=report.pid, status=report.status)
        child.pid, child.alive = None, False
        short = time.monotonic() - child.born < SHORT_LIFE_S
        child.short_lives = child.short_lives + 1 if short else 0
        child.over = report.status in (0, FAILED_STATUS)
        self._tell_owner(control.Died(*peer, report.pid, report.status, recovers=not child.over))
        if not child.over and child.short_lives >= SHORT_LIVES_MAX:
            child.over = True
            text = (
                f"{child.name} died {child.short_lives} times in a row, each time within {SHORT_LIFE_S:.0f} s: "
                f"{describe(report.status)}; see the logs in {child.request.folder}"
            )
            self._endpoint.send(child.request.master, control.Failed(*peer, "run", text))
        if not child.over:
            self._spread_the_news(peer, child)

    def _tick(self) -> None:
        """Say again who is dead, as long as nobody does something about it."""
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + TICK_S
        for peer, child in self._children.items():
            if not child.alive and not child.over:
                self._spread_the_news(peer, child)

    def _spread_the_news(self, peer: Peer, child: Child) -> None:
        """Tell the ring who is down; if nobody is left in it, or it has not begun yet, act."""
        if not self._directory:
            self._fork(peer, child, None)
            return
        others = [Peer(peer.operator, replica) for replica in range(child.ring) if replica != peer.replica]
        living = [other for other in others if other not in self._children or self._children[other].alive]
        for other in living:
            address = self._directory[other.operator][other.replica]
            self._endpoint.send(address, Down(peer.operator, peer.replica, child.incarnation))
        if not living:
            self._respawn(peer, child)

    def _respawn_on_request(self, request: control.Respawn) -> None:
        peer = Peer(request.operator, request.replica)
        child = self._children.get(peer)
        if child is None or child.over:
            return
        if not child.alive:
            self._respawn(peer, child)
        elif request.incarnation > child.incarnation and time.monotonic() - child.heard > child.suspect_after_s:
            log.warning("replica hangs: killed", operator=peer.operator, replica=peer.replica, pid=child.pid)
            if child.pid is not None:
                kill(child.pid)

    def _respawn(self, peer: Peer, child: Child) -> None:
        """Start a new incarnation; it asks everybody in its ring who is not known to be dead for copies."""
        child.incarnation += 1
        living = {
            replica: self._children[other].incarnation if other in self._children else 0
            for replica in range(child.ring)
            for other in [Peer(peer.operator, replica)]
            if other != peer and (other not in self._children or self._children[other].alive)
        }
        log.info("respawn", operator=peer.operator, replica=peer.replica, incarnation=child.incarnation, living=living)
        self._fork(peer, child, control.Resume(living, self._directory, self._started, self._draining))


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def describe(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"killed by signal {-status}"
