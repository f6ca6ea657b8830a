"""The ring: the circular list of an operator's replicas, who of them is alive, and who brings back whom.

Each replica keeps its own view. A PCS that sees a replica die tells the ring at once; a replica that is not heard of for
``suspect_after`` is suspected, which is treated the same. The next living replica in the list leads the recovery: it has a
new incarnation spawned. If it dies too, the next one after it leads both. Views may differ for a while and two may lead; then
two incarnations get the same number or one is higher, and nothing worse happens: incarnations of one slice produce the same
tuples, the PCS starts a number only once, and the higher one wins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Member:
    incarnation: int = 0
    alive: bool = True
    heard_ms: float | None = None
    asked_ms: float | None = None
    """When this replica last asked for its recovery."""


@dataclass(frozen=True, slots=True)
class Respawn:
    """An action: have this replica started again, in this incarnation."""

    replica: int
    incarnation: int


class Ring:
    def __init__(self, me: int, size: int, suspect_after_ms: float) -> None:
        self._me = me
        self._suspect_after_ms = suspect_after_ms
        self._members = {replica: _Member() for replica in range(size) if replica != me}

    @property
    def living(self) -> dict[int, int]:
        """The others that are alive, in ring order from the next one on, with their incarnations."""
        size = len(self._members) + 1
        order = [(self._me + step) % size for step in range(1, size)]
        return {replica: self._members[replica].incarnation for replica in order if self._members[replica].alive}

    def holders(self, slice_index: int, backups: int) -> dict[int, int]:
        """Who holds the copies of one of our slices: the next living ones, beginning at another one for each slice."""
        living = list(self.living.items())
        start = slice_index % len(living) if living else 0
        return dict((living[start:] + living[:start])[:backups])

    def heard(self, replica: int, incarnation: int, now_ms: float) -> bool:
        """A sign of life. True if it is a new incarnation, or one that was given up for dead."""
        member = self._members.get(replica)
        if member is None or incarnation < member.incarnation:
            return False
        news = incarnation > member.incarnation or not member.alive
        if news and not member.alive and incarnation == member.incarnation and member.asked_ms is not None:
            return False
        member.incarnation, member.alive, member.heard_ms = incarnation, True, now_ms
        if news:
            member.asked_ms = None
        return news

    def down(self, replica: int, incarnation: int) -> bool:
        """This incarnation has ended, or is suspected to have. True if that is news."""
        member = self._members.get(replica)
        if member is None or not member.alive or incarnation < member.incarnation:
            return False
        member.alive = False
        member.incarnation = incarnation
        return True

    def tick(self, now_ms: float) -> tuple[list[int], list[Respawn]]:
        """Who is newly suspected, and whom we have to bring back now (asked for again while it takes too long)."""
        suspects = []
        for replica, member in self._members.items():
            if member.heard_ms is None:
                member.heard_ms = now_ms
            if member.alive and now_ms - member.heard_ms > self._suspect_after_ms:
                member.alive = False
                suspects.append(replica)
        respawns = []
        for replica, member in self._members.items():
            overdue = member.asked_ms is None or now_ms - member.asked_ms > 2 * self._suspect_after_ms
            if not member.alive and overdue and self._leads(replica):
                member.asked_ms = now_ms
                respawns.append(Respawn(replica, member.incarnation + 1))
        return suspects, respawns

    def _leads(self, dead: int) -> bool:
        """Whether we are the next living replica after a dead one."""
        size = len(self._members) + 1
        for step in range(1, size):
            replica = (dead + step) % size
            if replica == self._me:
                return True
            if self._members[replica].alive:
                return False
        return False
