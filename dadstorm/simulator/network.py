"""The simulated network: messages take their time, and by default arrive once and in order on each link.

How long a message takes is drawn from the seed: some links are fast and some slow, and on each it varies, so that
messages of different links overtake each other in every way. ``Links`` is also where faults come in: it says how
often a message arrives (not at all, once, twice), how much later, and whether order on a link is kept.

A message waits in the mail of its addressee until whoever lives there takes it. What arrives while nobody does is lost.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from dadstorm.core.messages import Message, Peer
from dadstorm.simulator.agenda import Agenda

LINK_MS = (0.3, 1.0, 3.0)
"""How long a message takes on average, from the fastest links to the slowest."""

Body = Any
Envelope = tuple[Message, Body]


class Links:
    """How messages fare: here, without any fault."""

    in_order = True

    def delays_ms(self, sender: Peer, to: Peer) -> tuple[float, ...]:
        """How much later than usual each copy of a message arrives: one copy, at once. Empty: it is lost."""
        return (0.0,)


class Network:
    def __init__(
        self, agenda: Agenda, chance: random.Random, links: Links, notify: Callable[[Peer, float], None]
    ) -> None:
        """``notify`` is told who will get something, and when it arrives."""
        self._agenda = agenda
        self._random = chance.random
        self._chance = chance
        self._links = links
        self._notify = notify
        self._usual_ms: dict[tuple[Peer, Peer], float] = {}
        self._last_ms: dict[tuple[Peer, int, Peer], float] = {}
        self._mail: dict[Peer, list[tuple[float, int, Envelope]]] = defaultdict(list)
        self.messages = 0

    def send(self, sender: Peer, incarnation: int, to: Peer, message: Message, body: Body) -> None:
        for delay_ms in self._links.delays_ms(sender, to):
            self.messages += 1
            usual_ms = self._usual_ms.get((sender, to))
            if usual_ms is None:
                usual_ms = self._usual_ms[sender, to] = self._chance.choice(LINK_MS)
            arrives_ms = self._agenda.now_ms + delay_ms + usual_ms * (0.5 + self._random())
            if self._links.in_order:
                link = (sender, incarnation, to)
                arrives_ms = self._last_ms[link] = max(arrives_ms, self._last_ms.get(link, 0.0))
            heapq.heappush(self._mail[to], (arrives_ms, self.messages, (message, body)))
            self._notify(to, arrives_ms)

    def next_ms(self, to: Peer) -> float | None:
        """When the next message for somebody arrives, as far as it is on its way."""
        mail = self._mail[to]
        return mail[0][0] if mail else None

    def take(self, to: Peer) -> list[Envelope]:
        """Everything that has arrived, in the order of its coming."""
        mail, now_ms = self._mail[to], self._agenda.now_ms
        taken = []
        while mail and mail[0][0] <= now_ms:
            taken.append(heapq.heappop(mail)[2])
        return taken
