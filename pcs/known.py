"""What a PCS knows of a whole run, beyond its own replicas, and what follows from it when the PuppetMaster is silent.

A run does not need its PuppetMaster once it is started. PCSs that miss it tell each other what they know, so that one
that was not told everything before the PuppetMaster died learns it from the others; all of it only grows, so the order
of the news does not matter. Without a PuppetMaster it is the PCSs that end a run: when every slice of the plan was said
to be finished (that is for ever: what is safe to the end of the line stays so), when a replica has failed, and when
there is nothing to go on with.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from dadstorm import logs
from dadstorm.core.messages import Peer
from dadstorm.core.spreading import Book
from dadstorm.plan import LOCAL, Plan
from dadstorm.whereabouts import Whereabouts
from dadstorm.wire import control
from dadstorm.wire.cuts import Cuts
from dadstorm.wire.endpoint import directory_problem

log = logs.get_logger()


class Kept(msgspec.Struct, frozen=True):
    """What a PCS needs to know to go on with a run of the PCS before it; the zygote remembers it."""

    request: control.Open
    folder: str
    reign: int
    began: float
    incarnation: int
    """Of the PCS, as a holder of copies: how many have taken the place of one before."""
    news: control.News
    slow: tuple[tuple[int, int, int], ...]
    cuts: Cuts
    moved: tuple[control.Moved, ...]
    book: Book | None
    """Where slices live that have moved."""


Addresses = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Known:
    plan: Plan
    directory: Addresses = ()
    pcs: Addresses = ()
    """Where the PCS of each replica listens."""
    started: set[int] = field(default_factory=set)
    """Operators that process what they get."""
    intervals: dict[int, int] = field(default_factory=dict)
    draining: bool = False
    finished: set[tuple[int, int]] = field(default_factory=set)
    """Operator and slice: what is finished stays so, whoever has it."""
    failure: control.Failed | None = None
    """Why the run cannot go on."""
    incarnations: dict[Peer, int] = field(default_factory=dict)
    """The newest of each replica that we have brought up or heard to have moved."""
    slow: dict[Peer, int] = field(default_factory=dict)
    """Milliseconds by which replicas take up messages late."""
    cuts: Cuts = ()
    """How the network is to look cut."""
    moved: dict[Peer, control.Moved] = field(default_factory=dict)
    """Who lives on another host than the plan says; the directory has their addresses."""

    def introduce(self, message: control.Directory) -> str | None:
        """Take in who listens where; or say why that cannot be."""
        problem = directory_problem(message, [len(operator.replicas) for operator in self.plan.operators])
        if problem is None:
            self.directory = Whereabouts(message.addresses, self.moved.values()).addresses
            self.pcs = message.pcs
        return problem

    def has(self, peer: Peer) -> bool:
        """Whether there is such a replica, as far as we have been told."""
        return Whereabouts(self.directory).has(peer)

    def move(self, moved: control.Moved) -> str | None:
        """A replica lives elsewhere now: the address that it has left, if that is another one."""
        peer = Peer(moved.operator, moved.replica)
        self.moved[peer] = moved
        self.lives(peer, moved.incarnation)
        where = Whereabouts(self.directory)
        left = where.move(moved)
        self.directory = where.addresses
        return None if left == moved.address else left

    def lives(self, peer: Peer, incarnation: int) -> None:
        """There is this incarnation of a replica: what those before it have failed of stops nobody."""
        self.incarnations[peer] = max(incarnation, self.incarnations.get(peer, 0))
        if self.failure is not None and self._replaced(self.failure):
            self.failure = None

    def fail(self, message: control.Failed) -> None:
        """A replica has failed, and with it the run, unless the replica has been replaced."""
        if self._replaced(message):
            log.warning("one that was replaced has failed", replica=message.replica, text=message.text)
        else:
            self.failure = message

    def _replaced(self, failed: control.Failed) -> bool:
        newest = self.incarnations.get(Peer(failed.operator, failed.replica), 0)
        return failed.incarnation is not None and failed.incarnation < newest

    def resume(
        self, peer: Peer, living: dict[int, int], slices: dict[int, int] | None, lost: float
    ) -> control.Resume:
        """What a new incarnation is told; its predecessor was ``lost`` then."""
        now = time.monotonic()
        started, interval_ms = peer.operator in self.started, self.intervals.get(peer.operator, 0)
        moved, slow_ms = tuple(self.moved.values()), self.slow.get(peer, 0)
        return control.Resume(
            living, self.directory, started, self.draining, interval_ms, slow_ms, self.cuts, slices, moved,
            detected_ms=(now - lost) * 1000, asked_ms=now * 1000,
        )  # fmt: skip

    def is_finished(self, peer: Peer) -> bool:
        """Whether all slices that the plan gives a replica are."""
        operator = self.plan.operators[peer.operator]
        return all(
            (peer.operator, index) in self.finished
            for index in range(operator.slices)
            if operator.home(index) == peer.replica
        )

    def news(self, address: str) -> control.News:
        """All of it, for other PCSs; we listen on ``address``."""
        return control.News(
            address,
            self.directory,
            self.pcs,
            tuple(sorted(self.started)),
            tuple(sorted(self.intervals.items())),
            self.draining,
            tuple(sorted(self.finished)),
        )

    def learn(self, news: control.News) -> str | None:
        """Take in what another PCS knows and we do not; or say why that cannot be."""
        if not self.directory and news.directory:
            problem = self.introduce(control.Directory(news.directory, news.pcs))
            if problem is not None:
                return problem
        self.started.update(index for index in news.started if 0 <= index < len(self.plan.operators))
        self.finish(news.finished)
        self.intervals = dict(news.intervals) | self.intervals
        self.draining = self.draining or news.draining
        return None

    def restore(self, kept: Kept) -> None:
        """Know what the PCS before us knew."""
        self.learn(kept.news)
        self.slow = {Peer(operator, replica): ms for operator, replica, ms in kept.slow}
        for moved in kept.moved:
            self.move(moved)

    def finish(self, slices: Iterable[tuple[int, int]]) -> None:
        """These slices are finished; what is no slice of the plan is passed over."""
        self.finished |= self._slices() & set(slices)

    def _slices(self) -> set[tuple[int, int]]:
        return {(number, index) for number, one in enumerate(self.plan.operators) for index in range(one.slices)}

    def for_replicas(self) -> Iterator[control.Message]:
        """What every replica was told by the PuppetMaster, if it came to that; to hear it again does no harm."""
        if self.directory:
            yield control.Directory(self.directory)
            if self.started:
                yield control.Start(tuple(sorted(self.started)))
            for operator, ms in sorted(self.intervals.items()):
                yield control.Interval(operator, ms)
            if self.draining:
                yield control.Drain()

    def others(self, host: str) -> list[str]:
        """Where the PCSs of the other hosts listen."""
        found = {
            address
            for operator, addresses in zip(self.plan.operators, self.pcs, strict=bool(self.pcs))
            for replica, address in zip(operator.replicas, addresses, strict=True)
            if replica.host != host
        }
        return sorted(found)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the plan, each once, in its order."""
        return tuple(dict.fromkeys(replica.host for operator in self.plan.operators for replica in operator.replicas))

    def over(self) -> str | None:
        """Why a run whose PuppetMaster is gone ends now; None: it goes on."""
        if self.failure is not None:
            name = self.plan.operators[self.failure.operator].name
            return f"{name} replica {self.failure.replica} failed: {self.failure.text}"
        if LOCAL in self.hosts:
            return "the PuppetMaster is gone, and with it the replicas on its own machine"
        if not (self.directory and self.started):
            return "the PuppetMaster is gone, and had not started the run"
        return "all replicas are finished" if self.finished >= self._slices() else None
