"""Where everybody listens: the directory, and who has moved since.

A replica that was taken over by another host has a new address; the word of it is said again and again, may come late
and twice, and of two the one of the higher incarnation holds. Who was taken over may live on, and then beats as ever:
answers to it go to its successor, so whoever hears the beat tells it. Its own PCS would, too, but may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from dadstorm.core.messages import Beat, Peer
from dadstorm.wire.address import is_address
from dadstorm.wire.control import Moved

Addresses = tuple[tuple[str, ...], ...]


class Whereabouts:
    def __init__(self, addresses: Addresses = (), moved: Iterable[Moved] = ()) -> None:
        self.addresses = addresses
        """``addresses[operator][replica]``; empty while nobody is known."""
        self.moves: dict[Peer, Moved] = {}
        self._left: dict[Peer, str] = {}
        """Where those who have moved listened before."""
        for one in moved:
            self.move(one)

    def __bool__(self) -> bool:
        return bool(self.addresses)

    def of(self, peer: Peer) -> str:
        return self.addresses[peer.operator][peer.replica]

    def has(self, peer: Peer) -> bool:
        return 0 <= peer.operator < len(self.addresses) and 0 <= peer.replica < len(self.addresses[peer.operator])

    def move(self, message: Moved) -> str | None:
        """Somebody has moved: the address that he has left; None if that is no news."""
        peer = Peer(message.operator, message.replica)
        known = self.moves.get(peer)
        if not self.has(peer) or not is_address(message.address):
            return None
        if known is not None and known.incarnation >= message.incarnation:
            return None
        self.moves[peer] = message
        left = self.of(peer)
        if left != message.address:
            self._left[peer] = left
        ring = list(self.addresses[peer.operator])
        ring[peer.replica] = message.address
        self.addresses = (*self.addresses[: peer.operator], tuple(ring), *self.addresses[peer.operator + 1 :])
        return left

    def replaced(self, beat: Beat) -> tuple[str, Moved] | None:
        """If who beats has been replaced by somebody elsewhere: where it listens, and what it has to know."""
        peer = Peer(beat.operator, beat.replica)
        moved, left = self.moves.get(peer), self._left.get(peer)
        if moved is None or left is None or beat.incarnation >= moved.incarnation:
            return None
        return left, moved
