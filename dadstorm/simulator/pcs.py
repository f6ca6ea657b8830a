"""The simulated PCS: sees replicas die, tells their ring, brings back whom a leader asks for.

It does what ``pcs/service.py`` does, for all hosts at once: it holds the copies of operators that have no peers, brings
back by itself what has nobody left in its ring, and leaves alone who lives and was heard of lately. A replica that
hangs is killed, or, if the faults say so, lives on as a zombie: superseded without knowing it.

It may die. Its replicas live on, and whatever is sent to it is lost. The one that takes its place knows what the zygote
remembers: who has been started, who is dead by now, where slices live, and what the PuppetMaster has said. The copies
are gone; its beats say that another incarnation holds them now. A PuppetMaster that it misses it does without: it tells
its replicas what they may not have heard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from dadstorm.core.holder import Holder
from dadstorm.core.messages import PCS, Adopt, Beat, Copy, Down, Message, Peer, Seek, Settle
from dadstorm.core.replica import give
from dadstorm.core.ring import Respawn
from dadstorm.core.spreading import Spreading
from dadstorm.simulator.network import Body

if TYPE_CHECKING:
    from dadstorm.simulator.cluster import Cluster

TICK_MS = 50.0
MISSED_MS = 150.0
"""How long the PuppetMaster may be silent until the PCS speaks in its place."""


def pcs_of(peer: Peer) -> Peer:
    return Peer(peer.operator, PCS)


class SimulatedPcs:
    def __init__(self, cluster: Cluster, before: SimulatedPcs | None = None) -> None:
        """``before``: the one that has died, and whose replicas this one adopts."""
        self._cluster = cluster
        self.incarnation: int = 0 if before is None else before.incarnation + 1
        self.holder = Holder(PCS, self.incarnation)
        self._spreads = cluster.plan.recovery == "spread"
        self._spreading = Spreading(cluster.plan)
        self.introduced = cluster.faults.master_chance is None
        """Whether it knows who is where."""
        self.started = set(range(len(cluster.plan.operators))) if self.introduced else set()
        if before is not None:
            self._spreading.restore(before._spreading.book())
            self.introduced, self.started = before.introduced, set(before.started)
        self.frozen = False
        self._waiting: list[Callable[[], None]] = []
        """What has come while the PCS hangs."""
        self._heard_ms: dict[Peer, float] = dict.fromkeys(cluster.processes, cluster.agenda.now_ms)
        self._over = False
        cluster.agenda.after(TICK_MS, self._tick)

    def beat(self, peer: Peer) -> None:
        """A sign of life; one that comes while the PCS hangs counts when it is read."""
        if self.frozen:
            self._waiting.append(lambda: self.beat(peer))
        else:
            self._heard_ms[peer] = self._cluster.agenda.now_ms

    def take(self, sender: Peer, message: Message, body: Body) -> None:
        """A message has arrived."""
        if self.frozen:
            self._waiting.append(lambda: self.take(sender, message, body))
        elif isinstance(message, Seek):
            for index in message.slices:
                found = give(self.holder, PCS, message, index)
                self._say(sender, found.message, found.table)
        elif isinstance(message, Copy):
            self._say(sender, self.holder.copy(message, body))
        elif isinstance(message, Settle):
            self._say(sender, self.holder.settle(message))

    def thaw(self) -> None:
        """Go on. Who has not listened for long cannot tell others' silence from its own, and begins to listen anew."""
        if self._over or not self.frozen:
            return
        self.frozen = False
        self._heard_ms = dict.fromkeys(self._cluster.incarnations, self._cluster.agenda.now_ms)
        waiting, self._waiting = self._waiting, []
        for what in waiting:
            what()

    def died(self, peer: Peer) -> None:
        if not self._wanted(peer):
            self._cluster.spread(peer)
        if not self.frozen:
            self._spread_the_news(peer)

    def reborn(self, peer: Peer, incarnation: int) -> None:
        """A replica has died before it began, and begins in this incarnation."""
        if self._spreads:
            self._spreading.reborn(peer, incarnation)

    @property
    def over(self) -> bool:
        return self._over

    def end(self) -> None:
        """It dies: whatever it still has to do is not done, and what it held is gone."""
        self._over = self.frozen = True
        self.holder = Holder(PCS, self.incarnation)

    def told(self, started: Iterable[int]) -> None:
        """The PuppetMaster says who is where, and whom it has started."""
        self.introduced = True
        self.started.update(started)

    def _say(self, to: Peer, message: Message, body: Body = None) -> None:
        self._cluster.send(pcs_of(to), 0, to, message, body)

    def _tick(self) -> None:
        """Say again who is dead, as long as nobody does something about it."""
        if self._over:
            return
        self._cluster.agenda.after(TICK_MS, self._tick)
        if not self.frozen:
            for peer in self._cluster.dead():
                self._spread_the_news(peer)
            for adopt in self._spreading.unheard():
                self._adopt(adopt)
            if self.incarnation or self._cluster.faults.steward_patience_ms < math.inf:
                for peer in sorted(self._cluster.processes):
                    self._say(peer, Beat(peer.operator, PCS, self.incarnation))
            self._speak_for_the_master()

    def _speak_for_the_master(self) -> None:
        """Tell the replicas what the PuppetMaster has said, if it is missed: it may not have come to that."""
        cluster = self._cluster
        died_ms = None if cluster.master is None else cluster.master.died_ms
        if died_ms is None or not self.introduced or cluster.agenda.now_ms - died_ms < MISSED_MS:
            return
        for peer in sorted(cluster.processes):
            for delay_ms in cluster.faults.delays_ms(pcs_of(peer), peer):
                started = peer.operator in self.started
                cluster.agenda.after(delay_ms, partial(cluster.tell, peer, started=started))

    def _adopt(self, adopt: Adopt) -> None:
        """Tell an adopter, until it is seen to have heard it."""
        adopter = Peer(adopt.operator, adopt.replica)
        process = self._cluster.processes.get(adopter)
        if process is not None and process.machine.hosts(adopt.slices):
            self._spreading.heard(adopter, adopt.slices)
            self._cluster.adopted(adopter)
        else:
            self._say(adopter, adopt)

    @property
    def settled(self) -> bool:
        """Whether no slice is without an owner."""
        return not self._spreading.unheard()

    def _spread_the_news(self, peer: Peer) -> None:
        if not self.introduced:
            self._start_again(peer)
            return
        others = [other for other in self._cluster.processes if other.operator == peer.operator and other != peer]
        for other in others:
            self._say(other, Down(peer.operator, peer.replica, self._cluster.incarnations[peer]))
        if not others and self._wanted(peer):
            self._respawn(peer)

    def _start_again(self, peer: Peer) -> None:
        """Nobody knew of the others yet: what takes its place is told step by step, as it would have been."""
        incarnation = self._cluster.incarnations[peer] + 1
        self.reborn(peer, incarnation)
        self._cluster.start(peer, incarnation, None)

    def _wanted(self, peer: Peer) -> bool:
        """Whether a dead replica is to be replaced: its slices may have been spread already."""
        return not self._spreads or bool(self._spreading.slices(peer))

    def asked_to_respawn(self, operator: int, request: Respawn) -> None:
        """A leader asks for a new incarnation."""
        cluster = self._cluster
        peer = Peer(operator, request.replica)
        if self.frozen:
            self._waiting.append(lambda: self.asked_to_respawn(operator, request))
            return
        if peer not in cluster.processes:
            if self.introduced and self._wanted(peer):  # Else it is started again, as nobody knew of the others.
                self._respawn(peer)
            return
        silent_ms = cluster.agenda.now_ms - self._heard_ms.get(peer, 0.0)
        if request.incarnation > cluster.incarnations[peer] and silent_ms > cluster.plan.suspect_after_ms:
            zombie = cluster.faults.zombies and cluster.processes[peer].machine.operator.kind != "sink"
            if zombie and self.introduced:
                cluster.supersede(peer)
                self._respawn(peer)
            else:
                cluster.kill(peer, "hangs")

    def _respawn(self, peer: Peer) -> None:
        cluster = self._cluster
        living = {
            other.replica: cluster.incarnations[other]
            for other in cluster.processes
            if other.operator == peer.operator and other != peer
        }
        if self._spreads and living:
            self._spreading.spread(peer, cluster.incarnations[peer], [*living])
            cluster.spread(peer)
            for adopt in self._spreading.unheard():
                self._adopt(adopt)
            return
        self._heard_ms[peer] = cluster.agenda.now_ms
        slices = self._spreading.respawn(peer) if self._spreads else None
        cluster.start(peer, cluster.incarnations[peer] + 1, living, slices)
