"""A replica: the slices of one operator that live together, as one state machine.

Messages from other replicas, records from readers, commits of sinks and ticks of a clock go in; actions come out. The
machine never waits: ``work`` runs one step of one slice, so that whoever drives it (the replica process, the
simulator, a test) stays in charge of time. The same sequence of calls gives the same actions.

Everything begins with ``begin``. The first incarnation resumes its slices at the start of the line. A later one first
asks everybody who may hold copies, takes the newest settled snapshot of each slice and resumes there: ``resume(slice,
cut)`` is the one verb, whatever the reason.

A message that does not fit the plan raises ``ProtocolError`` and changes nothing: the peer is wrong, not we.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

import pyarrow as pa

from dadstorm.core.audit import Audited, without_audit
from dadstorm.core.checks import Checks, ProtocolError
from dadstorm.core.holder import Holder
from dadstorm.core.keeper import KeeperAction
from dadstorm.core.kernel import Kernel
from dadstorm.core.line import END, START
from dadstorm.core.messages import (
    PCS,
    Attach,
    Beat,
    Copy,
    Done,
    Down,
    Found,
    Gone,
    Held,
    Here,
    Message,
    Peer,
    Safe,
    Seek,
    Settle,
    Tiles,
    Want,
)
from dadstorm.core.outlet import Outlet, Send
from dadstorm.core.repeat import Age, spaced
from dadstorm.core.ring import Respawn, Ring
from dadstorm.core.rows import Rows
from dadstorm.core.seeking import Seeking
from dadstorm.core.slice import Deliver, Emitted, SinkSlice, Slice, SourceSlice, Tell, WorkSlice
from dadstorm.core.tile import Tile, Verdict
from dadstorm.core.vault import Delta, Mark
from dadstorm.core.wiring import Wiring
from dadstorm.plan import Operator, Plan


@dataclass(frozen=True, slots=True)
class Open:
    """An action: open the reader or the sink of a slice, at this cut and mark."""

    slice: int
    cut: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Give:
    """An action: give a holder's copy of a slice to the incarnation that asked for it."""

    to: Peer
    message: Found
    table: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class Lost:
    """An action: stop the topology, because every copy of a slice's state is gone."""

    operator: int
    slice: int
    wanted: int
    kept: int


Action = Send | Tell | Deliver | Emitted | Audited | Open | Give | Lost | Respawn | KeeperAction
Body: TypeAlias = Union[Rows, "pa.RecordBatch", None]


@dataclass(slots=True)
class Progress:
    """What a replica has done so far, for people to look at."""

    rows_in: int = 0
    rows_out: int = 0
    queued: int = 0
    frontier: int = START
    safe: int = START
    duplicates: int = 0
    gaps: int = 0


class ReplicaMachine:
    def __init__(
        self, plan: Plan, me: Peer, make_kernel: Callable[[Operator], Kernel], incarnation: int = 0
    ) -> None:
        self.plan = plan
        self.me = me
        self.incarnation = incarnation
        self.operator = plan.operators[me.operator]
        self._wiring = Wiring(plan, me, incarnation, make_kernel)
        self._checks = Checks(plan, me)
        self._no_rows = Rows.empty(plan.input_schema(self.operator) if self.operator.inputs else pa.schema([]))
        self._hosted = [s for s in range(self.operator.slices) if self.operator.home(s) == me.replica]
        self._keeps = plan.semantics != "at-most-once"
        self.ring = Ring(me.replica, len(self.operator.replicas), plan.suspect_after_ms)
        self.holder = Holder(me.replica, incarnation)
        self.sources: dict[int, SourceSlice] = {}
        self.works: dict[int, WorkSlice] = {}
        self.sinks: dict[int, SinkSlice] = {}
        self.consumers: dict[int, WorkSlice | SinkSlice] = {}
        self.slices: dict[int, Slice] = {}
        self._told: dict[int, int] = {}
        self._told_age = Age()
        self._ticks = 0
        self._seeking: Seeking | None = None
        self.resumed = False
        self.tapped = False
        """Whether every tuple that is emitted is to be seen; set before ``begin``."""
        self._turn = 0
        self._duplicates = 0
        self._gaps = 0

    # -- resume --------------------------------------------------------------------------------------------------

    def begin(self, living: Mapping[int, int] | None = None) -> Iterator[Action]:
        """Begin to live: at the start of the line, or, as a later incarnation, where the copies at ``living`` say."""
        if self.incarnation and self._hosted and (self._keeps or self.operator.kind in ("source", "sink")):
            self.ring.learn(dict(living or {}))
            asked = self.ring.living if len(self.operator.replicas) > 1 else [PCS]
            self._seeking = Seeking(self.me, self.incarnation, self._hosted, asked)
            yield from self._seeking.ask()
        yield from self._resume_if_ready()

    def _resume_if_ready(self) -> Iterator[Action]:
        if not self.resumed and (self._seeking is None or self._seeking.over):
            yield from self._resume()

    def _resume(self) -> Iterator[Action]:
        """Resume every slice at the best snapshot that was found, or at the start of the line."""
        self.resumed = True
        for index in self._hosted:
            base = self._seeking.base(index) if self._seeking else Delta(START)
            if self.operator.kind == "source":
                self.sources[index] = self._wiring.source(index, base)
            elif self.operator.kind == "sink":
                self.sinks[index] = self._wiring.sink(index, base)
            else:
                self.works[index] = self._wiring.work(index, base)
            if self.operator.kind in ("source", "sink"):
                yield Open(index, base.cut, without_audit(base.mark))
            self._told[index] = START
        self.consumers = {**self.works, **self.sinks}
        self.slices = {**self.sources, **self.consumers}
        for slice_ in self.slices.values():
            slice_.tapped = self.tapped
        yield from self._choose_holders()
        yield from self._attach()
        yield from self._introduce()

    def _introduce(self) -> Iterator[Tell]:
        """A later incarnation tells its ring and its consumers that it is there."""
        if self.incarnation:
            here = Here(self.me.operator, self.me.replica, self.incarnation)
            others = [Peer(self.me.operator, replica) for replica in self.ring.living]
            for consumer, _ in self.plan.consumers(self.operator.name):
                index = self.plan.index(consumer.name)
                others += [Peer(index, replica) for replica in range(len(consumer.replicas))]
            for peer in sorted(set(others)):
                yield Tell(peer, here)

    def _choose_holders(self) -> Iterator[Action]:
        for slice_ in self.slices.values():
            if slice_.keeper:
                yield from slice_.keeper.hold_at(self._holders(slice_.index))

    def _holders(self, index: int) -> dict[Peer, int]:
        if len(self.operator.replicas) == 1:
            return {Peer(self.me.operator, PCS): 0}
        holders = self.ring.holders(index, self.plan.backups or len(self.operator.replicas) - 1)
        return {Peer(self.me.operator, replica): incarnation for replica, incarnation in holders.items()}

    def _attach(self, only: Peer | None = None) -> Iterator[Tell]:
        """Ask every producer (or only this one) for the tiles of every channel, from where this replica stands."""
        for input_index, link in enumerate(self.operator.inputs):
            producer = self.plan[link.operator]
            wants: dict[int, list[Want]] = defaultdict(list)
            for consumer in self.consumers.values():
                for producer_slice in range(producer.slices):
                    inlet = consumer.merger.inlets[input_index, producer_slice]
                    wants[producer.home(producer_slice)].append(Want(producer_slice, consumer.index, inlet.hi))
            for replica, channels in wants.items():
                to = Peer(self.plan.index(producer.name), replica)
                if only is None or to == only:
                    yield Tell(to, self._attach_message(input_index, channels))

    def _attach_message(self, input_index: int, wants: Sequence[Want]) -> Attach:
        return Attach(self.me.operator, self.me.replica, self.incarnation, input_index, tuple(wants))

    # -- messages ------------------------------------------------------------------------------------------------

    def handle(self, message: Message, body: Body = None, now_ms: float = 0) -> Iterator[Action]:
        """A message from another replica or a PCS; ``body`` is the rows of tiles, the table of a snapshot."""
        if isinstance(message, Tiles):
            return self._tiles(message, body) if self.resumed else iter(())
        if isinstance(message, Attach):
            return self._attached(message) if self.resumed else iter(())
        if isinstance(message, Safe):
            return self._consumers_safe(message) if self.resumed else iter(())
        if isinstance(message, Gone):
            return self._gone(message) if self.resumed else iter(())
        if isinstance(message, Done):
            return self._producer_done(message) if self.resumed else iter(())
        if isinstance(message, Copy | Settle | Seek):
            return self._hold(message, body)
        if isinstance(message, Held):
            return self._held(message)
        if isinstance(message, Found):
            return self._answered(message, body)
        return self._ring_news(message, now_ms)

    def _tiles(self, message: Tiles, rows: Body) -> Iterator[Action]:
        assert rows is None or isinstance(rows, Rows)
        producer = self._checks.producer(message)
        body = self._checks.tiles(message, rows)
        if any(index not in self.consumers for index in message.slices):
            raise ProtocolError(f"tiles for slices {message.slices}: not all live here")
        return self._take(message, body, producer)

    def _take(self, message: Tiles, body: Rows, producer: Operator) -> Iterator[Action]:
        """Each slice gets its part of the body; a gap is asked for again."""
        start = 0
        channel = (message.input, message.producer_slice)
        missing = []
        for index, count in zip(message.slices, message.counts, strict=True):
            tile = Tile(message.lo, message.hi, body.slice(start, start + count), message.safe)
            start += count
            merger = self.consumers[index].merger
            verdict = merger.offer(channel, tile)
            if verdict is Verdict.DUPLICATE:
                self._duplicates += 1
            elif verdict is Verdict.GAP:
                inlet = merger.inlets[channel]
                if inlet.asked != inlet.hi:
                    inlet.asked = inlet.hi
                    missing.append(Want(message.producer_slice, index, inlet.hi))
        yield from self._ask_again(message, missing, producer)

    def _ask_again(self, message: Tiles | Done, missing: list[Want], producer: Operator) -> Iterator[Tell]:
        if missing:
            self._gaps += 1
            to = Peer(message.producer, producer.home(message.producer_slice))
            yield Tell(to, self._attach_message(message.input, missing))

    def _producer_done(self, message: Done) -> Iterator[Action]:
        """How far a producer slice has come. What was lost is asked for again or, under at-most-once, given up: the
        stream goes on around it. A source that stands still makes a cut."""
        producer = self._checks.producer(message)
        channel = (message.input, message.producer_slice)
        missing = []
        for index, consumer in self.consumers.items():
            hi = consumer.merger.inlets[channel].hi
            if hi < message.hi and not self._keeps:
                consumer.merger.offer(channel, Tile(hi, message.hi, self._no_rows))
            elif hi < message.hi:
                missing.append(Want(message.producer_slice, index, hi))
            elif hi == message.hi and message.still:
                consumer.stands(hi)
        yield from self._ask_again(message, missing, producer)

    def _outlet(self, slice_index: int, consumer: int, input_index: int) -> Outlet:
        for outlet in self.slices[slice_index].outlets:
            if outlet.consumer == consumer and outlet.input == input_index:
                return outlet
        raise ProtocolError(f"operator {consumer}, input {input_index}: does not read slice {slice_index} of ours")

    def _attached(self, message: Attach) -> Iterator[Action]:
        wants = message.wants
        operator = self._checks.consumer(message.consumer, [w.consumer_slice for w in wants], [w.lo for w in wants])
        if not 0 <= message.replica < len(operator.replicas) or any(w.producer_slice not in self.slices for w in wants):
            raise ProtocolError(f"operator {message.consumer}, replica {message.replica}: attaches to what is not here")
        by_slice: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for want in wants:
            by_slice[want.producer_slice].append((want.consumer_slice, want.lo))
        outlets = [(i, self._outlet(i, message.consumer, message.input), found) for i, found in by_slice.items()]
        return self._send_again(message, outlets)

    def _send_again(
        self, message: Attach, outlets: list[tuple[int, Outlet, list[tuple[int, int]]]]
    ) -> Iterator[Action]:
        to = Peer(message.consumer, message.replica)
        for index, outlet, found in outlets:
            for consumer_slice, lo in found:
                if self._keeps and lo < outlet.floor:
                    gone = Gone(self.me.operator, index, message.consumer, message.input, consumer_slice, outlet.floor)
                    yield Tell(to, gone)
            yield from outlet.attach(message.replica, message.incarnation, found)

    def _gone(self, message: Gone) -> Iterator[Action]:
        """A producer cannot give us what we asked for. If we still need it, our state is older than what was told to be
        safe: every newer copy has been lost. (If not, the answer is to an old question.)"""
        self._checks.producer(message)
        consumer = self.consumers.get(message.slice)
        if consumer is not None:
            hi = consumer.merger.inlets[message.input, message.producer_slice].hi
            if hi < message.floor:
                yield Lost(self.me.operator, message.slice, hi, message.floor)

    def _consumers_safe(self, message: Safe) -> Iterator[Action]:
        self._checks.consumer(message.consumer, [s for s, _ in message.cuts], [cut for _, cut in message.cuts])
        for outlet in [self._outlet(index, message.consumer, message.input) for index in self.slices]:
            outlet.advance(message.cuts)
        return (action for slice_ in self.slices.values() for action in slice_.keep())

    def _hold(self, message: Copy | Settle | Seek, body: Body) -> Iterator[Action]:
        self._checks.ring(message.operator, message.replica, type(message).__name__)
        to = Peer(message.operator, message.replica)
        if isinstance(message, Seek):
            return self._give(to, message)
        if isinstance(message, Copy):
            assert not isinstance(body, Rows)
            return iter([Tell(to, self.holder.copy(message, body))])
        return iter([Tell(to, self.holder.settle(message))])

    def _give(self, to: Peer, seek: Seek) -> Iterator[Action]:
        if self.ring.down(seek.replica, seek.incarnation - 1):
            yield from self._ring_changed()
        for index in seek.slices:
            yield give(self.holder, self.me.replica, seek, index)

    def _held(self, message: Held) -> Iterator[Action]:
        slice_ = self.slices.get(message.slice) if message.operator == self.me.operator else None
        if slice_ is None or slice_.keeper is None:
            return iter(())
        return slice_.keeper.held(message)

    def _answered(self, message: Found, body: Body) -> Iterator[Action]:
        """A holder's answer to our Seek; when all have answered, resume."""
        if self._seeking and message.operator == self.me.operator and message.slice in self._hosted:
            assert not isinstance(body, Rows)
            self._seeking.answered(message, body)
            yield from self._resume_if_ready()

    def _ring_news(self, message: Here | Beat | Down, now_ms: float) -> Iterator[Action]:
        if isinstance(message, Here) and message.operator != self.me.operator:
            yield from self._attach(Peer(message.operator, message.replica))
            self._told = dict.fromkeys(self._told, START)
            return
        self._checks.ring(message.operator, message.replica, type(message).__name__)
        if isinstance(message, Down):
            news = self.ring.down(message.replica, message.incarnation)
        else:
            news = self.ring.heard(message.replica, message.incarnation, now_ms)
        if news:
            yield from self._ring_changed()
            yield from self.ring.respawns(now_ms, self._vouches)

    def _ring_changed(self) -> Iterator[Action]:
        if self.resumed:
            yield from self._choose_holders()
        elif self._seeking:
            self._seeking.without([r for r in range(len(self.operator.replicas)) if self.ring.is_down(r)])
            yield from self._resume_if_ready()

    # -- time and work -------------------------------------------------------------------------------------------

    def beats(self) -> Iterator[Tell]:
        """Signs of life for the ring; to be sent whatever else the replica is busy with."""
        for replica in range(len(self.operator.replicas)):
            if replica != self.me.replica:
                yield Tell(Peer(self.me.operator, replica), Beat(self.me.operator, self.me.replica, self.incarnation))

    def tick(self, now_ms: float, mark_at: Callable[[int, int], Mark]) -> Iterator[Action]:
        """Time passes: say again what may have been lost, look after the ring, adapt the strides."""
        if self.ring.suspect(now_ms):
            yield from self._ring_changed()
        yield from self.ring.respawns(now_ms, self._vouches)
        self._ticks += 1
        if not self.resumed:
            if self._seeking and spaced(self._ticks):
                yield from self._seeking.ask()
            return
        for slice_ in self.slices.values():
            slice_.stride.tick(now_ms, slice_.done)
            if slice_.keeper:
                yield from slice_.keeper.tick()
            if isinstance(slice_, SourceSlice):
                yield from slice_.tick(lambda cut, index=slice_.index: mark_at(index, cut))  # type: ignore[misc]
            else:
                yield from slice_.standing(slice_.stands_still)
        if spaced(self._told_age.tick(tuple(self._told.values()))):
            self._told = dict.fromkeys(self._told, START)
        if spaced(self._ticks):
            yield from self._attach_unheard()
            yield from self._introduce_again()

    def _vouches(self, replica: int) -> bool:
        """Whether we hold copies of all slices of a replica, as its last incarnation known to us made them."""
        hosted = [s for s in range(self.operator.slices) if self.operator.home(s) == replica]
        found = [self.holder.find(self.me.operator, index) for index in hosted]
        return all(copy is not None and copy[0] == self.ring.incarnation(replica) for copy in found)

    def _attach_unheard(self) -> Iterator[Tell]:
        """Attach again where nothing has come yet: the producer may not have heard us."""
        for input_index, link in enumerate(self.operator.inputs):
            producer = self.plan[link.operator]
            wants: dict[int, list[Want]] = defaultdict(list)
            for consumer in self.consumers.values():
                for producer_slice in range(producer.slices):
                    inlet = consumer.merger.inlets[input_index, producer_slice]
                    if not inlet.heard:
                        wants[producer.home(producer_slice)].append(Want(producer_slice, consumer.index, inlet.hi))
            for replica, channels in wants.items():
                yield Tell(Peer(self.plan.index(producer.name), replica), self._attach_message(input_index, channels))

    def _introduce_again(self) -> Iterator[Tell]:
        """While consumers have not attached to a new incarnation, they may not have heard of it."""
        if self.incarnation and any(not outlet.attached for s in self.slices.values() for outlet in s.outlets):
            yield from self._introduce()

    def has_work(self) -> bool:
        return any(consumer.has_work() for consumer in self.consumers.values())

    def work(self, rows_max: int) -> Iterator[Action]:
        """One step of one slice, in turn: at most so many rows."""
        order = list(self.consumers.values())
        for offset in range(len(order)):
            consumer = order[(self._turn + offset) % len(order)]
            if consumer.has_work():
                self._turn = (self._turn + offset + 1) % len(order)
                yield from consumer.step(rows_max)
                return

    def announce(self) -> Iterator[Tell]:
        """Tell the producers how far this replica's slices are safe, where that has moved."""
        moved = [(index, s.safe) for index, s in self.consumers.items() if s.safe > self._told[index]]
        if not moved:
            return
        self._told.update(moved)
        for input_index, link in enumerate(self.operator.inputs):
            producer = self.plan[link.operator]
            message = Safe(self.me.operator, input_index, tuple(moved))
            for replica in sorted({producer.home(s) for s in range(producer.slices)}):
                yield Tell(Peer(self.plan.index(producer.name), replica), message)

    @property
    def finished(self) -> bool:
        """Everything to the end of the line is done, here and downstream."""
        return self.resumed and all(s.safe == END for s in self.slices.values())

    @property
    def superseded(self) -> bool:
        """A higher incarnation has taken over: step down."""
        return any(s.keeper is not None and s.keeper.superseded for s in self.slices.values())

    @property
    def rows_in(self) -> int:
        """How many rows its slices have taken so far."""
        return sum(slice_.rows_in for slice_ in self.slices.values())

    @property
    def progress(self) -> Progress:
        slices = self.slices.values()
        return Progress(
            rows_in=sum(s.rows_in for s in slices),
            rows_out=sum(s.rows_out for s in slices),
            queued=sum(c.merger.queued for c in self.consumers.values()),
            frontier=min((s.done for s in slices), default=END),
            safe=min((s.safe for s in slices), default=END),
            duplicates=self._duplicates,
            gaps=self._gaps,
        )


def give(holder: Holder, number: int, seek: Seek, slice_index: int) -> Give:
    """A holder's answer to somebody who seeks a slice."""
    to = Peer(seek.operator, seek.replica)
    found = holder.give(to.operator, slice_index, seek.incarnation)
    if found is None:
        return Give(to, Found(to.operator, slice_index, 0, number, -1), None)
    incarnation, base = found
    mark = None if base.mark is None else dict(base.mark)
    return Give(to, Found(to.operator, slice_index, incarnation, number, base.cut, mark), base.table)
