"""Seeking: how a replica finds the state of the slices it is to resume.

It asks everybody who may hold copies for every slice, again on each tick, and waits until all have answered or are
known to be dead: a holder that answers late may have the newest copy. Of all copies of a slice the one of the highest
incarnation, and then of the highest cut, is taken; of two alike, one that knows that the stream was drained. Nobody
having a copy means that the slice begins at the start of the line; if its producers have moved on since, they will say
so, and the state is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from dadstorm.core.line import START
from dadstorm.core.messages import Found, Peer, Seek
from dadstorm.core.slice import Tell
from dadstorm.core.vault import DRAINED, Delta


class Seeking:
    def __init__(self, me: Peer, reborn: int, slices: Mapping[int, int], asked: Iterable[int]) -> None:
        """``slices``: which, and in which incarnation each is to be resumed; ``reborn``: the replica's own."""
        self._me = me
        self._reborn = reborn
        self.slices = dict(slices)
        self._waiting = {holder: set(slices) for holder in asked}
        """Who was asked, and for which slices the answer is still to come."""
        self._found: dict[int, tuple[int, Delta]] = {}

    @property
    def over(self) -> bool:
        return not self._waiting

    def ask(self) -> Iterator[Tell]:
        for holder in list(self._waiting):
            for seek in self.questions(holder):
                yield Tell(Peer(self._me.operator, holder), seek)

    def questions(self, holder: int) -> Iterator[Seek]:
        """What a holder has not answered yet."""
        waiting = self._waiting.get(holder, set())
        for incarnation in sorted({self.slices[index] for index in waiting}):
            slices = tuple(sorted(index for index in waiting if self.slices[index] == incarnation))
            yield Seek(self._me.operator, self._me.replica, incarnation, slices, self._reborn)

    def answered(self, message: Found, table: pa.RecordBatch | None) -> None:
        """One holder's copy of one slice, or that it has none. A late answer to the question of an earlier incarnation
        does not count: the holder may have got a newer copy since, from the one before us."""
        if message.sought != self.slices.get(message.slice):
            return
        if message.cut >= START:
            found = (message.incarnation, Delta(message.cut, table, message.mark))
            best = self._found.get(message.slice)
            if best is None or _worth(*found) > _worth(*best):
                self._found[message.slice] = found
        waiting = self._waiting.get(message.holder)
        if waiting is not None:
            waiting.discard(message.slice)
            if not waiting:
                del self._waiting[message.holder]

    def without(self, dead: Iterable[int]) -> None:
        """These holders will not answer any more."""
        for holder in dead:
            self._waiting.pop(holder, None)

    def base(self, slice_index: int) -> Delta:
        """Where a slice resumes: the best copy that was found, or the start of the line."""
        found = self._found.get(slice_index)
        return Delta(START) if found is None else found[1]


def _worth(incarnation: int, copy: Delta) -> tuple[int, int, bool]:
    return incarnation, copy.cut, DRAINED in (copy.mark or {})
