"""A cluster of replica machines whose every move is drawn from a seed.

The same ``ReplicaMachine`` that the replica process drives, without processes, sockets or clocks. At each step one
process, picked at random, does one thing: takes a message, works on some rows, reads records, commits, or lets its
clock tick. One seed is one schedule, exactly. The cluster also plays the PCS (it sees deaths, respawns on request and
holds the copies of operators without peers) and the disk (a sink's file is written at offsets; two incarnations must
write the same rows there).

``faults`` decides what goes wrong: messages lost, doubled, reordered; crashes, freezes, cuts. After the faults
everything heals, and then the run must finish.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dadstorm.core.holder import Holder
from dadstorm.core.keeper import SendCopy, SendSettle
from dadstorm.core.kernel import Kernel
from dadstorm.core.line import END, START
from dadstorm.core.messages import PCS, Copy, Down, Message, Peer, Seek, Settle
from dadstorm.core.outlet import Send
from dadstorm.core.replica import Action, Give, Lost, Open, ReplicaMachine, give
from dadstorm.core.ring import Respawn
from dadstorm.core.rows import Rows
from dadstorm.core.slice import Deliver, Tell
from dadstorm.core.vault import Mark
from dadstorm.plan import Operator, Plan

OWNED_RUN = 3
"""Records are dealt out to the slices of a source in runs of this many seqs, so that slices interleave."""
TICK_MS = 60.0
STEP_MS = 0.5

Body = Any


class Stuck(AssertionError):
    """The run is not finished and does not get anywhere."""


class Wrong(AssertionError):
    """Something happened that must never happen."""


class StateLost(Exception):
    """Every copy of a slice's state is gone: the topology stops."""


@dataclass(slots=True)
class SimulatedSource:
    """One slice of a source: the records it owns, and how far they were given out."""

    rows: Rows
    taken: int = 0

    def read(self, rows_max: int) -> tuple[Rows, int]:
        stop = min(self.taken + rows_max, len(self.rows))
        while 0 < stop < len(self.rows) and self.rows.seq[stop] == self.rows.seq[stop - 1]:
            stop += 1
        rows = self.rows.slice(self.taken, stop)
        self.taken = stop
        return rows, END if stop == len(self.rows) else int(self.rows.seq[stop])


@dataclass(slots=True)
class SimulatedSink:
    """A sink of one incarnation: where in the file it writes, and what the next commit would say."""

    offset: int
    done: int = START


@dataclass(slots=True)
class Process:
    """A replica process: its machine, and what is on its way to it."""

    peer: Peer
    machine: ReplicaMachine
    inbox: list[tuple[Peer, Message, Body]] = field(default_factory=list)
    sources: dict[int, SimulatedSource] = field(default_factory=dict)
    sinks: dict[int, SimulatedSink] = field(default_factory=dict)
    next_tick_ms: float = 0.0
    heard_ms: float = 0.0
    """When the PCS last heard of it."""
    frozen: bool = False
    zombie: bool = False
    """Superseded, but does not know it: it still runs and sends, and nothing reaches it."""


class NoFaults:
    """The faults of a run without faults; what the simulator asks before it does something."""

    reorder = False

    def arrives(self, cluster: Cluster, sender: Peer, to: Peer) -> int:
        """How many times a message arrives: 1, or 0 when it is lost, or 2."""
        return 1

    def strike(self, cluster: Cluster) -> None:
        """Whatever goes wrong at this step."""


class Cluster:
    def __init__(
        self,
        plan: Plan,
        records: Mapping[str, Rows],
        make_kernel: Callable[[Operator], Kernel],
        seed: int,
        batch_max: int = 1 << 30,
        faults: NoFaults | None = None,
    ) -> None:
        self.plan = plan
        self.chance = random.Random(seed)
        self.steps = 0
        self.now_ms = 0.0
        self._next_pcs_ms = TICK_MS
        self.history: list[str] = []
        self._records = records
        self._make_kernel = make_kernel
        self._batch_max = batch_max
        self.faults = faults or NoFaults()
        self.processes: dict[Peer, Process] = {}
        self.zombies: list[Process] = []
        self.incarnations: dict[Peer, int] = {}
        self.pcs = Holder(PCS, 0)
        self.files: dict[Peer, dict[int, tuple[object, ...]]] = {}
        self.told_safe: dict[tuple[int, int], int] = {}
        """Per slice: the highest safe that any incarnation of it has reached."""
        peers = [Peer(i, r) for i, op in enumerate(plan.operators) for r in range(len(op.replicas))]
        self.chance.shuffle(peers)
        for peer in peers:
            self._start(peer, 0, None)

    # -- a run ---------------------------------------------------------------------------------------------------

    def run(self, steps_max: int = 400_000) -> dict[str, list[tuple[object, ...]]]:
        """Every row that each sink wrote, as (seq, sub, fields…), by the sink's name."""
        while not self._finished():
            self.steps += 1
            if self.steps > steps_max:
                raise Stuck(f"not finished after {steps_max} steps: {self.standing()}")
            self.faults.strike(self)
            self.step()
        return self.written()

    def _finished(self) -> bool:
        return self.steps % 16 == 0 and all(
            process is not None and process.machine.finished
            for process in (self.processes.get(peer) for peer in self.incarnations)
        )

    def written(self) -> dict[str, list[tuple[object, ...]]]:
        return {
            self.plan.operators[peer.operator].name: [rows[i] for i in sorted(rows)]
            for peer, rows in self.files.items()
        }

    def step(self) -> None:
        """One process does one thing."""
        self.now_ms += STEP_MS
        running = [p for p in (*self.processes.values(), *self.zombies) if not p.frozen]
        if not running:
            return
        process = self.chance.choice(running)
        if self.now_ms >= self._next_pcs_ms:
            self._next_pcs_ms = self.now_ms + TICK_MS
            self._pcs_tick()
        if self.now_ms >= process.next_tick_ms:
            process.heard_ms = self.now_ms
            process.next_tick_ms = self.now_ms + TICK_MS * (0.5 + self.chance.random())
            self._do(process, process.machine.tick(self.now_ms, lambda index, cut: {"cut": cut}))
        elif process.inbox and self.chance.random() < 0.7:
            self._take(process)
        else:
            self._act(process)
        self._do(process, process.machine.announce())
        self._note_safe(process)
        if process.machine.superseded and process.zombie:
            self.zombies.remove(process)

    def _take(self, process: Process) -> None:
        """One message, or all that are there; in the order of their coming, or in any."""
        for _ in range(self.chance.choice((1, len(process.inbox)))):
            at = self.chance.randrange(len(process.inbox)) if self.faults.reorder else 0
            _, message, body = process.inbox.pop(at)
            self._do(process, process.machine.handle(message, body, self.now_ms))

    def _act(self, process: Process) -> None:
        machine = process.machine
        if machine.has_work():
            self._do(process, machine.work(self._some_rows()))
        for index, source in process.sources.items():
            room = machine.sources[index].room[0]
            if room:
                rows, hi = source.read(min(room, self._some_rows()))
                self._do(process, machine.sources[index].records(rows, hi, None, lambda cut: {"cut": cut}))
        for index, sink in process.sinks.items():
            if sink.done > machine.sinks[index].committed and self.chance.random() < 0.5:
                self._do(process, machine.sinks[index].commit(sink.done, {"offset": sink.offset}))

    def _do(self, process: Process, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._send(process, action.to, action.message, action.rows)
            elif isinstance(action, Tell | SendSettle):
                self._send(process, action.to, action.message, None)
            elif isinstance(action, SendCopy | Give):
                self._send(process, action.to, action.message, action.table)
            elif isinstance(action, Deliver):
                self._write(process, action)
            elif isinstance(action, Open):
                self._open(process, action)
            elif isinstance(action, Respawn):
                if not process.zombie:
                    self._asked_to_respawn(Peer(process.peer.operator, action.replica), action.incarnation)
            else:
                assert isinstance(action, Lost)
                name = self.plan.operators[action.operator].name
                raise StateLost(f"slice {action.slice} of {name} wants {action.wanted}, kept is {action.kept}")

    def _some_rows(self) -> int:
        return self.chance.choice((1, 2, 3, 7, 50, 1 << 20)) if self._batch_max > 1 << 20 else self._batch_max

    # -- messages ------------------------------------------------------------------------------------------------

    def _send(self, process: Process, to: Peer, message: Message, body: Body) -> None:
        for _ in range(self.faults.arrives(self, process.peer, to)):
            if to.replica == PCS:
                self._to_pcs(process, message, body)
            elif to in self.processes:
                self.processes[to].inbox.append((process.peer, message, body))

    def _to_pcs(self, process: Process, message: Message, body: Body) -> None:
        to = process.peer
        answer: Message
        if isinstance(message, Copy):
            answer, table = self.pcs.copy(message, body), None
        elif isinstance(message, Settle):
            answer, table = self.pcs.settle(message), None
        else:
            assert isinstance(message, Seek)
            for index in message.slices:
                found = give(self.pcs, PCS, to, index)
                if self.faults.arrives(self, Peer(to.operator, PCS), to) and to in self.processes:
                    self.processes[to].inbox.append((Peer(to.operator, PCS), found.message, found.table))
            return
        if self.faults.arrives(self, Peer(to.operator, PCS), to) and to in self.processes:
            self.processes[to].inbox.append((Peer(to.operator, PCS), answer, table))

    # -- processes -----------------------------------------------------------------------------------------------

    def _start(self, peer: Peer, incarnation: int, living: Mapping[int, int] | None) -> None:
        self.incarnations[peer] = incarnation
        machine = ReplicaMachine(self.plan, peer, self._make_kernel, incarnation)
        next_tick_ms = self.now_ms + TICK_MS * self.chance.random()
        process = self.processes[peer] = Process(peer, machine, heard_ms=self.now_ms, next_tick_ms=next_tick_ms)
        self._do(process, machine.begin(living))

    def crash(self, peer: Peer) -> None:
        """The process dies; the PCS sees it and tells the ring."""
        self.note(f"crash {self.name(peer)}")
        incarnation = self.processes.pop(peer).machine.incarnation
        for other in [p for p in self.processes if p.operator == peer.operator]:
            down = Down(peer.operator, peer.replica, incarnation)
            for _ in range(self.faults.arrives(self, Peer(peer.operator, PCS), other)):
                self.processes[other].inbox.append((Peer(peer.operator, PCS), down, None))

    def _pcs_tick(self) -> None:
        """The PCS says again who is dead; if nobody of a ring is left, it brings all of them back itself."""
        for peer in self.incarnations:
            if peer in self.processes:
                continue
            others = [p for p in self.processes if p.operator == peer.operator]
            down = Down(peer.operator, peer.replica, self.incarnations[peer])
            for other in others:
                self.processes[other].inbox.append((Peer(peer.operator, PCS), down, None))
            if not others:
                self.respawn(peer)

    def _asked_to_respawn(self, peer: Peer, incarnation: int) -> None:
        """A leader asks the PCS for a new incarnation. One that lives, or that the PCS has heard of lately, is left."""
        process = self.processes.get(peer)
        if process is not None and incarnation <= self.incarnations[peer]:
            return
        if process is not None and self.now_ms - process.heard_ms < self.plan.suspect_after_ms:
            return
        self.respawn(peer)

    def respawn(self, peer: Peer) -> None:
        """The PCS starts a new incarnation. If the old one still runs, it goes on as a zombie."""
        incarnation = self.incarnations[peer] + 1
        living = {p.replica: self.incarnations[p] for p in self.processes if p.operator == peer.operator and p != peer}
        self.note(f"respawn {self.name(peer)} as {incarnation}, asking {living}")
        old = self.processes.pop(peer, None)
        if old is not None:
            old.zombie = True
            self.zombies.append(old)
        self._start(peer, incarnation, living)

    def _open(self, process: Process, action: Open) -> None:
        machine = process.machine
        if machine.operator.kind == "source":
            rows = self._records[machine.operator.name]
            mine = np.flatnonzero(
                (rows.seq // OWNED_RUN % machine.operator.slices == action.slice) & (rows.seq >= action.cut)
            )
            process.sources[action.slice] = SimulatedSource(rows.take(mine))
        else:
            mark: Mark = action.mark or {"offset": 0}
            process.sinks[action.slice] = SimulatedSink(int(mark["offset"]), action.cut)

    def _write(self, process: Process, action: Deliver) -> None:
        sink = process.sinks[action.slice]
        file = self.files.setdefault(process.peer, {})
        columns = [column.to_pylist() for column in action.rows.data.columns]
        for row in zip(action.rows.seq.tolist(), action.rows.sub.tolist(), *columns, strict=True):
            if file.setdefault(sink.offset, row) != row:
                raise Wrong(f"{self.name(process.peer)} writes {row} at {sink.offset}, where {file[sink.offset]} was")
            sink.offset += 1
        sink.done = action.hi

    # -- looking -------------------------------------------------------------------------------------------------

    def _note_safe(self, process: Process) -> None:
        for index, slice_ in process.machine.slices.items():
            key = (process.peer.operator, index)
            self.told_safe[key] = max(self.told_safe.get(key, START), slice_.safe)

    def can_lose(self, peer: Peer) -> bool:
        """Whether every slice of the operator still has a living copy without this replica: the fault model."""
        operator = self.plan.operators[peer.operator]
        if len(operator.replicas) == 1:
            return self.processes[peer].machine.resumed
        rest = [
            process
            for at, process in self.processes.items()
            if at.operator == peer.operator and at != peer and process.machine.resumed and not process.frozen
        ]
        for index in range(operator.slices):
            safe = self.told_safe.get((peer.operator, index), START)
            copies = [p for p in rest if index in p.machine.slices or holds(p.machine, peer.operator, index, safe)]
            if not copies and safe > START:
                return False
        return bool(rest)

    def note(self, text: str) -> None:
        self.history.append(f"{self.steps}: {text}")

    def name(self, peer: Peer) -> str:
        return f"{self.plan.operators[peer.operator].name}.{peer.replica}"

    def standing(self) -> str:
        lines = []
        for peer in self.incarnations:
            process = self.processes.get(peer)
            if process is None:
                lines.append(f"{self.name(peer)} dead")
                continue
            machine = process.machine
            progress = machine.progress
            lines.append(
                f"{self.name(peer)}#{machine.incarnation} resumed {machine.resumed} done {progress.frontier} "
                f"safe {progress.safe} queued {progress.queued} inbox {len(process.inbox)} frozen {process.frozen}"
            )
        return "\n  ".join(["", *lines])


def holds(machine: ReplicaMachine, operator: int, index: int, safe: int) -> bool:
    """Whether a machine holds a copy of a slice that is good enough to resume it."""
    found = machine.holder.find(operator, index)
    return found is not None and found[1].cut >= safe


