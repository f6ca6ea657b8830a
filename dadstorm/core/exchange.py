"""The exchange: a replica's dealings with its producers and consumers.

Downstream tiles flow, and what is missing is asked for again; upstream flows how far this replica is safe. A channel is
attached once and then carries tiles by itself: the rest of this module is for when something was lost, has moved or was
brought back. Where a slice lives is the ``Homes``' business; which slices live here, the replica's: it shares its
slices with the exchange.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dadstorm.core.checks import Checks, ProtocolError
from dadstorm.core.homes import Homes
from dadstorm.core.keeper import KeeperAction
from dadstorm.core.line import START
from dadstorm.core.messages import Attach, Done, Gone, Here, Peer, Reach, Reached, Safe, Tiles, Want
from dadstorm.core.outlet import Outlet, Send
from dadstorm.core.repeat import Age, spaced
from dadstorm.core.rows import Rows
from dadstorm.core.slice import SinkSlice, Slice, Tell, WorkSlice
from dadstorm.core.tile import Tile, Verdict
from dadstorm.plan import Plan


@dataclass(frozen=True, slots=True)
class Lost:
    """An action: stop the topology, because every copy of a slice's state is gone."""

    operator: int
    slice: int
    wanted: int
    kept: int


class Exchange:
    def __init__(
        self,
        plan: Plan,
        me: Peer,
        homes: Homes,
        slices: Mapping[int, Slice],
        consumers: Mapping[int, WorkSlice | SinkSlice],
    ) -> None:
        self._plan = plan
        self._me = me
        self._operator = plan.operators[me.operator]
        self._homes = homes
        self._slices = slices
        self._consumers = consumers
        self._checks = Checks(plan, me)
        self._producers = self._checks.producers
        self._no_rows = Rows.empty(plan.input_schema(self._operator) if self._operator.inputs else pa.schema([]))
        self._keeps = plan.semantics != "at-most-once"
        self._told: dict[int, int] = {}
        """How far each slice was told to be safe."""
        self._told_age = Age()
        self.duplicates = 0
        self.gaps = 0

    # -- with producers ------------------------------------------------------------------------------------------

    def attach(self, only: Iterable[int] | None = None, to: Peer | None = None) -> Iterator[Tell]:
        """Ask the producers for the tiles of every channel, from where this replica stands: for some of its slices
        only, or one producer replica only."""
        chosen = self._consumers if only is None else only
        for input_index, producer in enumerate(self._producers):
            channels: dict[tuple[int, int], list[Want]] = defaultdict(list)
            for index in chosen:
                consumer = self._consumers[index]
                mine = self._homes.incarnation(self._me.operator, index)
                for producer_slice in range(self._plan.operators[producer].slices):
                    home = self._homes.replica(producer, producer_slice)
                    if to is None or to == (producer, home):
                        hi = consumer.merger.inlets[input_index, producer_slice].hi
                        channels[home, mine].append(Want(producer_slice, index, hi))
            for (home, mine), wants in channels.items():
                yield Tell(Peer(producer, home), self._attach_message(input_index, mine, wants))

    def _attach_message(self, input_index: int, incarnation: int, wants: Iterable[Want]) -> Attach:
        return Attach(*self._me, incarnation, input_index, tuple(wants))

    def attach_unheard(self) -> Iterator[Tell]:
        """Attach again where nothing has come yet: the producer may not have heard us, or live elsewhere by now."""
        for input_index, producer in enumerate(self._producers):
            channels: dict[int, list[Want]] = defaultdict(list)
            for index, consumer in self._consumers.items():
                for producer_slice in range(self._plan.operators[producer].slices):
                    inlet = consumer.merger.inlets[input_index, producer_slice]
                    if not inlet.heard:
                        mine = self._homes.incarnation(self._me.operator, index)
                        channels[mine].append(Want(producer_slice, index, inlet.hi))
            for mine, wants in channels.items():
                message = self._attach_message(input_index, mine, wants)
                for replica in range(len(self._plan.operators[producer].replicas)):
                    yield Tell(Peer(producer, replica), message)

    def here(self, message: Here) -> Iterator[Tell]:
        """A producer replica has resumed slices: attach to them, and tell them how far we are safe."""
        self._checks.slices(message.operator, message.replica, message.slices)
        self._homes.moved(message.operator, message.replica, message.slices)
        yield from self.attach(to=Peer(message.operator, message.replica))
        self.tell_again()

    def _know(self, message: Tiles | Done | Reach) -> bool:
        """Whatever a slice says tells where it lives. False if it has been superseded: what its successor wants to know
        of us is to stay true, so we take nothing of it any more."""
        lives = [(message.producer_slice, message.incarnation)]
        if self._homes.moved(message.producer, message.replica, lives):
            self.tell_again()
        return message.incarnation >= self._homes.incarnation(message.producer, message.producer_slice)

    def tiles(self, message: Tiles, rows: Rows | None) -> Iterator[Tell]:
        self._checks.producer(message)
        body = self._checks.tiles(message, rows)
        return self._take(message, body) if self._know(message) else iter(())

    def _take(self, message: Tiles, body: Rows) -> Iterator[Tell]:
        """Each slice gets its part of the body; a gap is asked for again. The producer may think of slices that lived
        here before we were reborn, and are not back or are elsewhere: who has them asks for their tiles."""
        start = 0
        channel = (message.input, message.producer_slice)
        missing = []
        for index, count in zip(message.slices, message.counts, strict=True):
            rows = body.slice(start, start + count)
            tile = Tile(
                message.lo, message.hi, rows, message.safe, message.incarnation, message.again, message.stride
            )
            start += count
            if index not in self._consumers:
                continue
            merger = self._consumers[index].merger
            verdict = merger.offer(channel, tile)
            if verdict is Verdict.DUPLICATE:
                self.duplicates += 1
            elif verdict is Verdict.GAP:
                inlet = merger.inlets[channel]
                if inlet.asked != inlet.hi:
                    inlet.asked = inlet.hi
                    missing.append(Want(message.producer_slice, index, inlet.hi))
        yield from self._ask_again(message, missing)

    def _ask_again(self, message: Tiles | Done, missing: list[Want]) -> Iterator[Tell]:
        if not missing:
            return
        self.gaps += 1
        to = Peer(message.producer, self._homes.replica(message.producer, message.producer_slice))
        for mine in sorted({self._homes.incarnation(self._me.operator, want.consumer_slice) for want in missing}):
            wants = [w for w in missing if self._homes.incarnation(self._me.operator, w.consumer_slice) == mine]
            yield Tell(to, self._attach_message(message.input, mine, wants))

    def done(self, message: Done) -> Iterator[Tell]:
        """How far a producer slice has come. What was lost is asked for again or, under at-most-once, given up: the
        stream goes on around it. A source that stands still makes a cut."""
        self._checks.producer(message)
        if not self._know(message):
            return
        channel = (message.input, message.producer_slice)
        missing = []
        for index, consumer in self._consumers.items():
            hi = consumer.merger.inlets[channel].hi
            if hi < message.hi and not self._keeps:
                consumer.merger.offer(channel, Tile(hi, message.hi, self._no_rows))
            elif hi < message.hi:
                missing.append(Want(message.producer_slice, index, hi))
            elif hi == message.hi and message.still:
                consumer.stands(hi)
        yield from self._ask_again(message, missing)

    def gone(self, message: Gone) -> Iterator[Lost]:
        """A producer cannot give us what we asked for. If we still need it, our state is older than what was told to be
        safe: every newer copy has been lost. (If not, the answer is to an old question.)"""
        self._checks.producer(message)
        consumer = self._consumers.get(message.slice)
        if consumer is not None:
            hi = consumer.merger.inlets[message.input, message.producer_slice].hi
            if hi < message.floor:
                yield Lost(self._me.operator, message.slice, hi, message.floor)

    def how_far(self, message: Reach) -> Iterator[Tell]:
        """A producer slice wants to know how far we, and all behind us, have got. Who has been resumed itself has to
        ask those behind it first, and answers the next time."""
        self._checks.producer(message)
        if not self._know(message):
            return
        channel = (message.input, message.producer_slice)
        for index, consumer in self._consumers.items():
            reached = consumer.reached
            if reached is None:
                yield from self.ask_how_far(index)
                continue
            asked = (message.producer, message.producer_slice, message.incarnation, message.consumer, message.input)
            answer = Reached(*asked, index, max(reached, consumer.merger.inlets[channel].hi))
            yield Tell(Peer(message.producer, message.replica), answer)

    def announce(self) -> Iterator[Tell]:
        """Tell the producers how far this replica's slices are safe, where that has moved."""
        moved = [(index, s.safe) for index, s in self._consumers.items() if s.safe > self._told.get(index, START)]
        if not moved:
            return
        self._told.update(moved)
        for input_index, producer in enumerate(self._producers):
            message = Safe(self._me.operator, input_index, tuple(moved))
            for replica in self._homes.replicas(producer):
                yield Tell(Peer(producer, replica), message)

    def tell_again(self) -> None:
        """Somebody may not know how far we are safe: say it all again."""
        self._told.clear()

    def tick(self) -> None:
        if spaced(self._told_age.tick(tuple(self._told.items()))):
            self.tell_again()

    # -- with consumers ------------------------------------------------------------------------------------------

    def _outlet(self, slice_index: int, consumer: int, input_index: int) -> Outlet:
        for outlet in self._slices[slice_index].outlets:
            if outlet.consumer == consumer and outlet.input == input_index:
                return outlet
        raise ProtocolError(f"operator {consumer}, input {input_index}: does not read slice {slice_index} of ours")

    def attached(self, message: Attach) -> Iterator[Send | Tell]:
        """A consumer wants tiles. Of slices that do not live here it asks the wrong one, and asks others too."""
        wants = message.wants
        operator = self._checks.consumer(message.consumer, [w.consumer_slice for w in wants], [w.lo for w in wants])
        if not 0 <= message.replica < len(operator.replicas) or message.incarnation < 0:
            raise ProtocolError(f"operator {message.consumer}, replica {message.replica}: attaches, and is not there")
        by_slice: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for want in wants:
            if not 0 <= want.producer_slice < self._operator.slices:
                raise ProtocolError(f"operator {message.consumer}: attaches to slice {want.producer_slice} of ours")
            if want.producer_slice in self._slices:
                by_slice[want.producer_slice].append((want.consumer_slice, want.lo))
        outlets = [(i, self._outlet(i, message.consumer, message.input), found) for i, found in by_slice.items()]
        return self._send_again(message, outlets)

    def _send_again(
        self, message: Attach, outlets: list[tuple[int, Outlet, list[tuple[int, int]]]]
    ) -> Iterator[Send | Tell]:
        """What is gone is nothing to tell to a slice that has been superseded: its successor has newer state."""
        to = Peer(message.consumer, message.replica)
        for index, outlet, found in outlets:
            for consumer_slice, lo in found:
                if self._keeps and lo < outlet.floor and not outlet.outdone(consumer_slice, message.incarnation):
                    channel = (self._me.operator, index, message.consumer, message.input, consumer_slice)
                    gone = Gone(*channel, outlet.floor)
                    yield Tell(to, gone)
            yield from outlet.attach(message.replica, message.incarnation, found)

    def consumers_safe(self, message: Safe) -> Iterator[KeeperAction]:
        self._checks.consumer(message.consumer, [s for s, _ in message.cuts], [cut for _, cut in message.cuts])
        for outlet in [self._outlet(index, message.consumer, message.input) for index in self._slices]:
            outlet.advance(message.cuts)
        return (action for slice_ in self._slices.values() for action in slice_.keep())

    def ask_how_far(self, slice_index: int) -> Iterator[Tell]:
        """Ask how far those downstream have got, wherever they live, until they have answered."""
        for outlet in self._slices[slice_index].outlets:
            if outlet.reached is None:
                for replica in range(len(self._plan.operators[outlet.consumer].replicas)):
                    yield Tell(Peer(outlet.consumer, replica), outlet.reach())

    def reached(self, message: Reached) -> Iterator[Tell]:
        self._checks.consumer(message.consumer, [message.slice], [message.hi])
        if message.producer == self._me.operator and message.producer_slice in self._slices:
            self._outlet(message.producer_slice, message.consumer, message.input).answered(message)
        return iter(())

    def unattached(self) -> bool:
        """Whether some consumer has not found its way here yet."""
        return any(not outlet.attached for slice_ in self._slices.values() for outlet in slice_.outlets)
