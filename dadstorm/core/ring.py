"""The ring: the circular list of an operator's replicas, who of them is alive, and who brings back whom.

Each replica keeps its own view. A PCS that sees a replica die tells the ring at once: then it is *down*. A replica
that is not heard of for ``suspect_after`` is *suspected*: it may be dead, frozen or cut off. The next living replica
in the list leads the recovery: it has a new incarnation spawned. If nothing comes of it, the one after it tries, a
little later, and so on; nobody has to agree with anybody about who is alive.

A suspicion may be wrong, and then costs CPU but no correctness: both incarnations produce the same tuples and the
higher one wins. One thing must not happen: that a new incarnation without state takes the place of a living one that
has it. So only a replica that can vouch for the state, because it holds copies of all the suspect's slices, acts on a
mere suspicion; the PCS of the suspect's host has the last word, for it hears its replicas too; and a new incarnation
asks *everybody* in the ring who is not known to be dead for copies, and takes the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    ALIVE = "alive"
    SUSPECTED = "suspected"
    DOWN = "down"


@dataclass(slots=True)
class _Member:
    incarnation: int = 0
    health: Health = Health.ALIVE
    heard_ms: float | None = None
    lost_ms: float | None = None
    asked_ms: float | None = None
    """When we last asked for its recovery."""


@dataclass(frozen=True, slots=True)
class Respawn:
    """An action: have this replica started again, in this incarnation."""

    replica: int
    incarnation: int


class Ring:
    def __init__(self, me: int, size: int, suspect_after_ms: float) -> None:
        self._me = me
        self._suspect_after_ms = suspect_after_ms
        self._looked_ms = 0.0
        self._members = {replica: _Member() for replica in range(size) if replica != me}

    @property
    def living(self) -> dict[int, int]:
        """The others that are alive, in ring order from the next one on, with their incarnations."""
        return {
            replica: self._members[replica].incarnation
            for replica in self._order
            if self._members[replica].health is Health.ALIVE
        }

    @property
    def undead(self) -> list[int]:
        """The others that are not known to be dead, though we may not have heard of them for long."""
        return [replica for replica in self._order if not self.is_down(replica)]

    @property
    def _order(self) -> list[int]:
        """The others, from the next one on."""
        size = len(self._members) + 1
        return [(self._me + step) % size for step in range(1, size)]

    @property
    def suspected(self) -> list[int]:
        """The others that have not been heard of for too long."""
        return [replica for replica, member in self._members.items() if member.health is Health.SUSPECTED]

    def __contains__(self, replica: int) -> bool:
        """Whether it is one of the others."""
        return replica in self._members

    def is_down(self, replica: int) -> bool:
        member = self._members.get(replica)
        return member is not None and member.health is Health.DOWN

    def incarnation(self, replica: int) -> int:
        return self._members[replica].incarnation

    def holders(self, slice_index: int, backups: int) -> dict[int, int]:
        """Who holds the copies of one of our slices: the next ones, beginning at another one for each slice. Who is
        only suspected stays among them: on the other side of a cut network it may be the one that takes over, and then
        its copies must be as new as what was called safe here."""
        others = [(replica, self._members[replica].incarnation) for replica in self.undead]
        start = slice_index % len(others) if others else 0
        return dict((others[start:] + others[:start])[:backups])

    def learn(self, living: dict[int, int]) -> None:
        """What a new incarnation is told about the others when it starts."""
        for replica, member in self._members.items():
            if replica in living:
                member.incarnation = living[replica]
            else:
                member.health = Health.DOWN

    def heard(self, replica: int, incarnation: int, now_ms: float) -> bool:
        """A sign of life. True if it is a new incarnation, or one that was given up."""
        member = self._members.get(replica)
        if member is None or incarnation < member.incarnation:
            return False
        if member.health is Health.DOWN and incarnation == member.incarnation:
            return False
        news = incarnation > member.incarnation or member.health is not Health.ALIVE
        member.incarnation, member.health, member.heard_ms = incarnation, Health.ALIVE, now_ms
        if news:
            member.lost_ms = member.asked_ms = None
        return news

    def down(self, replica: int, incarnation: int) -> bool:
        """This incarnation has ended, for certain. True if that is news."""
        member = self._members.get(replica)
        if member is None or incarnation < member.incarnation:
            return False
        if member.health is Health.DOWN and incarnation == member.incarnation:
            return False
        member.health, member.incarnation = Health.DOWN, incarnation
        member.lost_ms = member.asked_ms = None
        return True

    def suspect(self, now_ms: float) -> bool:
        """Time passes: whether somebody is newly suspected. Who has not looked for long (frozen, or busy) cannot tell
        others' silence from its own and begins to listen anew."""
        if now_ms - self._looked_ms > self._suspect_after_ms / 2:
            for member in self._members.values():
                member.heard_ms = now_ms
        self._looked_ms = now_ms
        changed = False
        for member in self._members.values():
            if member.heard_ms is None:
                member.heard_ms = now_ms
            if member.health is Health.ALIVE and now_ms - member.heard_ms > self._suspect_after_ms:
                member.health = Health.SUSPECTED
                changed = True
        return changed

    def respawns(self, now_ms: float, vouch: Callable[[int], bool]) -> list[Respawn]:
        """Whom we have to bring back now; ``vouch`` tells whether we hold copies of all slices of a replica."""
        respawns = []
        for replica, member in self._members.items():
            if member.health is Health.ALIVE:
                continue
            if member.lost_ms is None:
                member.lost_ms = now_ms
            patience_ms = (self._distance(replica) - 1) * self._suspect_after_ms / 2
            waited = now_ms - member.lost_ms >= patience_ms
            asked = member.asked_ms is not None and now_ms - member.asked_ms <= 2 * self._suspect_after_ms
            if waited and not asked and (member.health is Health.DOWN or vouch(replica)):
                member.asked_ms = now_ms
                respawns.append(Respawn(replica, member.incarnation + 1))
        return respawns

    def _distance(self, lost: int) -> int:
        """How many living replicas further along the ring than a lost one we are; 1: we are the next."""
        size = len(self._members) + 1
        distance = 1
        for step in range(1, size):
            replica = (lost + step) % size
            if replica == self._me:
                break
            distance += self._members[replica].health is Health.ALIVE
        return distance
