"""The simulated PuppetMaster: introduces replicas to each other, says Start, and may die in the middle of that.

As ``puppetmaster/deployment.py`` does, it waits until every replica has said Hello; then it tells the PCS, and one
replica after the other, who is where; then, everybody at once or one operator after the other, that they may begin.
Whoever says Hello later is told the same. No data flows through it, and nobody waits for it beyond that.

It may die as soon as the PCS knows all that it has said so far (before that the real run ends, and says so). A PCS that
misses it tells its replicas what they may not have heard. The one that takes its place (``puppetmaster --attach``)
learns from the PCS how things stand, tells everybody again, and goes on with what is not started yet.

Its links lose nothing, they are only slow: a connection whose two ends live delivers, and who has died does not hear.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from dadstorm.core.messages import Peer

if TYPE_CHECKING:
    from dadstorm.simulator.cluster import Cluster

STEP_MS = 4.0
"""How long at most it takes to say one thing to one replica."""
BETWEEN_MS = (0.0, 0.0, 20.0, 200.0)
"""How long at most the user waits between two commands."""


class SimulatedPuppetMaster:
    def __init__(self, cluster: Cluster, chance: random.Random, *, attached: bool = False) -> None:
        """``attached``: to a run that its predecessor has deployed."""
        self.died_ms: float | None = None
        self._cluster = cluster
        self._chance = chance
        self._between_ms = chance.choice(BETWEEN_MS)
        pcs = cluster.pcs
        self._missing: set[Peer] = set() if attached else set(cluster.peers)
        """Who has not said Hello."""
        self._introduced = attached
        """Whether it was said who is where."""
        self._started: set[int] = set(pcs.started) if attached else set()
        numbers = [number for number in range(len(cluster.plan.operators)) if number not in self._started]
        chance.shuffle(numbers)
        self._commands = [[number] for number in numbers] if chance.random() < 0.5 else [numbers]
        """What is still to be started, one command after the other."""
        self._to_tell: deque[Peer] = deque()
        self._tell_everybody()
        self._step()

    @property
    def may_die(self) -> bool:
        """Whether the run can do without it: the PCS knows what was said, and that there is a run at all."""
        pcs = self._cluster.pcs
        return self.died_ms is None and pcs.introduced and pcs.started >= self._started

    @property
    def has_to_come_back(self) -> bool:
        """Whether it has died with something unsaid."""
        return self.died_ms is not None and bool(self._commands)

    def die(self) -> None:
        self.died_ms = self._cluster.agenda.now_ms

    def hello(self, peer: Peer) -> None:
        """A replica is there."""
        self._cluster.agenda.after(STEP_MS * self._chance.random(), lambda: self._on_hello(peer))

    def _on_hello(self, peer: Peer) -> None:
        self._missing.discard(peer)
        if self._introduced:
            self._to_tell.append(peer)

    def _step(self) -> None:
        """Say the next thing: to the PCS, as soon as it listens, and to one replica."""
        if self.died_ms is not None:
            return
        cluster, wait_ms = self._cluster, STEP_MS * self._chance.random()
        if self._introduced and not cluster.pcs.frozen:
            cluster.pcs.told(self._started)
        if self._to_tell:
            peer = self._to_tell.popleft()
            cluster.tell(peer, started=peer.operator in self._started)
        elif not self._introduced:
            if not self._missing:
                self._introduced = True
                self._tell_everybody()
        elif self._commands:
            self._started.update(self._commands.pop(0))
            self._tell_everybody()
            wait_ms += self._between_ms * self._chance.random()
        elif self.may_die:
            wait_ms += cluster.faults.tick_ms  # Nothing is left to say; unless somebody comes late.
        cluster.agenda.after(wait_ms, self._step)

    def _tell_everybody(self) -> None:
        if self._introduced:
            peers = list(self._cluster.peers)
            self._chance.shuffle(peers)
            self._to_tell.extend(peers)
