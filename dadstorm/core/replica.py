"""A replica: the slices of one operator that live together, as one state machine.

Messages from other replicas, records from readers and commits of sinks go in; sends and deliveries come out. The
machine never waits: ``work`` runs one step of one slice, so that whoever drives it (the replica process, the
simulator, a test) stays in charge of time. The same sequence of calls gives the same actions.

A message that does not fit the plan raises ``ProtocolError`` and changes nothing: the peer is wrong, not we.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dadstorm.core.kernel import Kernel
from dadstorm.core.line import END, START
from dadstorm.core.messages import Attach, Message, Peer, Safe, Tiles, Want
from dadstorm.core.outlet import Outlet, Send
from dadstorm.core.routing import Router
from dadstorm.core.rows import Rows
from dadstorm.core.slice import Deliver, Merger, SinkSlice, SourceSlice, WorkSlice
from dadstorm.core.tile import Tile, Verdict
from dadstorm.core.window import Window
from dadstorm.plan import Operator, Plan


class ProtocolError(Exception):
    """A peer sent something that this replica cannot have been sent."""


@dataclass(frozen=True, slots=True)
class Tell:
    """An action: give this message, which has no body, to a replica."""

    to: Peer
    message: Attach | Safe


Action = Send | Tell | Deliver


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
    def __init__(self, plan: Plan, me: Peer, make_kernel: Callable[[Operator], Kernel]) -> None:
        self.plan = plan
        self.me = me
        self.operator = plan.operators[me.operator]
        self._input_schema = plan.input_schema(self.operator) if self.operator.inputs else pa.schema([])
        hosted = [s for s in range(self.operator.slices) if self.operator.home(s) == me.replica]
        self.sources: dict[int, SourceSlice] = {}
        self.works: dict[int, WorkSlice] = {}
        self.sinks: dict[int, SinkSlice] = {}
        for index in hosted:
            if self.operator.kind == "source":
                self.sources[index] = SourceSlice(index, self._outlets(index), self._window())
            elif self.operator.kind == "sink":
                self.sinks[index] = SinkSlice(index, self._merger(), self._input_schema)
            else:
                self.works[index] = WorkSlice(
                    index,
                    self._merger(),
                    make_kernel(self.operator),
                    self.operator.packing,
                    self.operator.schema,
                    self._outlets(index),
                )
        self.consumers: dict[int, WorkSlice | SinkSlice] = {**self.works, **self.sinks}
        self.slices: dict[int, SourceSlice | WorkSlice | SinkSlice] = {**self.sources, **self.consumers}
        self._told = dict.fromkeys(hosted, START)
        self._turn = 0
        self._duplicates = 0
        self._gaps = 0

    # -- how it is built -----------------------------------------------------------------------------------------

    def _outlets(self, slice_index: int) -> list[Outlet]:
        outlets = []
        for consumer, input_index in self.plan.consumers(self.operator.name):
            routing = consumer.routing
            outlets.append(
                Outlet(
                    producer=self.me.operator,
                    producer_slice=slice_index,
                    consumer=self.plan.index(consumer.name),
                    input_index=input_index,
                    port=consumer.inputs[input_index].port,
                    router=Router(routing.policy, routing.key, consumer.slices, self.plan.seed),
                    retain=self.plan.semantics != "at-most-once",
                )
            )
        return outlets

    def _window(self) -> Window:
        """A source's window is shared out evenly over its slices."""
        slices = self.operator.slices
        return Window(max(1, self.plan.window_rows // slices), max(1, self.plan.window_bytes // slices))

    def _merger(self) -> Merger:
        channels = [
            (input_index, producer_slice)
            for input_index, link in enumerate(self.operator.inputs)
            for producer_slice in range(self.plan[link.operator].slices)
        ]
        return Merger(
            self.operator.packing,
            self.plan.entered_bits(self.operator),
            channels,
            gaps_allowed=self.plan.semantics == "at-most-once",
        )

    # -- messages ------------------------------------------------------------------------------------------------

    def attach(self) -> Iterator[Tell]:
        """Ask every producer for the tiles of every channel, from where this replica stands."""
        for input_index, link in enumerate(self.operator.inputs):
            producer = self.plan[link.operator]
            wants: dict[int, list[Want]] = defaultdict(list)
            for consumer in self.consumers.values():
                for producer_slice in range(producer.slices):
                    inlet = consumer.merger.inlets[input_index, producer_slice]
                    wants[producer.home(producer_slice)].append(Want(producer_slice, consumer.index, inlet.hi))
            for replica, channels in wants.items():
                to = Peer(self.plan.index(producer.name), replica)
                yield Tell(to, Attach(self.me.operator, self.me.replica, input_index, tuple(channels)))

    def handle(self, message: Message, rows: Rows | None = None) -> Iterator[Action]:
        """A message from another replica; ``rows`` is the body of tiles."""
        if isinstance(message, Tiles):
            return self._tiles(message, rows)
        if isinstance(message, Attach):
            return self._attached(message)
        return self._consumers_safe(message)

    def _tiles(self, message: Tiles, rows: Rows | None) -> Iterator[Action]:
        if message.consumer != self.me.operator or not 0 <= message.input < len(self.operator.inputs):
            raise ProtocolError(f"tiles for operator {message.consumer}, input {message.input}: not ours")
        producer = self.plan[self.operator.inputs[message.input].operator]
        if message.producer != self.plan.index(producer.name) or not 0 <= message.producer_slice < producer.slices:
            raise ProtocolError(f"tiles from operator {message.producer}: not the producer of input {message.input}")
        body = self._body(rows)
        if not START <= message.lo < message.hi <= END or len(message.slices) != len(message.counts):
            raise ProtocolError(f"tiles over [{message.lo}, {message.hi}): not a range of the line")
        if min(message.counts, default=0) < 0 or sum(message.counts) != len(body):
            raise ProtocolError(f"tiles announce {sum(message.counts)} rows and carry {len(body)}")
        if any(index not in self.consumers for index in message.slices) or len({*message.slices}) < len(message.slices):
            raise ProtocolError(f"tiles for slices {message.slices}: not all live here, or one comes twice")
        if len(body) and not (message.lo <= int(body.seq.min()) and int(body.seq.max()) < message.hi):
            raise ProtocolError(f"tiles over [{message.lo}, {message.hi}) carry rows outside of it")
        return self._take(message, body)

    def _body(self, rows: Rows | None) -> Rows:
        """The rows of a message under one schema, whichever input they came by: inputs agree in types, not in names."""
        if rows is None:
            return Rows.empty(self._input_schema)
        found = rows.data.schema
        if found.equals(self._input_schema):
            return rows
        if found.types != self._input_schema.types:
            raise ProtocolError(f"tiles carry fields of the types {found.types}, not {self._input_schema.types}")
        return Rows(rows.seq, rows.sub, pa.RecordBatch.from_arrays(rows.data.columns, schema=self._input_schema))

    def _take(self, message: Tiles, body: Rows) -> Iterator[Action]:
        """Each slice gets its part of the body; a gap is asked for again."""
        start = 0
        channel = (message.input, message.producer_slice)
        for index, count in zip(message.slices, message.counts, strict=True):
            tile = Tile(message.lo, message.hi, body.slice(start, start + count))
            start += count
            merger = self.consumers[index].merger
            verdict = merger.offer(channel, tile)
            if verdict is Verdict.DUPLICATE:
                self._duplicates += 1
            elif verdict is Verdict.GAP:
                self._gaps += 1
                producer = self.plan[self.operator.inputs[message.input].operator]
                to = Peer(message.producer, producer.home(message.producer_slice))
                want = Want(message.producer_slice, index, merger.inlets[channel].hi)
                yield Tell(to, Attach(self.me.operator, self.me.replica, message.input, (want,)))

    def _outlet(self, slice_index: int, consumer: int, input_index: int) -> Outlet:
        for outlet in self.slices[slice_index].outlets:
            if outlet.consumer == consumer and outlet.input == input_index:
                return outlet
        raise ProtocolError(f"operator {consumer}, input {input_index}: does not read slice {slice_index} of ours")

    def _check_consumer(self, consumer: int, slices: Sequence[int], cuts: Sequence[int]) -> Operator:
        if not 0 <= consumer < len(self.plan.operators):
            raise ProtocolError(f"operator {consumer}: there is none")
        operator = self.plan.operators[consumer]
        if any(not 0 <= index < operator.slices for index in slices) or any(not START <= cut <= END for cut in cuts):
            raise ProtocolError(f"slices {slices} at {cuts}: not of operator {consumer}")
        return operator

    def _attached(self, message: Attach) -> Iterator[Action]:
        wants = message.wants
        operator = self._check_consumer(message.consumer, [w.consumer_slice for w in wants], [w.lo for w in wants])
        if not 0 <= message.replica < len(operator.replicas) or any(w.producer_slice not in self.slices for w in wants):
            raise ProtocolError(f"operator {message.consumer}, replica {message.replica}: attaches to what is not here")
        by_slice: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for want in wants:
            by_slice[want.producer_slice].append((want.consumer_slice, want.lo))
        outlets = [(self._outlet(index, message.consumer, message.input), found) for index, found in by_slice.items()]
        return (send for outlet, found in outlets for send in outlet.attach(message.replica, found))

    def _consumers_safe(self, message: Safe) -> Iterator[Action]:
        self._check_consumer(message.consumer, [s for s, _ in message.cuts], [cut for _, cut in message.cuts])
        for outlet in [self._outlet(index, message.consumer, message.input) for index in self.slices]:
            outlet.advance(message.cuts)
        return iter(())

    # -- work ----------------------------------------------------------------------------------------------------

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
        return all(s.safe == END for s in self.slices.values())

    @property
    def progress(self) -> Progress:
        slices = self.slices.values()
        return Progress(
            rows_in=sum(c.rows_in for c in self.consumers.values()),
            rows_out=sum(s.rows_out for s in slices),
            queued=sum(c.merger.queued for c in self.consumers.values()),
            frontier=min((s.done for s in slices), default=END),
            safe=min((s.safe for s in slices), default=END),
            duplicates=self._duplicates,
            gaps=self._gaps,
        )
