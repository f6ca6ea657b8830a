"""Spreading: a PCS's book of where slices live, and how it shares out those of a lost replica (``recovery: spread``).

The PCS that saw a replica die has the last word on who resumes its slices: the living of its ring, in turns from the
next one on. Each gets an ``Adopt``, which is said again until it has been heard. If an adopter dies too, its slices,
adopted ones and its own, are shared out again by the PCS that saw that; what it has not heard of, by the one that
told it. If nobody is left, the last one is started anew and resumes them all. Every time, the incarnation of each
slice grows, so that whatever an earlier owner still says is outdone. Two PCSs that do not hear of each other never
choose the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dadstorm.core.homes import Homes
from dadstorm.core.messages import Adopt, Peer
from dadstorm.plan import Plan

Book = tuple[tuple[tuple[int, int, int, int], ...], tuple[Adopt, ...]]
"""Operator, slice, replica and incarnation of what has moved; and what is still to be heard."""


class Spreading:
    def __init__(self, plan: Plan, next_incarnation: Callable[[int], int] = lambda known: known + 1) -> None:
        """``next_incarnation``: which one to choose after the one that is known."""
        self._next = next_incarnation
        self._homes = Homes(plan)
        self._sizes = [len(operator.replicas) for operator in plan.operators]
        self._unheard: dict[Peer, Adopt] = {}

    def slices(self, peer: Peer) -> list[int]:
        """The slices that live at a replica, or are to."""
        return self._homes.at(*peer)

    def spread(self, lost: Peer, incarnation: int, living: Sequence[int]) -> list[int]:
        """Share out the slices of a lost replica over the living of its ring; those who get some."""
        self._unheard.pop(lost, None)
        order = sorted(living, key=lambda replica: (replica - lost.replica) % self._sizes[lost.operator])
        shares: dict[int, list[tuple[int, int]]] = {}
        for place, index in enumerate(self.slices(lost)):
            after = (index, self._next(self._homes.incarnation(lost.operator, index)))
            shares.setdefault(order[place % len(order)], []).append(after)
        for replica, share in shares.items():
            self.adopted(Peer(lost.operator, replica), share)
            adopter = Peer(lost.operator, replica)
            before = self._unheard.get(adopter)
            already = () if before is None else before.slices
            self._unheard[adopter] = Adopt(*adopter, lost.replica, incarnation, (*already, *share))
        return sorted(shares)

    def respawn(self, lost: Peer) -> dict[int, int]:
        """A lost replica resumes its slices itself: in which incarnations."""
        self._unheard.pop(lost, None)
        slices = {index: self._next(self._homes.incarnation(lost.operator, index)) for index in self.slices(lost)}
        self.adopted(lost, slices.items())
        return slices

    def reborn(self, peer: Peer, incarnation: int) -> None:
        """A replica that died before it had done anything begins again, with its slices, in this incarnation."""
        self.adopted(peer, [(index, incarnation) for index in self.slices(peer)])

    def adopted(self, by: Peer, slices: Iterable[tuple[int, int]]) -> None:
        """These (slice, incarnation) live there, whoever has decided that."""
        self._homes.moved(*by, slices)

    def unheard(self) -> list[Adopt]:
        """What is to be said again."""
        return list(self._unheard.values())

    def heard(self, by: Peer, slices: Iterable[tuple[int, int]]) -> None:
        """An adopter has these: what it was told has been heard."""
        adopt = self._unheard.get(by)
        if adopt is not None and set(adopt.slices) <= set(slices):
            del self._unheard[by]

    def take_back(self, adopter: Peer) -> Peer:
        """An adopter of another host has died before it has heard what it was to have: that is back with who was lost,
        who is told, to be shared out again. What lived there before is for the PCS of that host to share out."""
        adopt = self._unheard.pop(adopter)
        lost = Peer(adopt.operator, adopt.lost)
        there = self.slices(adopter)
        still = [(index, self._next(known)) for index, known in adopt.slices if index in there]
        self.adopted(lost, still)
        return lost

    def book(self) -> Book:
        """All that a PCS has to know that takes the place of this one."""
        return self._homes.moves(), tuple(self._unheard.values())

    def restore(self, book: Book) -> None:
        for operator, index, replica, incarnation in book[0]:
            self._homes.moved(operator, replica, [(index, incarnation)])
        self._unheard = {Peer(adopt.operator, adopt.replica): adopt for adopt in book[1]}
