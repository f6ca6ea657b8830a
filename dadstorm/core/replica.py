"""A replica: the slices of one operator that live together, as one state machine.

Messages from other replicas, records from readers, commits of sinks and ticks of a clock go in; actions come out. The
machine never waits: ``work`` runs one step of one slice, so that whoever drives it (the replica process, the
simulator, a test) stays in charge of time. The same sequence of calls gives the same actions.

Everything begins with ``begin``. The first incarnation resumes its slices at the start of the line. A later one first
asks everybody who may hold copies, takes the newest settled snapshot of each slice and resumes there; so does who is
told to adopt slices of a lost peer (``recovery: spread``). ``resume(slice, cut)`` is the one verb, whatever the reason.
What passes between this replica and those up- and downstream of it is the ``Exchange``'s part.

A message that does not fit the plan raises ``ProtocolError`` and changes nothing: the peer is wrong, not we.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

import pyarrow as pa

from dadstorm.core.audit import Audited, made_outside
from dadstorm.core.checks import Checks, ProtocolError
from dadstorm.core.exchange import Exchange, Lost
from dadstorm.core.holder import Holder
from dadstorm.core.homes import Homes
from dadstorm.core.keeper import KeeperAction
from dadstorm.core.kernel import Kernel
from dadstorm.core.line import END, START
from dadstorm.core.messages import (
    DISK,
    PCS,
    Adopt,
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
    Reach,
    Reached,
    Safe,
    Seek,
    Settle,
    Tiles,
)
from dadstorm.core.outlet import Send
from dadstorm.core.repeat import spaced
from dadstorm.core.ring import Respawn, Ring
from dadstorm.core.rows import Rows
from dadstorm.core.seeking import Seeking
from dadstorm.core.slice import Deliver, Emitted, SinkSlice, Slice, SourceSlice, Tell, WorkSlice
from dadstorm.core.steward import Steward
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
        self._wiring = Wiring(plan, me, make_kernel)
        self._checks = Checks(plan, me)
        self._keeps = plan.semantics != "at-most-once"
        self.ring = Ring(me.replica, len(self.operator.replicas), plan.suspect_after_ms)
        self.homes = Homes(plan)
        self.holder = Holder(me.replica, incarnation)
        self.steward = Steward()
        self.sources: dict[int, SourceSlice] = {}
        self.works: dict[int, WorkSlice] = {}
        self.sinks: dict[int, SinkSlice] = {}
        self.consumers: dict[int, WorkSlice | SinkSlice] = {}
        self.slices: dict[int, Slice] = {}
        self._exchange = Exchange(plan, me, self.homes, self.slices, self.consumers)
        self._ticks = 0
        self._hosted: dict[int, int] = {}
        """The slices that live here or are being resumed, and in which incarnations."""
        self._outdone = False
        """A PCS has had one of our slices resumed elsewhere since."""
        self._seekings: list[Seeking] = []
        """The slices that are to be resumed here once their state is found."""
        self.resumed = False
        """Whether the slices that this replica began with are there."""
        self.tapped = False
        """Whether every tuple that is emitted is to be seen; set before ``begin``."""
        self._turn = 0

    # -- resume --------------------------------------------------------------------------------------------------

    def begin(
        self, living: Mapping[int, int] | None = None, slices: Mapping[int, int] | None = None
    ) -> Iterator[Action]:
        """Begin to live, with these slices in these incarnations (None: those that the plan puts here): at the start
        of the line, or, as a later incarnation, where the copies at ``living`` say (None: nobody is known to be
        dead; so it is when a replica died before anybody knew of the others)."""
        if slices is None:
            slices = dict.fromkeys(self.homes.at(*self.me), self.incarnation)
        if living is not None:
            self.ring.learn(dict(living))
        yield from self._seek(slices, anew=not self.incarnation)
        yield from self._resume_what_is_found()

    def _adopt(self, message: Adopt) -> Iterator[Action]:
        """Take over slices of a peer that is gone. If that is in a higher incarnation than we have one of them, it has
        been somebody else's in between: what we have of it is over, and who begins anew finds the newest state."""
        self._checks.ring(message.operator, message.lost, "Adopt")
        self._checks.slices(message.operator, message.replica, message.slices)
        if message.replica != self.me.replica or message.lost == self.me.replica:
            raise ProtocolError(f"replica {message.replica} is to adopt slices of {message.lost}: not this one")
        if any(self._hosted.get(index, incarnation) < incarnation for index, incarnation in message.slices):
            self._outdone = True
            return
        if self.ring.down(message.lost, message.lost_incarnation):
            yield from self._ring_changed()
        wanted = {index: incarnation for index, incarnation in message.slices if index not in self._hosted}
        if wanted:
            yield from self._seek(wanted, anew=False)
            yield from self._resume_what_is_found()

    def _seek(self, slices: Mapping[int, int], *, anew: bool) -> Iterator[Action]:
        """Find the state of slices; ``anew``: nobody of this run can have any."""
        seeking = Seeking(self.me, self.incarnation, slices, self._who_may_hold(anew=anew) if slices else [])
        self._seekings.append(seeking)
        self._hosted.update(slices)
        for question in list(seeking.questions(self.me.replica)):
            for index in question.slices:
                found = give(self.holder, self.me.replica, question, index)
                seeking.answered(found.message, found.table)
        yield from seeking.ask()

    def _who_may_hold(self, *, anew: bool) -> list[int]:
        """Everybody who may have copies: those of the ring who are not known to be dead (who is only suspected may have
        the newest, behind a network that was cut) and this replica itself. The PCS holds them for who has no peers;
        with ``spread`` that may come to be. The disk has those of before everybody died, too."""
        disk = [DISK] if self.plan.durable and (self.plan.continues or not anew) else []
        if anew or not (self._keeps or self.operator.kind in ("source", "sink")):
            return disk
        if len(self.operator.replicas) == 1:
            return [PCS, *disk]
        return [*self.ring.undead, self.me.replica, *([PCS] if self.plan.recovery == "spread" else []), *disk]

    def _resume_what_is_found(self) -> Iterator[Action]:
        for seeking in [seeking for seeking in self._seekings if seeking.over]:
            self._seekings.remove(seeking)
            yield from self._resume(seeking)

    def _resume(self, seeking: Seeking) -> Iterator[Action]:
        """Resume slices at the best snapshots that were found, or at the start of the line."""
        for index, incarnation in seeking.slices.items():
            base = seeking.base(index)
            if self.operator.kind == "source":
                self.slices[index] = self.sources[index] = self._wiring.source(index, incarnation, base)
            elif self.operator.kind == "sink":
                sink = self._wiring.sink(index, incarnation, base)
                self.slices[index] = self.sinks[index] = self.consumers[index] = sink
            else:
                work = self._wiring.work(index, incarnation, base)
                self.slices[index] = self.works[index] = self.consumers[index] = work
            if self.operator.kind in ("source", "sink"):
                yield Open(index, base.cut, made_outside(base.mark))
            self.slices[index].tapped = self.tapped
        self.homes.moved(*self.me, seeking.slices.items())
        self.resumed = True
        yield from self._choose_holders()
        yield from self._exchange.attach(seeking.slices)
        yield from self._introduce()

    def _introduce(self) -> Iterator[Tell]:
        """Who has resumed anything tells its ring and its consumers that it is there."""
        lives = tuple((index, self.homes.incarnation(self.me.operator, index)) for index in self.slices)
        if not (self.plan.continues or self.incarnation or any(incarnation for _, incarnation in lives)):
            return
        here = Here(*self.me, self.incarnation, lives)
        others = [Peer(self.me.operator, replica) for replica in self.ring.living]
        for consumer, _ in self.plan.consumers(self.operator.name):
            index = self.plan.index(consumer.name)
            others += [Peer(index, replica) for replica in range(len(consumer.replicas))]
        for peer in sorted(set(others)):
            yield Tell(peer, here)

    def _choose_holders(self) -> Iterator[Action]:
        for slice_ in self.slices.values():
            if slice_.keeper:
                holders = self._holders(slice_.index)
                away = holders.pop(Peer(self.me.operator, PCS), None) if self.steward.gone else None
                slice_.keeper.alone = away is not None and not holders
                yield from slice_.keeper.hold_at(holders)

    def _holders(self, index: int) -> dict[Peer, int]:
        """Who keeps copies of a slice: peers, or the PCS where there are none and nobody brings them back."""
        holders = self.ring.holders(index, self.plan.backups or len(self.operator.replicas) - 1)
        if len(self.operator.replicas) == 1 or (not holders and self.plan.recovery == "spread"):
            holders = {PCS: self.steward.incarnation}
        if self.plan.durable:
            holders[DISK] = 0
        return {Peer(self.me.operator, replica): incarnation for replica, incarnation in holders.items()}

    # -- messages ------------------------------------------------------------------------------------------------

    def handle(self, message: Message, body: Body = None, now_ms: float = 0) -> Iterator[Action]:
        """A message from another replica or a PCS; ``body`` is the rows of tiles, the table of a snapshot."""
        if isinstance(message, Copy | Settle | Seek):
            return self._hold(message, body)
        if isinstance(message, Held):
            return self._held(message)
        if isinstance(message, Found):
            return self._answered(message, body)
        if isinstance(message, Adopt):
            return self._adopt(message)
        if isinstance(message, Beat | Down) or (isinstance(message, Here) and message.operator == self.me.operator):
            return self._ring_news(message, now_ms)
        if not self.resumed:
            return iter(())
        if isinstance(message, Tiles):
            assert body is None or isinstance(body, Rows)
            return self._exchange.tiles(message, body)
        if isinstance(message, Attach):
            return self._exchange.attached(message)
        if isinstance(message, Safe):
            return self._exchange.consumers_safe(message)
        if isinstance(message, Gone):
            return self._exchange.gone(message)
        if isinstance(message, Done):
            return self._exchange.done(message)
        if isinstance(message, Reach):
            return self._exchange.how_far(message)
        if isinstance(message, Reached):
            return self._exchange.reached(message)
        return self._exchange.here(message)

    def _hold(self, message: Copy | Settle | Seek, body: Body) -> Iterator[Action]:
        self._checks.ring(message.operator, message.replica, type(message).__name__)
        to = Peer(message.operator, message.replica)
        if isinstance(message, Seek):
            return self._give(to, message)
        self._checks.slices(message.operator, message.replica, [(message.slice, message.incarnation)])
        self.homes.moved(*to, [(message.slice, message.incarnation)])
        if self.plan.recovery == "respawn" and message.replica in self.ring:
            # Its successor may have asked an earlier incarnation of ours, which has died with its promise.
            self.holder.promise(message.operator, message.slice, self.ring.incarnation(message.replica))
        if isinstance(message, Copy):
            assert not isinstance(body, Rows)
            return iter([Tell(to, self.holder.copy(message, body))])
        return iter([Tell(to, self.holder.settle(message))])

    def _give(self, to: Peer, seek: Seek) -> Iterator[Action]:
        if self.ring.down(seek.replica, seek.reborn - 1):
            yield from self._ring_changed()
        for index in seek.slices:
            yield give(self.holder, self.me.replica, seek, index)

    def _held(self, message: Held) -> Iterator[Action]:
        slice_ = self.slices.get(message.slice) if message.operator == self.me.operator else None
        if slice_ is None or slice_.keeper is None:
            return iter(())
        return slice_.keeper.held(message)

    def _answered(self, message: Found, body: Body) -> Iterator[Action]:
        """A holder's answer to our Seek; when all have answered, resume. One that has been replaced, and lives on
        somewhere, does not answer for its successor, who may have newer copies."""
        if message.holder in self.ring and message.holder_incarnation < self.ring.incarnation(message.holder):
            return
        for seeking in self._seekings:
            if message.operator == self.me.operator and message.slice in seeking.slices:
                assert not isinstance(body, Rows)
                seeking.answered(message, body)
        yield from self._resume_what_is_found()

    def _ring_news(self, message: Here | Beat | Down, now_ms: float) -> Iterator[Action]:
        if isinstance(message, Beat) and (message.operator, message.replica) == (self.me.operator, PCS):
            if self.steward.heard(message.incarnation, now_ms):
                yield from self._choose_holders()
            return
        self._checks.ring(message.operator, message.replica, type(message).__name__)
        if isinstance(message, Down):
            news = self.ring.down(message.replica, message.incarnation)
        else:
            news = self.ring.heard(message.replica, message.incarnation, now_ms)
        if isinstance(message, Here):
            self._checks.slices(message.operator, message.replica, message.slices)
            self.homes.moved(message.operator, message.replica, message.slices)
        if news:
            yield from self._ring_changed()
            yield from self.ring.respawns(now_ms, self._vouches)

    def _ring_changed(self) -> Iterator[Action]:
        yield from self._choose_holders()
        for seeking in self._seekings:
            seeking.without([r for r in range(len(self.operator.replicas)) if self.ring.is_down(r)])
        yield from self._resume_what_is_found()

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
        if self.steward.tick(now_ms):
            yield from self._choose_holders()
        yield from self.ring.respawns(now_ms, self._vouches)
        self._ticks += 1
        if spaced(self._ticks):
            for seeking in self._seekings:
                yield from seeking.ask()
        if not self.resumed:
            return
        for slice_ in self.slices.values():
            slice_.stride.tick(now_ms, slice_.done)
            if slice_.keeper:
                yield from slice_.keeper.tick()
            if isinstance(slice_, SourceSlice):
                yield from slice_.tick(lambda cut, index=slice_.index: mark_at(index, cut))  # type: ignore[misc]
                if slice_.asks:
                    yield from self._exchange.ask_how_far(slice_.index)
            else:
                yield from slice_.standing(slice_.stands_still)
        self._exchange.tick()
        if spaced(self._ticks):
            yield from self._exchange.attach_unheard()
            if self._exchange.unattached():  # They may not have heard of us.
                yield from self._introduce()

    def _vouches(self, replica: int) -> bool:
        """Whether we hold copies of all slices of a replica, as their last incarnations known to us made them."""
        for index in self.homes.at(self.me.operator, replica):
            spread = self.plan.recovery == "spread"
            last = self.homes.incarnation(self.me.operator, index) if spread else self.ring.incarnation(replica)
            if self.holder.incarnation_of(self.me.operator, index) != last:
                return False
        return True

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
        return self._exchange.announce()

    @property
    def finished(self) -> bool:
        """Everything to the end of the line is done, here and downstream."""
        return self.resumed and not self._seekings and all(s.safe == END for s in self.slices.values())

    @property
    def seeking(self) -> bool:
        """Whether slices are to be resumed here whose state has not been found yet."""
        return bool(self._seekings) or not self.resumed

    def hosts(self, slices: Iterable[tuple[int, int]]) -> bool:
        """Whether all these slices live here, or are being resumed, in these incarnations or later ones."""
        return all(self._hosted.get(index, -1) >= incarnation for index, incarnation in slices)

    @property
    def superseded(self) -> bool:
        """A higher incarnation has taken over: step down."""
        return self._outdone or any(s.keeper is not None and s.keeper.superseded for s in self.slices.values())

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
            duplicates=self._exchange.duplicates,
            gaps=self._exchange.gaps,
        )


def give(holder: Holder, number: int, seek: Seek, slice_index: int) -> Give:
    """A holder's answer to somebody who seeks a slice."""
    to = Peer(seek.operator, seek.replica)
    found = holder.give(to.operator, slice_index, seek.incarnation)
    incarnation, base = found or (0, Delta(-1))
    mark = None if base.mark is None else dict(base.mark)
    sought = (to.operator, slice_index, seek.incarnation)
    return Give(to, Found(*sought, incarnation, number, base.cut, mark, holder.incarnation), base.table)
