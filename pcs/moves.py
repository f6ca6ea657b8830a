"""Replicas that move: a run's part in finding lost hosts and in taking over what was there.

PCSs tell each other several times a second that they are there, whom they do not hear, and who has moved; so what one
knows the others know soon, however late they come. Who was taken over has the higher incarnation, and the higher one
wins: a PCS that comes back and hears of it ends its own and does not bring it back by itself.

What may be said by whom, and what follows from it, is decided in ``takeover``; here it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dadstorm import logs
from dadstorm.core.messages import Peer
from dadstorm.core.repeat import spaced
from dadstorm.errors import UserError
from dadstorm.wire import control
from dadstorm.wire.address import is_address
from pcs.child import Child, reserve
from pcs.home import Home
from pcs.known import Known
from pcs.line import Kill
from pcs.takeover import (
    BEAT_S,
    MASTER,
    RESTART_S,
    UNHEARD,
    Watch,
    candidates,
    next_incarnation,
    patience_s,
    restarts,
    stays,
)

WORD_S = 1.0
"""How often, at first, a PCS tells its own replicas who has moved."""

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Hands:
    """What the run does for its moves."""

    send: Callable[[str, control.Message], None]
    report: Callable[[control.Message], None]
    """To the PuppetMaster."""
    bring_up: Callable[[Peer, Child], None]
    """Start a replica."""


class Moves:
    def __init__(
        self, known: Known, request: control.Open, home: Home, children: dict[Peer, Child], hands: Hands
    ) -> None:
        self._known = known
        self._plan = known.plan
        self._host = request.host
        self._reach = request.reach
        self._home = home
        self._children = children
        self._hands = hands
        self._hosts = known.hosts
        self._watch = Watch(self._hosts, self._host, patience_s(self._plan), time.monotonic())
        self._wanted: dict[Peer, tuple[int, float]] = {}
        """Replicas of other hosts that somebody wants back: their incarnation, and until when that is worth knowing."""
        self._next_beat = 0.0
        self._next_word = 0.0
        self._age = 0

    # -- what is known -------------------------------------------------------------------------------------------

    def host_of(self, peer: Peer) -> str:
        moved = self._known.moved.get(peer)
        return self._plan.operators[peer.operator].replicas[peer.replica].host if moved is None else moved.host

    def pcs_of(self, peer: Peer) -> str | None:
        """Where the PCS listens that is the parent of a replica."""
        return self._pcs().get(self.host_of(peer)) if self._is_peer(peer) else None

    def _pcs(self) -> dict[str, str]:
        """Where the PCS of each host listens."""
        return {
            replica.host: address
            for operator, addresses in zip(self._plan.operators, self._known.pcs, strict=False)
            for replica, address in zip(operator.replicas, addresses, strict=False)
        }

    def next_incarnation(self, known: int) -> int:
        """The number of the next incarnation that is made here."""
        index = self._hosts.index(self._host) if self._host in self._hosts else 0
        return next_incarnation(known, index, len(self._hosts))

    @property
    def balance(self) -> int:
        """How many replicas more than the plan says live here."""
        homes = [self._plan.operators[peer.operator].replicas[peer.replica].host for peer in self._known.moved]
        there = [moved.host for moved in self._known.moved.values()]
        return there.count(self._host) - homes.count(self._host)

    def _is_peer(self, peer: Peer) -> bool:
        operators = self._plan.operators
        return 0 <= peer.operator < len(operators) and 0 <= peer.replica < len(operators[peer.operator].replicas)

    def _where(self) -> dict[Peer, str]:
        return {
            Peer(index, number): self.host_of(Peer(index, number))
            for index, operator in enumerate(self._plan.operators)
            for number in range(len(operator.replicas))
        }

    def is_ours(self, peer: Peer, incarnation: int) -> bool:
        """Whether a process of this host still is a replica, as far as is known: nobody has taken that over, nor have
        we taken it back since."""
        moved = self._known.moved.get(peer)
        return self.host_of(peer) == self._host and (moved is None or incarnation >= moved.incarnation)

    def unborn(self) -> dict[Peer, Child]:
        """Replicas that the PCS before us has taken over, and told everybody so, but was killed before it had started
        them. They are dead, and nobody but us can bring them back."""
        found = {}
        for peer, moved in self._known.moved.items():
            if moved.host == self._host and peer not in self._children:
                ring = len(self._plan.operators[peer.operator].replicas)
                found[peer] = Child(self._name(peer), moved.address, ring, moved.incarnation, alive=False)
                found[peer].lost = found[peer].born
                log.warning("taken over, and never started", replica=self._name(peer), incarnation=moved.incarnation)
        return found

    # -- what others say -----------------------------------------------------------------------------------------

    def on_pulse(self, pulse: control.Pulse) -> None:
        self._watch.heard(MASTER, pulse.silent, time.monotonic())

    def on_message(self, message: control.Present | control.Moved | control.TakeOver) -> None:
        if isinstance(message, control.Present):
            self._watch.heard(message.host, message.silent, time.monotonic())
            for moved in message.moved:
                self._learn(moved)
            for operator, replica, incarnation in message.lives:
                if self._is_peer(peer := Peer(operator, replica)):
                    self._known.lives(peer, incarnation)
        elif isinstance(message, control.Moved):
            self._learn(message)
        elif self._is_peer(peer := Peer(message.operator, message.replica)) and peer not in self._children:
            if self._watch.lost_for(self.host_of(peer), time.monotonic()) is None:
                self.want(control.Respawn(*peer, message.incarnation + 1))
            else:
                self._take_or_refuse(peer, message.incarnation, message.refused)

    def want(self, request: control.Respawn) -> None:
        """Somebody wants a replica of another host back. Its PCS is asked; if that is lost, somebody takes it over."""
        peer = Peer(request.operator, request.replica)
        address = self.pcs_of(peer)
        if address is None or self.host_of(peer) == self._host:
            return
        self._hands.send(address, request)
        until = time.monotonic() + patience_s(self._plan) + 2 * self._plan.suspect_after_ms / 1000
        self._wanted[peer] = (request.incarnation - 1, until)

    def _learn(self, moved: control.Moved) -> None:
        """A replica lives elsewhere; or, if ours is newer, it does not."""
        peer = Peer(moved.operator, moved.replica)
        known = self._known.moved.get(peer)
        if not self._is_peer(peer) or moved.host not in self._hosts or not is_address(moved.address):
            return
        if known is not None and moved.incarnation <= known.incarnation:
            return
        child = self._children.get(peer)
        if child is not None and child.incarnation > moved.incarnation:
            self._announce(peer, child)
            return
        if child is not None and moved.host != self._host:
            log.warning("superseded by another host", replica=child.name, host=moved.host)
            self._drop(peer)
        self._wanted.pop(peer, None)
        self._note(moved)
        self._tell_children()

    def _note(self, moved: control.Moved) -> None:
        self._age = 0
        if (left := self._known.move(moved)) is not None:
            self._home.endpoint.hang_up(left)
        self._home.keep()

    def _drop(self, peer: Peer) -> None:
        """A replica lives on another host now: ours ends."""
        child = self._children.pop(peer)
        if child.alive:
            self._home.kill(Kill(child.serial))
        if child.port is not None:
            child.port.close()

    # -- taking over ---------------------------------------------------------------------------------------------

    def _give_away(self, peer: Peer, known: int, refused: tuple[tuple[str, str], ...]) -> None:
        """Have a replica of a lost host taken over: by us, or by a better one."""
        if stays(self._plan.operators[peer.operator]) is not None:
            return
        pcs = self._pcs()
        without = {*self._watch.silent(time.monotonic()), *(host for host, _ in refused)}
        hosts = [host for host in candidates(self._plan, self._where(), peer, without) if host in pcs]
        if not hosts:
            self._fail(peer, refused)
        elif hosts[0] == self._host:
            self._take_or_refuse(peer, known, refused)
        else:
            self._hands.send(pcs[hosts[0]], control.TakeOver(*peer, known, refused))

    def _take_or_refuse(self, peer: Peer, known: int, refused: tuple[tuple[str, str], ...]) -> None:
        newest = max(known, self._known.incarnations.get(peer, 0))
        incarnation = self.next_incarnation(newest + UNHEARD * len(self._hosts))
        try:
            child = self._take(peer, incarnation)
        except UserError as refusal:
            log.warning("not taken over", replica=self._name(peer), reason=str(refusal))
            self._give_away(peer, known, (*refused, (self._host, str(refusal))))
            return
        log.warning("taken over", replica=self._name(peer), host=self.host_of(peer), incarnation=incarnation)
        self._announce(peer, child)
        self._hands.bring_up(peer, child)

    def _take(self, peer: Peer, incarnation: int) -> Child:
        """Become the parent of a replica of another host; UserError if it cannot live here."""
        operator = self._plan.operators[peer.operator]
        if problems := self._home.problems(operator):
            raise UserError(*problems)
        child = Child(self._name(peer), "", len(operator.replicas), incarnation)
        child.lost = self._watch.last_heard(self.host_of(peer))
        child.port, child.bind = reserve(self._reach)
        self._children[peer] = child
        return child

    def _announce(self, peer: Peer, child: Child) -> None:
        """Tell everybody that a replica lives here."""
        moved = control.Moved(*peer, child.incarnation, child.bind, self._home.public_address, self._host)
        self._note(moved)
        self._hands.report(moved)
        replicas = (address for ring in self._known.directory for address in ring)
        for address in {*replicas, *self._pcs().values()} - {child.bind, self._home.public_address}:
            self._hands.send(address, moved)

    def _fail(self, peer: Peer, refused: tuple[tuple[str, str], ...]) -> None:
        reasons = "; ".join(f"{host}: {reason}" for host, reason in refused) or "no other host is there"
        text = f"the host {self.host_of(peer)} was lost, and nobody can take over {self._name(peer)}: {reasons}"
        self._hands.report(control.Failed(*peer, "run", text, None))

    def _name(self, peer: Peer) -> str:
        return f"{self._plan.operators[peer.operator].name} replica {peer.replica}"

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Tell the others that we are there; look after what is wanted; tell our own who has moved."""
        now = time.monotonic()
        self._watch.look(now)
        if len(self._hosts) < 2 or not self._known.pcs:
            return
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._beat(now)
        for peer, (known, until) in list(self._wanted.items()):
            if now > until or peer in self._children:
                del self._wanted[peer]
            elif self._watch.lost_for(self.host_of(peer), now) is not None:
                del self._wanted[peer]
                self._give_away(peer, known, ())
        if now >= self._next_word:
            self._next_word = now + WORD_S
            self._restart(now)
            self._age += 1
            if spaced(self._age):
                self._tell_children()
                for moved in self._known.moved.values():
                    if moved.host == self._host:
                        self._hands.report(moved)

    def _beat(self, now: float) -> None:
        silent = self._watch.silent(now)
        lives = tuple((*peer, child.incarnation) for peer, child in self._children.items() if child.incarnation)
        present = control.Present(self._host, silent, tuple(self._known.moved.values()), lives)
        for host, address in self._pcs().items():
            if host != self._host:
                if host in silent:
                    # Who comes back after long is not to find a heap of old beats.
                    self._home.endpoint.hang_up(address)
                self._hands.send(address, present)

    def _tell_children(self) -> None:
        for child in self._children.values():
            if child.alive:
                for moved in self._known.moved.values():
                    self._hands.send(child.bind, moved)

    def _restart(self, now: float) -> None:
        """What needs no copies, and has nobody who would ask for it, is started elsewhere when its host stays lost."""
        for host in self._hosts:
            lost_s = self._watch.lost_for(host, now) if host != self._host else None
            if lost_s is None or lost_s < RESTART_S - patience_s(self._plan) or self._watch.objects(host, now):
                continue
            for peer, where in self._where().items():
                operator = self._plan.operators[peer.operator]
                if where == host and restarts(self._plan, operator) and not self._known.is_finished(peer):
                    without = self._watch.silent(now)
                    if candidates(self._plan, self._where(), peer, without)[:1] == [self._host]:
                        self._give_away(peer, 0, ())
