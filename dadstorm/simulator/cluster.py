"""A cluster of replica machines whose every move is drawn from a seed.

The same ``ReplicaMachine`` that the replica process drives, without processes, sockets or clocks. Like the process, it
moves in turns: take messages, work, read, commit, say what is safe; how much of each in one turn, and how long it is
until the next, is drawn from the seed. One seed is one schedule, exactly.

``faults`` decides what goes wrong. What must never happen raises ``Wrong`` (an incarnation of a sink writes something
else than the one before), ``StateLost`` (every copy of a slice is gone, though the faults left one), or ``Stuck`` (the
run does not get to its end).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import msgspec

from dadstorm.core.audit import Audited
from dadstorm.core.exchange import Lost
from dadstorm.core.keeper import SendCopy, SendSettle
from dadstorm.core.kernel import Kernel
from dadstorm.core.ledger import Ledger
from dadstorm.core.messages import DISK, PCS, Copy, Message, Peer, Seek, Settle
from dadstorm.core.outlet import Send
from dadstorm.core.replica import Action, Give, Open, ReplicaMachine
from dadstorm.core.ring import Respawn
from dadstorm.core.rows import Rows
from dadstorm.core.slice import Deliver, Tell
from dadstorm.core.vault import Mark
from dadstorm.plan import Operator, Plan
from dadstorm.simulator.agenda import Agenda
from dadstorm.simulator.disk import Row, SimulatedDisk, SimulatedFile, SimulatedSink, SimulatedSource, Wrong
from dadstorm.simulator.network import Body, Envelope, Network
from dadstorm.simulator.pcs import SimulatedPcs, pcs_of
from dadstorm.simulator.process import NEVER, NO_LIMIT, Died, NoFaults, Process
from dadstorm.simulator.puppetmaster import SimulatedPuppetMaster
from dadstorm.simulator.stop import Stop

__all__ = ["NO_LIMIT", "Cluster", "Died", "NoFaults", "Process", "StateLost", "Stuck", "Wrong"]

DISK_MS = 6.0
"""How long at most it takes until something is on disk."""
TURN_MS = (0.3, 1.0, 4.0)
"""How long it is on average until a process does something, from the fastest to the slowest."""
ROWS = (1, 2, 3, 7, 50, 1 << 20)
"""How many rows are read or worked on in one go."""


class Stuck(AssertionError):
    """The run is not finished and does not get anywhere."""


class StateLost(AssertionError):
    """Every copy of a slice's state is gone."""


class Cluster:
    def __init__(
        self,
        plan: Plan,
        records: Mapping[str, Rows],
        make_kernel: Callable[[Operator], Kernel],
        seed: int,
        batch_max: int = NO_LIMIT,
        faults: NoFaults | None = None,
        stop_ms: float = NEVER,
    ) -> None:
        """``stop_ms``: when the user stops the run, if at all."""
        self.plan = plan
        self.chance = random.Random(seed)
        self.agenda = Agenda()
        self.faults = faults or NoFaults()
        self.stop = Stop(stop_ms)
        self.history: list[str] = []
        self.ledger = Ledger()
        """The digests that slices have recorded, if the plan asks for an audit."""
        self._records = records
        self._make_kernel = make_kernel
        self._batch_max = batch_max
        self._network = Network(self.agenda, self.chance, self.faults, self._notified)
        self.processes: dict[Peer, Process] = {}
        self.zombies: list[Process] = []
        self.incarnations: dict[Peer, int] = {}
        self._unfinished: set[Peer] = set()
        self._disk = SimulatedDisk()
        self.recoveries = 0
        """How many incarnations earlier lives of the run have had beyond the first ones, and restarts."""
        peers = [Peer(i, r) for i, op in enumerate(plan.operators) for r in range(len(op.replicas))]
        self.peers = tuple(peers)
        self._files = {op.name: SimulatedFile(op.name) for op in plan.operators if op.kind == "sink"}
        self.pcs = SimulatedPcs(self)
        self.master = self._new_master()
        self.chance.shuffle(peers)
        self.faults.begin(self)
        for peer in peers:
            self.start_first(peer)

    # -- a run ---------------------------------------------------------------------------------------------------

    def run(self, events_max: int = 1_000_000, until_ms: float = NEVER) -> dict[str, list[Row]]:
        """Every row that each sink wrote, as (seq, sub, fields…), by the sink's name."""
        agenda = self.agenda
        while self._unfinished or not self.pcs.settled:
            if agenda.events >= events_max or agenda.now_ms >= until_ms:
                raise Stuck(f"not finished after {agenda.events} events, {agenda.now_ms:.0f} ms")
            agenda.step()
        return self.written()

    @property
    def steps(self) -> int:
        return self.agenda.events

    def written(self) -> dict[str, list[Row]]:
        return {name: file.rows for name, file in self._files.items()}

    def _wake(self, process: Process, when_ms: float) -> None:
        """Let a process have a turn soon after that; the earliest one that was asked for counts."""
        when_ms += process.pace_ms * (0.5 + self.chance.random())
        if when_ms < process.due_ms:
            process.due_ms = when_ms
            self.agenda.at(when_ms, lambda: self._turn(process))

    def _notified(self, to: Peer, arrives_ms: float) -> None:
        process = self.processes.get(to)
        if process is not None:
            self._wake(process, arrives_ms)

    def _turn(self, process: Process) -> None:
        """One round, as of the replica process."""
        if process.due_ms > self.agenda.now_ms:
            return
        process.due_ms = NEVER
        if process.frozen or not process.alive:
            return
        try:
            if process.told and not process.begun:
                self._begin(process)
            self._take(process)
            if process.machine.resumed and process.started:
                self._note_resumed(process)
                self._act(process)
            if process.begun and process.next_tick_ms <= self.agenda.now_ms:
                self._tick(process)
            self._finish_turn(process)
        except Died:
            return
        self._wake(process, self._patience(process))

    def _finish_turn(self, process: Process) -> None:
        machine = process.machine
        self._do(process, machine.announce())
        self.faults.look(process)
        if self.processes.get(process.peer) is not process:
            if machine.superseded:
                self._end(process, "finds itself superseded and steps down")
        elif machine.finished:
            self._unfinished.discard(process.peer)

    def _patience(self, process: Process) -> float:
        """Until when the process has nothing to do, unless something comes that is not on its way yet."""
        machine = process.machine
        now_ms = self.agenda.now_ms
        if not process.begun:
            return now_ms + self.faults.tick_ms
        if process.inbox or (process.started and machine.has_work()):
            return now_ms
        for index, sink in process.sinks.items():
            if sink.done > machine.sinks[index].committed:
                return now_ms
        arrives_ms = self._network.next_ms(process.peer)
        until_ms = process.next_tick_ms if arrives_ms is None else min(process.next_tick_ms, arrives_ms)
        for index, source in process.sources.items():
            if machine.sources[index].room[0] and process.started:
                until_ms = min(until_ms, source.ready_ms)
        return max(now_ms, until_ms)

    def _take(self, process: Process) -> None:
        """All messages that are there, or only some; who does not know yet who is where keeps them for later."""
        if self.processes.get(process.peer) is process:
            arrived = self._network.take(process.peer)
            process.inbox += arrived
            self._leak(process.peer, arrived)
        inbox = process.inbox
        count = len(inbox) if process.begun else 0
        if count > 1 and self.chance.random() < 0.3:
            count = self.chance.randrange(1, count)
        taken, process.inbox = inbox[:count], inbox[count:]
        for message, body in taken:
            self._do(process, process.machine.handle(message, body, self.agenda.now_ms))

    def _leak(self, peer: Peer, arrived: list[Envelope]) -> None:
        """A zombie gets some of the messages for its successor too."""
        for zombie in self.zombies:
            if zombie.peer == peer:
                zombie.inbox += [envelope for envelope in arrived if self.chance.random() < 0.5]
                self._wake(zombie, self.agenda.now_ms)

    def _act(self, process: Process) -> None:
        machine = process.machine
        if machine.has_work():
            self._do(process, machine.work(self._some_rows()))
        for index, source in process.sources.items():
            self._drain(process, index, source)
            room = machine.sources[index].room[0]
            if room and source.ready_ms <= self.agenda.now_ms:
                rows, hi = source.read(min(room, self._some_rows(), self.faults.read_max))
                source.ready_ms = self.agenda.now_ms + self.faults.pause_ms * self.chance.random()
                self._do(process, machine.sources[index].records(rows, hi, None, lambda cut: {"cut": cut}))
        for index, sink in process.sinks.items():
            if sink.done > machine.sinks[index].committed and self.chance.random() < 0.5:
                self._do(process, machine.sinks[index].commit(sink.done, {"offset": sink.offset}))

    def _drain(self, process: Process, index: int, source: SimulatedSource) -> None:
        """As the replica process does it, when it has heard that the run is stopped."""
        slice_ = process.machine.sources[index]
        slice_.stopping = process.stops_ms <= self.agenda.now_ms
        if slice_.may_drain:
            slice_.draining = True
            source.drain()
        stood = slice_.done
        try:
            self._do(process, slice_.end(lambda cut: {"cut": cut}))
        finally:
            if stood < slice_.done:
                self.note(f"{self.name(process.peer)} ends slice {index} at {stood}")
                self.stop.ended(process.machine.operator.head.name, index, stood)

    def _tick(self, process: Process) -> None:
        process.next_tick_ms = self.agenda.now_ms + self.faults.tick_ms * (0.7 + 0.6 * self.chance.random())
        if self.processes.get(process.peer) is process and self.faults.delays_ms(process.peer, pcs_of(process.peer)):
            self.pcs.beat(process.peer)
        self._do(process, process.machine.beats())
        self._do(process, process.machine.tick(self.agenda.now_ms, lambda index, cut: {"cut": cut}))

    def _do(self, process: Process, actions: Iterable[Action]) -> None:
        for action in actions:
            if process.actions_left is not None:
                process.actions_left -= 1
                if process.actions_left < 0:
                    self._die(process)
            if isinstance(action, Tell | SendSettle):
                self._send(process, action.to, action.message, None)
            elif isinstance(action, Send):
                self._send(process, action.to, action.message, action.rows)
            elif isinstance(action, SendCopy | Give):
                self._send(process, action.to, action.message, action.table)
            elif isinstance(action, Deliver):
                process.sinks[action.slice].write(action.rows, action.hi)
            elif isinstance(action, Audited):
                self._record(process.machine.operator.name, action)
            elif isinstance(action, Open):
                self._open(process, action)
            elif isinstance(action, Respawn):
                self._ask_pcs(process, action)
            else:
                assert isinstance(action, Lost)
                self._lost(process, action)

    def _die(self, process: Process) -> None:
        """Between any two actions; unless too much would be lost by now."""
        if self.processes.get(process.peer) is not process:
            self._end(process, "dies, a zombie, in the middle of something")
        elif self.faults.may_die(process):
            self.kill(process.peer, "in the middle of something")
        else:
            process.actions_left = None
            return
        raise Died

    def _record(self, name: str, action: Audited) -> None:
        for digest in action.digests:
            self.ledger.add(name, action.slice, digest)
        if action.ended is not None:
            self.ledger.end(name, action.slice, action.ended)

    def _lost(self, process: Process, action: Lost) -> None:
        """A slice cannot go on. Of one that has been superseded, nobody expects it to."""
        if self.processes.get(process.peer) is not process:
            self._end(process, "finds that it has been left behind, and steps down")
            raise Died
        name = self.plan.operators[action.operator].name
        raise StateLost(f"slice {action.slice} of {name} wants {action.wanted}, kept is {action.kept}")

    def _some_rows(self) -> int:
        return self.chance.choice(ROWS) if self._batch_max > 1 << 20 else self._batch_max

    # -- messages ------------------------------------------------------------------------------------------------

    def _send(self, process: Process, to: Peer, message: Message, body: Body) -> None:
        self.send(process.peer, process.machine.incarnation, to, message, body)

    def send(self, sender: Peer, incarnation: int, to: Peer, message: Message, body: Body) -> None:
        if to.replica == DISK:
            process = self.processes.get(sender)
            if process is not None and process.machine.incarnation == incarnation:
                self.agenda.after(self.chance.random() * DISK_MS, lambda: self._on_disk(process, message, body))
        elif to.replica == PCS:
            self._to_pcs(sender, lambda: self.pcs.take(sender, message, body))
        else:
            self._network.send(sender, incarnation, to, message, body)

    def _on_disk(self, process: Process, message: Message, body: Body) -> None:
        """A write takes effect, and is acknowledged; of somebody who has died meanwhile it does not."""
        if not process.alive or self.processes.get(process.peer) is not process:
            return
        try:
            if isinstance(message, Seek):
                for index in message.slices:
                    found = self._disk.give(message, index)
                    self._do(process, process.machine.handle(found.message, found.table, self.agenda.now_ms))
            else:
                assert isinstance(message, Copy | Settle) and not isinstance(body, Rows)
                held = self._disk.take(message, body)
                self._do(process, process.machine.handle(held, None, self.agenda.now_ms))
        except Died:
            return
        self._wake(process, self.agenda.now_ms)

    def restart(self) -> None:
        """Everybody dies at once, and the run is started again from its disk."""
        assert self.plan.durable is not None
        for process in [*self.processes.values(), *self.zombies]:
            process.alive = False
        self.zombies.clear()
        self.processes.clear()
        self._network = Network(self.agenda, self.chance, self.faults, self._notified)
        life = self.plan.durable.life + 1
        self.note(f"everybody dies; life {life} begins")
        self.plan = msgspec.structs.replace(self.plan, durable=msgspec.structs.replace(self.plan.durable, life=life))
        self._disk.next_life((number, i) for number, op in enumerate(self.plan.operators) for i in range(op.slices))
        self.pcs.end()
        self.pcs = SimulatedPcs(self)
        self.kill_master()
        self.master = self._new_master()
        peers = [*self.incarnations]
        self.chance.shuffle(peers)
        self.recoveries += sum(self.incarnations.values()) + 1
        for peer in peers:
            self.start_first(peer)

    def replace_pcs(self) -> None:
        """Another PCS takes the place of one that has died, and adopts its replicas."""
        self.note("another PCS adopts the replicas")
        self.pcs = SimulatedPcs(self, self.pcs)

    def kill_master(self) -> None:
        if self.master is not None and self.master.died_ms is None:
            self.note("the PuppetMaster dies")
            self.master.die()

    def attach_master(self) -> None:
        """Another PuppetMaster takes the place of one that has died."""
        self.note("another PuppetMaster attaches itself")
        self.master = self._new_master(attached=True)

    def _new_master(self, *, attached: bool = False) -> SimulatedPuppetMaster | None:
        chance = self.faults.master_chance
        return None if chance is None else SimulatedPuppetMaster(self, chance, attached=attached)

    def tell(self, peer: Peer, *, started: bool) -> None:
        """A replica hears who is where, and whether it is to begin; once heard, that is so."""
        process = self.processes.get(peer)
        if process is not None:
            process.told, process.started = True, process.started or started
            self._wake(process, self.agenda.now_ms)

    def _to_pcs(self, sender: Peer, deliver: Callable[[], None]) -> None:
        """It reaches the PCS that is there when it arrives, if it is still the same life of the run."""
        network = self._network
        for delay_ms in self.faults.delays_ms(sender, pcs_of(sender)):
            wait_ms = delay_ms + self.chance.random()
            self.agenda.after(wait_ms, lambda: deliver() if self._network is network else None)

    def _ask_pcs(self, process: Process, request: Respawn) -> None:
        operator = process.peer.operator
        self.note(f"{self.name(process.peer)} asks for {self.name(Peer(operator, request.replica))} to be brought back")
        self._to_pcs(process.peer, lambda: self.pcs.asked_to_respawn(operator, request))

    # -- processes -----------------------------------------------------------------------------------------------

    def start_first(self, peer: Peer) -> None:
        """The first process of a replica; or a later one, if it died before anybody knew of the others."""
        early = self.faults.early_deaths()
        if early:
            self.pcs.reborn(peer, early)
        self.start(peer, early, None)

    def start(
        self,
        peer: Peer,
        incarnation: int,
        living: Mapping[int, int] | None,
        slices: Mapping[int, int] | None = None,
    ) -> None:
        """A process begins to live. A later incarnation knows who else of its ring does, and all that its PCS knows; of
        the others some wait for the PuppetMaster."""
        if incarnation:
            self.note(f"{self.name(peer)} begins incarnation {incarnation}, told of {living}")
        self.incarnations[peer] = incarnation
        self._unfinished.add(peer)
        machine = ReplicaMachine(self.plan, peer, self._make_kernel, incarnation)
        machine.steward.patience_ms = self.faults.steward_patience_ms
        process = self.processes[peer] = Process(peer, machine, self.chance.choice(TURN_MS))
        process.next_tick_ms = self.agenda.now_ms + self.faults.tick_ms * self.chance.random()
        process.stops_ms = self.stop.heard_ms(self.agenda.now_ms, self.chance)
        self._network.take(peer)  # What came while nobody was there is lost.
        if self.pcs.introduced:
            process.told, process.started = True, peer.operator in self.pcs.started
            self._begin(process, living, slices)
        if self.master is not None:
            self.master.hello(peer)
        self._wake(process, self.agenda.now_ms)

    def _begin(
        self, process: Process, living: Mapping[int, int] | None = None, slices: Mapping[int, int] | None = None
    ) -> None:
        process.begun = True
        self._do(process, process.machine.begin(living, slices))

    def kill(self, peer: Peer, why: str) -> None:
        """The process dies, and the PCS sees it."""
        self._end(self.processes.pop(peer), f"dies: {why}")
        self._unfinished.add(peer)
        self.pcs.died(peer)

    def spread(self, peer: Peer) -> None:
        """The slices of a lost replica go to its peers; it is not started again."""
        self.note(f"{self.name(peer)} is not started again: its peers adopt its slices")
        self._unfinished.discard(peer)

    def adopted(self, peer: Peer) -> None:
        """A replica has got slices of a lost peer, and may have to go on."""
        self._unfinished.add(peer)
        self._wake(self.processes[peer], self.agenda.now_ms)

    def supersede(self, peer: Peer) -> None:
        """The process is given up, but lives on."""
        self.note(f"{self.name(peer)} becomes a zombie")
        self.zombies.append(self.processes.pop(peer))

    def freeze(self, peer: Peer, frozen: bool) -> None:
        """Stop a process, or let it go on, whether it has become a zombie or not."""
        for process in [*self.processes.values(), *self.zombies]:
            if process.peer == peer and process.frozen != frozen:
                self.note(f"{self.name(peer)} {'freezes' if frozen else 'thaws'}")
                process.frozen = frozen
                self._wake(process, self.agenda.now_ms)

    def dead(self) -> list[Peer]:
        return [peer for peer in self.incarnations if peer not in self.processes]

    def _end(self, process: Process, why: str) -> None:
        self.note(f"{self.name(process.peer)} {why}")
        process.alive = False
        if process in self.zombies:
            self.zombies.remove(process)

    def _open(self, process: Process, action: Open) -> None:
        operator = process.machine.operator
        if operator.kind == "source":
            records = self._records[operator.head.name]
            source = SimulatedSource.opened(records, action.slice, operator.slices, action.cut)
            process.sources[action.slice] = source
        else:
            mark: Mark = action.mark or {"offset": 0}
            file, offset = self._files[operator.name], int(mark["offset"])
            if self.plan.semantics != "exactly-once" or self.stop.will_be:
                file.truncate(offset)
            process.sinks[action.slice] = SimulatedSink(file, offset, action.cut)

    # -- looking -------------------------------------------------------------------------------------------------

    def _note_resumed(self, process: Process) -> None:
        if not process.resumed:
            process.resumed = True
            if process.machine.incarnation:
                slices = process.machine.slices.items()
                cuts = ", ".join(f"slice {index} at {slice_.done}" for index, slice_ in slices)
                self.note(f"{self.name(process.peer)} resumes {cuts or 'nothing'}")

    def note(self, text: str) -> None:
        self.history.append(f"{self.agenda.now_ms:9.1f} ms  {text}")

    def name(self, peer: Peer) -> str:
        return f"{self.plan.operators[peer.operator].name}.{peer.replica}"
