"""How the PCSs of a run see it, put together: what a PuppetMaster that attaches itself begins with.

Views may contradict each other. A PCS that is cut off from the others has not heard that its replicas were taken over,
nor where they listen now; it may well be heard by us. So the order of the views means nothing: of those who say that a
replica is theirs the one with the higher incarnation is right, and it knows best where its own replica listens. Where a
replica listens that nobody who answers has is as most say; its PCS corrects that when it is heard of again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dadstorm.core.messages import Peer
from dadstorm.wire import control

Owned = tuple[control.Shown, control.ReplicaHere]


def owners(shown: Sequence[control.Shown]) -> dict[Peer, Owned]:
    """For each replica that somebody has: who has its newest incarnation, and that."""
    found: dict[Peer, Owned] = {}
    for view in shown:
        for one in view.replicas:
            peer = Peer(one.operator, one.replica)
            if peer not in found or one.incarnation > found[peer][1].incarnation:
                found[peer] = view, one
    return found


def addresses(shown: Sequence[control.Shown]) -> tuple[tuple[str, ...], ...]:
    """Where everybody listens; nothing if nobody knows."""
    directories = [view.news.directory for view in shown if view.news.directory]
    if not directories:
        return ()
    owned = owners(shown)

    def address(peer: Peer) -> str:
        view = owned[peer][0] if peer in owned else None
        known = [view.news.directory] if view is not None and view.news.directory else directories
        return Counter(directory[peer.operator][peer.replica] for directory in known).most_common(1)[0][0]

    return tuple(
        tuple(address(Peer(index, number)) for number in range(len(ring)))
        for index, ring in enumerate(directories[0])
    )
