"""A cluster of replica machines whose every move is drawn from a seed.

The same ``ReplicaMachine`` that the replica process drives, without processes, sockets or clocks. At each step the
scheduler picks one thing that could happen next: a message arrives (on one link messages keep their order, between
links anything goes), a replica works on a few rows, a source reads a few records, a sink commits, a replica tells what
is safe. One seed is one schedule, exactly. A run that finds nothing left to do before everybody is finished is stuck,
and says who waits for what.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dadstorm.core.kernel import Kernel
from dadstorm.core.line import END, START
from dadstorm.core.messages import Attach, Peer, Safe, Tiles
from dadstorm.core.outlet import Send
from dadstorm.core.replica import Action, ReplicaMachine, Tell
from dadstorm.core.rows import Rows
from dadstorm.core.slice import Deliver
from dadstorm.plan import Operator, Plan

OWNED_RUN = 3
"""Records are dealt out to the slices of a source in runs of this many seqs, so that slices interleave."""


class Stuck(AssertionError):
    """Nothing can happen any more and the run is not finished: a deadlock."""


@dataclass(slots=True)
class SimulatedSource:
    """One slice of a source: the records it owns, and how far they were given out."""

    rows: Rows
    taken: int = 0
    hi: int = START

    def read(self, rows_max: int) -> tuple[Rows, int]:
        stop = min(self.taken + rows_max, len(self.rows))
        while 0 < stop < len(self.rows) and self.rows.seq[stop] == self.rows.seq[stop - 1]:
            stop += 1
        rows = self.rows.slice(self.taken, stop)
        self.taken = stop
        self.hi = END if stop == len(self.rows) else int(self.rows.seq[stop])
        return rows, self.hi


@dataclass(slots=True)
class Cluster:
    plan: Plan
    machines: dict[Peer, ReplicaMachine]
    sources: dict[tuple[Peer, int], SimulatedSource]
    chance: random.Random
    batch_max: int
    links: dict[tuple[Peer, Peer], deque[tuple[Tiles | Attach | Safe, Rows | None]]] = field(default_factory=dict)
    written: dict[Peer, list[Rows]] = field(default_factory=dict)
    steps: int = 0

    @staticmethod
    def build(
        plan: Plan,
        records: Mapping[str, Rows],
        make_kernel: Callable[[Operator], Kernel],
        seed: int,
        batch_max: int = 1 << 30,
    ) -> Cluster:
        """A cluster for a plan; ``records`` holds each source's rows."""
        machines = {
            Peer(index, replica): ReplicaMachine(plan, Peer(index, replica), make_kernel)
            for index, operator in enumerate(plan.operators)
            for replica in range(len(operator.replicas))
        }
        sources = {}
        for peer, machine in machines.items():
            for index in machine.sources:
                rows = records[machine.operator.name]
                mine = np.flatnonzero(rows.seq // OWNED_RUN % machine.operator.slices == index)
                sources[peer, index] = SimulatedSource(rows.take(mine))
        return Cluster(plan, machines, sources, random.Random(seed), batch_max)

    def run(self, steps_max: int = 200_000) -> dict[str, Rows]:
        """Everything that each sink was given, by the sink's name."""
        for peer in self._shuffled(self.machines):
            self._do(peer, self.machines[peer].attach())
        while not all(machine.finished for machine in self.machines.values()):
            self.steps += 1
            if self.steps > steps_max:
                raise Stuck(f"not finished after {steps_max} steps: {self._standing()}")
            if not self._step():
                raise Stuck(f"nothing can happen any more: {self._standing()}")
        return {
            self.plan.operators[peer.operator].name: Rows.concat(parts) if parts else self._no_rows(peer)
            for peer in self.machines
            if self.plan.operators[peer.operator].kind == "sink"
            for parts in [self.written.get(peer, [])]
        }

    def _step(self) -> bool:
        """One randomly chosen thing that can happen; False if none can."""
        for kind in self._shuffled((self._deliver, self._work, self._read, self._commit, self._announce)):
            if kind():
                return True
        return False

    def _deliver(self) -> bool:
        full = sorted(link for link, queue in self.links.items() if queue)
        if not full:
            return False
        link = self.chance.choice(full)
        message, rows = self.links[link].popleft()
        self._do(link[1], self.machines[link[1]].handle(message, rows))
        return True

    def _work(self) -> bool:
        busy = [peer for peer, machine in self.machines.items() if machine.has_work()]
        if not busy:
            return False
        peer = self.chance.choice(busy)
        self._do(peer, self.machines[peer].work(self._some_rows()))
        return True

    def _read(self) -> bool:
        able = [(peer, index) for peer, index in self.sources if self.machines[peer].sources[index].room[0]]
        if not able:
            return False
        peer, index = self.chance.choice(able)
        source = self.machines[peer].sources[index]
        rows, hi = self.sources[peer, index].read(min(source.room[0], self._some_rows()))
        self._do(peer, source.records(rows, hi, None))
        return True

    def _commit(self) -> bool:
        behind = [
            (machine, index)
            for machine in self.machines.values()
            for index, sink in machine.sinks.items()
            if sink.safe < sink.done
        ]
        if not behind:
            return False
        machine, index = self.chance.choice(behind)
        machine.sinks[index].committed(machine.sinks[index].done)
        return True

    def _announce(self) -> bool:
        told = False
        for peer in self._shuffled(self.machines):
            for action in self.machines[peer].announce():
                told = True
                self._do(peer, [action])
            if told:
                return True
        return False

    def _do(self, peer: Peer, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Deliver):
                if len(action.rows):
                    self.written.setdefault(peer, []).append(action.rows)
                continue
            rows = action.rows if isinstance(action, Send) else None
            assert isinstance(action, Send | Tell)
            self.links.setdefault((peer, action.to), deque()).append((action.message, rows))

    def _some_rows(self) -> int:
        return self.chance.choice((1, 2, 3, 7, 50, 1 << 20)) if self.batch_max > 1 << 20 else self.batch_max

    def _shuffled(self, things: Iterable) -> list:  # type: ignore[type-arg]
        order = list(things)
        self.chance.shuffle(order)
        return order

    def _no_rows(self, peer: Peer) -> Rows:
        return Rows.empty(self.plan.input_schema(self.plan.operators[peer.operator]))

    def _standing(self) -> str:
        return "; ".join(
            f"{machine.operator.name}.{peer.replica} done {machine.progress.frontier} safe {machine.progress.safe} "
            f"queued {machine.progress.queued}"
            for peer, machine in self.machines.items()
        )
