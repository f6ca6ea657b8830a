"""The replica process: a thin shell around the ``ReplicaMachine``.

One thread, one loop: take the messages that are there, let the machine work for a few milliseconds, read sources,
commit sinks, tell the producers what is safe. All decisions are the machine's; the shell owns sockets, files and the
clock. The clock decides when something happens (a commit, a report, the size of a step), never what comes out.

The process ends when the PuppetMaster says so, when its work fails (after telling why), and at once when its *lifeline*
closes: a pipe whose other end is held by whoever wants this process to live.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import get_args

import zmq

from dadstorm import custom_load, logs
from dadstorm.assignment import Assignment
from dadstorm.audit import DigestFile
from dadstorm.core.audit import Audited
from dadstorm.core.checks import ProtocolError
from dadstorm.core.keeper import SendCopy, SendSettle
from dadstorm.core.line import END
from dadstorm.core.messages import DISK, PCS, Adopt, Beat, Peer, Tiles
from dadstorm.core.messages import Message as PeerMessage
from dadstorm.core.outlet import Send
from dadstorm.core.replica import Action, Give, Open, ReplicaMachine
from dadstorm.core.ring import Respawn
from dadstorm.core.slice import Deliver, Emitted, Tell
from dadstorm.core.steward import PATIENCE
from dadstorm.durable.disk import Disk, journals
from dadstorm.durable.loss import lost
from dadstorm.emitted import EmittedLines
from dadstorm.errors import UserError
from dadstorm.heart import Heart
from dadstorm.late import Late
from dadstorm.operators import make_kernel
from dadstorm.pace import FEW_ROWS, REST_MS_MIN, STEP_MS_GOAL, STEP_ROWS_MAX, Pace, Rest, Steps
from dadstorm.reports import Reports
from dadstorm.sinks import make_sink
from dadstorm.sinks.base import Sink
from dadstorm.sources import make_reader
from dadstorm.sources.base import Reader
from dadstorm.stopwatch import now_ms
from dadstorm.whereabouts import Whereabouts
from dadstorm.wire import control
from dadstorm.wire.bodies import decode_rows, decode_table
from dadstorm.wire.codec import Content, Frame, Rubbish
from dadstorm.wire.cuts import Cuts, barred
from dadstorm.wire.endpoint import Endpoint, Received, directory_problem
from dadstorm.wire.keys import load as load_keys

COMMIT_EVERY_MS = 50.0
TICK_MS = 100.0
"""How often a replica tells its neighbours that and where it is, and says again what may have been lost."""
PEERS = get_args(PeerMessage)
"""The kinds of message that the machine handles."""
IDLE_MS = 100.0
"""The longest sleep with nothing to do."""
SUPERSEDED_STATUS = 3
"""How a replica ends that finds itself replaced."""
LINGER_MS = 2000
"""How long the last words of a replica may take to leave."""

log = logs.get_logger()


class ReplicaProcess:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._plan = assignment.decoded_plan
        self._operator = self._plan.operators[assignment.me.operator]
        self._input_schema = self._plan.input_schema(self._operator) if self._operator.inputs else None
        self.name = f"{self._operator.name}.{assignment.me.replica}"
        self._keys = None if assignment.keys is None else load_keys(assignment.keys)
        self._heart: Heart | None = None
        self._endpoint = Endpoint(assignment.token, keys=self._keys)
        self._endpoint.limit(assignment.pcs, assignment.pcs_bytes_max)
        self._address_bound = ""
        self._machine: ReplicaMachine | None = None
        self._disk: Disk | None = None
        self._readers: dict[int, Reader] = {}
        self._sinks: dict[int, Sink] = {}
        self._unopened: list[Open] = []
        """Sources that are opened when they are started."""
        self._asked: dict[int, int] = {}
        """Per slice of a sink: the newest cut whose commit was asked for."""
        self._where = Whereabouts()
        self._early: list[Received] = []
        self._started = False
        self._pace = Pace()
        self._steps = Steps()
        self._rests: dict[int, Rest] = {}
        me, incarnation, resume = assignment.me, assignment.incarnation, assignment.resume
        self._reports = Reports(self._endpoint, assignment.master, assignment.pcs, me, incarnation, resume)
        self._digests = DigestFile(assignment.folder, self.name, assignment.incarnation)
        self._draining = self._stopping = False
        self._status = 0
        self._next_commit = self._next_tick = 0.0
        self._late: Late[Received] = Late(assignment.shake.delay_ms, assignment.shake_seed)

    # -- life ----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Live until told to stop; the exit code."""
        linger_ms = 0
        try:
            self._bind()
            self._say_hello()
            if self._plan.logging == "full":
                ragged = any(operator.params.get("ragged") for operator in self._plan.operators)
                self._reports.log_tuples(EmittedLines(self._address_bound, ragged=ragged))
            self._build()
            while not self._stopping:
                self._turn()
            return self._status
        except LifelineClosed:
            return 0
        except BaseException as error:  # Also SystemExit: nothing here may end without a word.
            linger_ms = LINGER_MS
            self._reports.last_words(error)
            return 1
        finally:
            if self._heart is not None:
                self._heart.stop()
            for close in [*(r.close for r in self._readers.values()), *(s.close for s in self._sinks.values())]:
                with contextlib.suppress(OSError):
                    close()
            self._endpoint.close(linger_ms)

    def _say_hello(self) -> None:
        hello = control.Hello(*self._assignment.me, os.getpid(), self._address_bound, self._assignment.incarnation)
        self._endpoint.send(self._reports.master, hello)

    def _bind(self) -> None:
        try:
            self._address_bound = self._endpoint.bind(self._assignment.bind)
        except zmq.ZMQError as error:
            raise UserError(
                f"operator {self._operator.name}: cannot listen on {self._assignment.bind}: {error.strerror}. "
                "Choose another address, or leave it out to have one chosen."
            ) from None

    def _build(self) -> None:
        assignment = self._assignment
        self._machine = ReplicaMachine(
            self._plan, assignment.me, lambda op: make_kernel(op, self._plan), assignment.incarnation
        )
        if self._plan.durable is not None:
            self._disk = Disk(self._plan, assignment.me)
        self._machine.tapped = self._plan.logging == "full"
        if assignment.confined:
            # The PCS is a daemon, and may come back; a private one would take us with it.
            self._machine.steward.patience_ms = PATIENCE * self._plan.suspect_after_ms
        if assignment.resume is not None:
            log.info("resuming", incarnation=assignment.incarnation, living=assignment.resume.living)
            self._where = Whereabouts(assignment.resume.directory, assignment.resume.moved)
            self._draining = assignment.resume.draining
            self._pace.set_interval(assignment.resume.interval_ms)
            self._late.slow(assignment.resume.slow_ms)
            self._cut(assignment.resume.cuts)
            self._do(self._machine.begin(assignment.resume.living, assignment.resume.slices))
            if assignment.resume.started:
                self._start()

    def _say(self, text: str) -> None:
        self._endpoint.send(self._reports.master, control.Said(self._assignment.me.operator, text))

    # -- the loop ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """One round: messages, work, sources, commits, reports."""
        machine = self._require_machine()
        received, woke = self._wait(machine)
        for item in self._late.pass_on(received, (isinstance(item.message, PEERS) for item in received), now_ms()):
            self._on_message(machine, item)
        for answer, table in self._disk.answers() if self._disk else ():
            self._do(machine.handle(answer, table))
        if self._started and machine.resumed:
            self._work(machine)
            self._drain(machine)
            self._read(machine, woke)
            if not self._pace.frozen:
                self._commit(machine)
        self._tick(machine)
        self._do(machine.announce())
        self._reports.turn(machine, self._state(machine), now_ms())

    def _wait(self, machine: ReplicaMachine) -> tuple[list[Received], set[int]]:
        """Messages, and the file descriptors that woke us. If a source's rest is what we waited for, it is looked at
        without a turn in between, which would make the rest longer by half."""
        now = now_ms()  # One for both: a rest that ended in between would leave us waiting for neither end nor reader.
        patience = self._patience_ms(machine, now)
        received, woke = self._listen(machine, now, patience)
        if patience and self._readers and not received and not woke:
            received, woke = self._listen(machine, now_ms(), 0.0)
        if self._assignment.lifeline in woke:
            raise LifelineClosed
        return received, woke

    def _listen(self, machine: ReplicaMachine, now: float, patience_ms: float) -> tuple[list[Received], set[int]]:
        lifeline = self._assignment.lifeline
        fds = [] if lifeline is None else [lifeline]
        fds += [fd for sink in self._sinks.values() for fd in sink.wake_fds()]
        for index, reader in self._readers.items():
            if self._rests[index].over(now) and machine.sources[index].room[0]:
                fds += reader.wake_fds()
        self._endpoint.also_wake_for(fds if self._disk is None else [*fds, self._disk.wake_fd])
        return self._endpoint.receive(patience_ms)

    def _tick(self, machine: ReplicaMachine) -> None:
        now = now_ms()
        if now < self._next_tick or not self._where:
            return
        self._next_tick = now + TICK_MS
        self._do(machine.tick(now, lambda index, cut: self._readers[index].mark(cut)))
        if self._heart is None:
            self._heart = self._start_heart()
        if machine.superseded:
            self._step_down()

    def _step_down(self) -> None:
        log.warning("superseded by a higher incarnation: stepping down")
        self._stopping, self._status = True, SUPERSEDED_STATUS

    def _start_heart(self) -> Heart:
        beat, token, keys = Beat(*self._assignment.me, self._assignment.incarnation), self._assignment.token, self._keys
        return Heart(lambda: Endpoint(token, fleeting=True, keys=keys), beat, self._beaten(), self._endpoint.barred)

    def _beaten(self) -> list[str]:
        """Who has to know that we live."""
        operator, replica = self._assignment.me
        ring = [address for number, address in enumerate(self._where.addresses[operator]) if number != replica]
        return sorted({self._assignment.pcs, *ring})

    def _patience_ms(self, machine: ReplicaMachine, now: float) -> float:
        """How long to wait for messages: not at all while there is work."""
        if self._late:
            return REST_MS_MIN
        if not self._started:
            return IDLE_MS
        wait_ms = self._pace.wait_ms(now)
        if wait_ms or machine.has_work():
            return min(wait_ms, IDLE_MS)
        patience = IDLE_MS
        # What was asked for and takes its time wakes us when it is done.
        if any(self._asked[index] < machine.sinks[index].done for index in self._sinks):
            patience = max(0.0, self._next_commit - now)
        for index, reader in self._readers.items():
            if index in machine.sources and machine.sources[index].room[0]:
                patience = min(patience, self._rests[index].left_ms(now, reader.wake_fds()))
        return patience

    def _on_message(self, machine: ReplicaMachine, received: Received) -> None:
        message = received.message
        if isinstance(message, PEERS):
            if not self._where:
                self._early.append(received)
                return
            if isinstance(message, Adopt):
                self._on_adopt(machine, message, received)
            else:
                self._on_peer(machine, message, received)
        elif isinstance(message, control.Directory):
            self._on_directory(machine, message)
        elif isinstance(message, control.Start):
            if not message.operators or self._assignment.me.operator in message.operators:
                self._start()
        elif isinstance(message, control.Interval):
            if message.operator == self._assignment.me.operator and message.ms >= 0:
                self._pace.set_interval(message.ms)
        elif isinstance(message, control.Freeze):
            if message.incarnation == self._assignment.incarnation:
                self._pace.frozen = message.frozen
        elif isinstance(message, control.Slow):
            if Peer(message.operator, message.replica) == self._assignment.me and message.ms >= 0:
                self._late.slow(message.ms)
        elif isinstance(message, control.Partition):
            self._cut(message.cuts)
        elif isinstance(message, control.Moved):
            self._on_moved(message)
        elif isinstance(message, control.Look):
            self._reports.answer(machine, self._state(machine), now_ms(), message.number)
        elif isinstance(message, control.Drain):
            self._draining = True
        elif isinstance(message, control.Master):
            if self._reports.take(message):
                self._say_hello()
        elif isinstance(message, control.Stop):
            self._stopping = True
            if message.complete and self._disk is not None:
                self._disk.clear()
        else:
            self._endpoint.drop(f"a {type(message).__name__} is not for replicas")

    def _on_adopt(self, machine: ReplicaMachine, message: Adopt, received: Received) -> None:
        """Slices of a peer that is lost are to be resumed here; who asks for that is to hear that it was heard."""
        known, begun = machine.hosts(message.slices), now_ms()
        self._on_peer(machine, message, received)
        if machine.hosts(message.slices):
            self._endpoint.send(self._assignment.pcs, control.Adopted(*self._assignment.me, message.slices))
            if not known:
                self._reports.adopts(message, begun)

    def _cut(self, cuts: Cuts) -> None:
        """From now on the network looks cut like this."""
        self._endpoint.barred = barred(cuts, [self._address_bound])
        if self._heart is not None:
            self._heart.barred = self._endpoint.barred

    def _on_directory(self, machine: ReplicaMachine, message: control.Directory) -> None:
        problem = directory_problem(message, [len(operator.replicas) for operator in self._plan.operators])
        if problem:
            self._endpoint.drop(problem)
            return
        if self._where:
            return
        self._where = Whereabouts(message.addresses)
        self._do(machine.begin())
        early, self._early = self._early, []
        for item in early:
            self._on_message(machine, item)

    def _on_moved(self, message: control.Moved) -> None:
        """Somebody lives elsewhere now; if it is who we are, we have been replaced."""
        if Peer(message.operator, message.replica) == self._assignment.me:
            if message.incarnation > self._assignment.incarnation:
                self._step_down()
        elif (left := self._where.move(message)) is not None and left != message.address:
            self._endpoint.hang_up(left)
            if self._heart is not None:
                self._heart.addresses = self._beaten()

    def _on_peer(self, machine: ReplicaMachine, message: PeerMessage, received: Received) -> None:
        if isinstance(message, Beat) and (replaced := self._where.replaced(message)) is not None:
            self._endpoint.send(*replaced)
            self._endpoint.hang_up(replaced[0])
        try:
            self._do(machine.handle(message, self._content(message, received.body), now_ms()))
        except (ProtocolError, Rubbish) as error:
            self._endpoint.drop(str(error))

    def _content(self, message: PeerMessage, body: Frame | None) -> Content:
        """What a message carries, decoded."""
        if body is None:
            return None
        if not isinstance(message, Tiles):
            return decode_table(body)
        if self._input_schema is None:
            raise ProtocolError("tiles for a source")
        return decode_rows(body, self._input_schema)

    def _start(self) -> None:
        self._started = True
        unopened, self._unopened = self._unopened, []
        for action in unopened:
            self._open(action)

    def _open(self, action: Open) -> None:
        """Resume the I/O of a slice; a source waits for its Start."""
        if self._operator.kind == "sink":
            machine = self._require_machine()
            mark = None if action.mark is None else dict(action.mark)
            self._sinks[action.slice] = make_sink(
                self._operator, self._plan, mark=mark, cut=action.cut, say=self._say,
                run=self._assignment.run_of(self._plan), folder=self._assignment.folder,
                stride=lambda: machine.sinks[action.slice].stride.most)  # fmt: skip
            self._asked[action.slice] = action.cut
        elif not self._started:
            self._unopened.append(action)
        else:
            self._rests[action.slice] = Rest(self._plan.flush_every_ms)
            self._readers[action.slice] = make_reader(
                self._operator.head,
                self._plan,
                action.slice,
                run_dir=journals(self._plan, self._assignment.folder),
                sockets=self._assignment.sockets,
                folder=self._assignment.folder,
                mark=None if action.mark is None else dict(action.mark),
                cut=action.cut,
            )

    # -- work ----------------------------------------------------------------------------------------------------

    def _work(self, machine: ReplicaMachine) -> None:
        """Steps until about STEP_MS_GOAL is used up; a step that takes long makes the next ones smaller."""
        begun = now_ms()
        batch_max = self._assignment.shake.batch_max
        while machine.has_work():
            rows = min(self._steps.rows, batch_max) if batch_max else self._steps.rows
            step_begun = now_ms()
            rows = self._pace.allowed(rows, step_begun)
            if not rows:
                return
            before = machine.rows_in
            self._do(machine.work(rows))
            now = now_ms()
            if machine.rows_in > before:
                self._pace.took(now)
            self._steps.took(now - step_begun)
            if now - begun > STEP_MS_GOAL:
                return

    def _drain(self, machine: ReplicaMachine) -> None:
        """Let sources take in nothing new, as soon as their streams may end where they stand."""
        for index, reader in self._readers.items():
            source = machine.sources[index]
            source.stopping = self._draining
            if source.may_drain:
                source.draining = True
                reader.drain()
            self._do(source.end(reader.mark))

    def _read(self, machine: ReplicaMachine, woke: set[int]) -> None:
        for index, reader in self._readers.items():
            source = machine.sources[index]
            rows_max, bytes_max = source.room
            begun = now_ms()
            rows_max = self._pace.allowed(rows_max, begun)
            if not rows_max or not self._rests[index].due(begun, reader.wake_fds(), woke):
                continue
            rows_max = min(rows_max, self._assignment.shake.batch_max or STEP_ROWS_MAX)
            records = reader.read(rows_max, bytes_max)
            self._do(source.records(records.rows, records.hi, records.dead, reader.mark))
            if len(records.rows):
                self._pace.took(now_ms())
            more = len(records.rows) >= min(rows_max, FEW_ROWS)
            self._rests[index].looked(begun, now_ms(), more=more)

    def _commit(self, machine: ReplicaMachine) -> None:
        """Ask sinks to commit now and then and at the end; learn what they have committed."""
        now = now_ms()
        for index, sink in self._sinks.items():
            done = machine.sinks[index].done
            if done > self._asked[index] and (now >= self._next_commit or done == END):
                sink.commit(done)
                self._asked[index] = done
                self._next_commit = now + COMMIT_EVERY_MS
            if sink.committed > machine.sinks[index].committed:
                self._do(machine.sinks[index].commit(sink.committed, sink.mark()))

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if self._disk and isinstance(action, Tell | SendSettle | SendCopy) and action.to.replica == DISK:
                self._disk.take(action.message, action.table if isinstance(action, SendCopy) else None)
            elif isinstance(action, Send):
                self._endpoint.send(self._address(action.to), action.message, action.rows)
            elif isinstance(action, Tell | SendSettle):
                self._endpoint.send(self._address(action.to), action.message)
            elif isinstance(action, SendCopy | Give):
                self._endpoint.send(self._address(action.to), action.message, action.table)
            elif isinstance(action, Deliver):
                sink = self._sinks[action.slice]
                if len(action.rows) and sink.committed < END:
                    sink.write(action.rows, action.again)
            elif isinstance(action, Emitted):
                self._reports.emitted(action.rows)
            elif isinstance(action, Audited):
                self._digests.write(action)
            elif isinstance(action, Open):
                self._open(action)
            elif isinstance(action, Respawn):
                me = self._assignment.me
                log.info("leading a recovery", replica=action.replica, incarnation=action.incarnation)
                request = control.Respawn(me.operator, action.replica, action.incarnation)
                self._endpoint.send(self._assignment.pcs, request)
            else:
                raise lost(self._plan, action)

    def _address(self, peer: Peer) -> str:
        return self._assignment.pcs if peer.replica == PCS else self._where.of(peer)

    def _state(self, machine: ReplicaMachine) -> control.State:
        if not machine.resumed and self._assignment.incarnation:
            return "recovering"
        if not machine.resumed or not self._started:
            return "waiting"
        return "finished" if machine.finished else "frozen" if self._pace.frozen else "running"

    def _require_machine(self) -> ReplicaMachine:
        assert self._machine is not None, "the machine is built before the first turn"
        return self._machine


class LifelineClosed(Exception):
    """Whoever wanted this process to live is gone."""


def main(assignment: Assignment) -> int:
    """What a freshly forked process runs."""
    if assignment.confined:
        custom_load.confine()
    process = ReplicaProcess(assignment)
    logs.configure(process=process.name, file=os.path.join(assignment.folder, f"{process.name}.log"))
    return process.run()
