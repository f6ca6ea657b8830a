"""The keeper: a slice's own side of its snapshots, and the one place where ``safe`` moves.

The owner of a slice keeps its vault and sends every new snapshot to its *holders*. Two steps make a cut safe:

1. every holder has acknowledged a snapshot at it, and every consumer is safe of it;
2. every holder has been told to *settle* it and has acknowledged that too.

Only then do producers hear of it. So whatever a producer has forgotten, every living copy of the slice can do without:
a copy never lags behind what was told upstream. An acknowledgement counts only from the holder that was asked, for
this incarnation of the slice; with no holder, ``safe`` stands still. A new holder gets everything at once: the base
and all deltas.

What has been sent is sent again on a tick until it is acknowledged; all messages are idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dadstorm.core.line import START
from dadstorm.core.messages import Copy, Held, Peer, Settle
from dadstorm.core.repeat import Age, spaced
from dadstorm.core.vault import Delta, Vault

PATIENCE_TICKS = 4
"""How long an acknowledgement may take before something is sent again."""


@dataclass(frozen=True, slots=True)
class SendCopy:
    """An action: give this piece of a snapshot to a holder."""

    to: Peer
    message: Copy
    table: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class SendSettle:
    """An action: tell a holder what is settled."""

    to: Peer
    message: Settle


KeeperAction = SendCopy | SendSettle


@dataclass(slots=True)
class _Holder:
    """What is known about one holder: which incarnation of it was asked, all it has acknowledged, and what was last
    sent to it."""

    incarnation: int
    has: int | None = None
    settled: int = START
    sent: int | None = None
    age: Age = field(default_factory=Age)
    """How long nothing has changed between us and it."""


class Keeper:
    def __init__(self, owner: Peer, slice_index: int, incarnation: int, vault: Vault) -> None:
        self._owner = owner
        self._slice = slice_index
        self.incarnation = incarnation
        self.vault = vault
        self.safe = START
        """Not the vault's cut yet: of those who hold copies, only the one that gave us ours is sure to have it."""
        self._consumers_safe = START
        self._settling = vault.settled
        self._holders: dict[Peer, _Holder] = {}
        self.alone = False
        """Nobody is there to hold copies, and we do not wait for anybody: our own are all there is."""
        self.superseded = False
        """A holder has met a higher incarnation of this slice: somebody else has taken over."""

    @property
    def holders(self) -> list[Peer]:
        return list(self._holders)

    def held_by_all(self, cut: int) -> bool:
        """Whether everybody who is to hold copies has a snapshot at this cut."""
        if not self._holders:
            return self.alone
        return all(holder.has is not None and holder.has >= cut for holder in self._holders.values())

    def hold_at(self, peers: Mapping[Peer, int]) -> Iterator[KeeperAction]:
        """From now on these are the holders, in these incarnations; new ones get a full copy at once."""
        before, self._holders = self._holders, {}
        for peer, incarnation in peers.items():
            known = before.get(peer)
            keep = known is not None and known.incarnation == incarnation
            self._holders[peer] = known if known is not None and keep else _Holder(incarnation)
        for peer, holder in self._holders.items():
            if holder.sent is None:
                yield from self._send_all(peer, holder)
        yield from self._progress()

    def snapshot(self, delta: Delta) -> Iterator[KeeperAction]:
        """The slice has reached a cut: keep the snapshot and hand out copies."""
        before = self.vault.newest
        self.vault.add(delta)
        for peer, holder in self._holders.items():
            if holder.sent == before:
                holder.sent = delta.cut
                yield SendCopy(peer, self._copy(before, delta), delta.table)

    def consumers_safe(self, cut: int) -> Iterator[KeeperAction]:
        """What nobody downstream needs any more."""
        self._consumers_safe = max(self._consumers_safe, cut)
        yield from self._progress()

    def held(self, message: Held) -> Iterator[KeeperAction]:
        """A holder tells what it has."""
        if message.incarnation > self.incarnation:
            self.superseded = True
            return
        holder = self._holders.get(Peer(self._owner.operator, message.holder))
        if holder is None or message.holder_incarnation != holder.incarnation:
            return
        if message.incarnation != self.incarnation or message.cut < START:
            return
        holder.has = max(message.cut, START if holder.has is None else holder.has)
        holder.settled = max(holder.settled, message.settled)
        yield from self._progress()

    def tick(self) -> Iterator[KeeperAction]:
        """Send again what was not acknowledged, but give the acknowledgement time: copies may be large."""
        for peer, holder in self._holders.items():
            state = (holder.has, holder.settled, self.vault.newest, self._settling)
            age = holder.age.tick(state)
            if age < PATIENCE_TICKS or not spaced(age):
                continue
            if holder.has is None or holder.has < self.vault.settled:
                yield from self._send_all(peer, holder)
            elif holder.has < self.vault.newest:
                before = holder.has
                for delta in self.vault.since(holder.has):
                    yield SendCopy(peer, self._copy(before, delta), delta.table)
                    before = delta.cut
                holder.sent = before
            if holder.has is not None and holder.settled < self._settling:
                yield self._settle(peer)

    def _progress(self) -> Iterator[KeeperAction]:
        """Move ``safe`` as far as the two steps allow."""
        if not self._holders:
            if self.alone:
                self._settling = self.safe = max(self.safe, self.vault.newest_up_to(self._consumers_safe))
                self.vault.settle(self.safe)
            return
        has = min(START if holder.has is None else holder.has for holder in self._holders.values())
        cut = self.vault.newest_up_to(min(has, self._consumers_safe))
        if cut > self._settling:
            self._settling = cut
            for peer in self._holders:
                yield self._settle(peer)
        settled = min(holder.settled for holder in self._holders.values())
        if min(settled, self._settling) > self.safe:
            self.safe = min(settled, self._settling)
            self.vault.settle(self.safe)

    def _send_all(self, peer: Peer, holder: _Holder) -> Iterator[KeeperAction]:
        base = self.vault.base()
        yield SendCopy(peer, self._copy(None, base), base.table)
        before = base.cut
        for delta in self.vault.since(before):
            yield SendCopy(peer, self._copy(before, delta), delta.table)
            before = delta.cut
        holder.sent = before

    def _copy(self, after: int | None, delta: Delta) -> Copy:
        mark = None if delta.mark is None else dict(delta.mark)
        operator, replica = self._owner
        return Copy(operator, self._slice, self.incarnation, replica, after, delta.cut, mark)

    def _settle(self, peer: Peer) -> SendSettle:
        settle = Settle(self._owner.operator, self._slice, self.incarnation, self._owner.replica, self._settling)
        return SendSettle(peer, settle)
