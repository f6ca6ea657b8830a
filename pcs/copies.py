"""The PCS as a holder: copies of operators that have a single replica, and so no peers.

The copies are gone with the PCS. One that takes its place is another incarnation of the holder; its beats say so, and
the replicas send everything again. Until they have, a replica that dies too is lost with all its copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dadstorm.core.holder import Holder
from dadstorm.core.messages import PCS, Beat, Copy, Peer, Seek, Settle
from dadstorm.core.replica import give
from dadstorm.errors import RunFailed
from dadstorm.heart import BEAT_EVERY_S
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.bodies import decode_table
from dadstorm.wire.codec import Content, Frame, Rubbish
from dadstorm.wire.endpoint import Endpoint
from pcs.child import Child

Send = Callable[[str, control.Message, Content], None]


class Copies:
    def __init__(self, plan: Plan, endpoint: Endpoint, send: Send, incarnation: int) -> None:
        """``incarnation``: how many PCSs held copies of this run before us."""
        self._plan = plan
        self._endpoint = endpoint
        self._send = send
        self.incarnation = incarnation
        self._holder = Holder(PCS, incarnation)
        self._next_beat = 0.0

    def hold(
        self, message: Copy | Settle | Seek, body: Frame | None, child: Child | None
    ) -> control.Failed | None:
        """Do what a holder does, and answer the child that asked for it; or why the run cannot go on."""
        if child is None:
            self._endpoint.drop(f"a {type(message).__name__} of a replica that is not ours")
            return None
        try:
            self._hold(message, body, child)
        except RunFailed as error:
            why = f"the copy of the state of {child.name}: {error}"
            return control.Failed(message.operator, message.replica, "run", why, None)
        return None

    def _hold(self, message: Copy | Settle | Seek, body: Frame | None, child: Child) -> None:
        if isinstance(message, Seek):
            for index in message.slices:
                found = give(self._holder, PCS, message, index)
                self._send(child.bind, found.message, found.table)
        elif isinstance(message, Copy):
            try:
                table = None if body is None else decode_table(body)
            except Rubbish as reason:
                self._endpoint.drop(str(reason))
                return
            self._send(child.bind, self._holder.copy(message, table), None)
        else:
            self._send(child.bind, self._holder.settle(message), None)

    def beat(self, children: Mapping[Peer, Child]) -> None:
        """Now and then, tell those who have nobody else, or may have nobody else one day, that we are there."""
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_EVERY_S
            for peer, child in children.items():
                if child.alive and (child.ring == 1 or self._plan.recovery == "spread"):
                    self._send(child.bind, Beat(peer.operator, PCS, self.incarnation), None)

    def loss(self, peer: Peer) -> control.Failed | None:
        """Why a replica that was started cannot be brought back, because the PCS before us had the only copies of its
        state; None: it can. A source reads again; a sink would write its file anew, and miss what was let go. What is
        durable has another copy on disk."""
        operator = self._plan.operators[peer.operator]
        stateless = operator.kind == "source" or (self._plan.semantics == "at-most-once" and operator.kind != "sink")
        copies = [self._holder.incarnation_of(peer.operator, index) for index in range(operator.slices)]
        elsewhere = len(operator.replicas) > 1 or self._plan.durable is not None
        if elsewhere or stateless or not self.incarnation or None not in copies:
            return None
        return control.Failed(
            *peer,
            "run",
            f"the state of operator {operator.name} is lost: its only replica and the PCS of its host, which held the "
            "copy, died one shortly after the other. Run the topology again; more replicas hold more copies",
            None,
        )
