"""The holder: keeps copies of other replicas' slices, and gives them back when one has to be resumed.

A holder is a peer in the operator's ring, or the host's PCS where an operator has no peers. Per slice it has one
vault, of one incarnation of the owner. A full copy of a higher incarnation replaces it whole; anything of a lower one
is refused, and the answer tells the sender that it has been superseded. Deltas are taken only in order: one that does
not follow what is here is answered with what is, and the owner sends the rest again.

To give a copy to a new incarnation is a promise: what it was given stays the newest there is. So from then on nothing
of an earlier incarnation is taken, or a zombie could settle a later cut and tell its producers, who would forget
what the new one is about to ask for.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dadstorm.core.messages import Copy, Held, Settle
from dadstorm.core.vault import Delta, Vault


@dataclass(slots=True)
class _Held:
    incarnation: int
    vault: Vault


class Holder:
    def __init__(self, number: int, incarnation: int) -> None:
        self._number = number
        self.incarnation = incarnation
        self._held: dict[tuple[int, int], _Held] = {}
        self._given: dict[tuple[int, int], int] = {}
        """Per slice: the highest incarnation that has asked for it, or is known to live."""

    def copy(self, message: Copy, table: pa.RecordBatch | None) -> Held:
        """A piece of a snapshot has come; the answer for its sender."""
        key = (message.operator, message.slice)
        delta = Delta(message.cut, table, message.mark)
        held = self._held.get(key)
        if message.incarnation < self._known(key):
            return self._answer(key, message.incarnation)
        if message.after is None:
            if held is None or message.incarnation > held.incarnation or delta.cut > held.vault.newest:
                self._held[key] = _Held(message.incarnation, Vault(delta))
        elif held and held.incarnation == message.incarnation and held.vault.newest == message.after < delta.cut:
            held.vault.add(delta)
        return self._answer(key, message.incarnation)

    def settle(self, message: Settle) -> Held:
        key = (message.operator, message.slice)
        held = self._held.get(key)
        current = held is not None and held.incarnation == message.incarnation >= self._known(key)
        if held is not None and current and held.vault.newest >= message.cut:
            held.vault.settle(message.cut)
        return self._answer(key, message.incarnation)

    def give(self, operator: int, slice_index: int, incarnation: int) -> tuple[int, Delta] | None:
        """The copy that is here, for a new incarnation: earlier ones are over."""
        self.promise(operator, slice_index, incarnation)
        return self.find(operator, slice_index)

    def promise(self, operator: int, slice_index: int, incarnation: int) -> None:
        """Take nothing of earlier incarnations than this one any more."""
        key = (operator, slice_index)
        self._given[key] = max(incarnation, self._given.get(key, 0))

    def find(self, operator: int, slice_index: int) -> tuple[int, Delta] | None:
        """The copy of a slice that is here: the incarnation it is of, and its settled snapshot, whole."""
        held = self._held.get((operator, slice_index))
        return None if held is None else (held.incarnation, held.vault.base())

    def incarnation_of(self, operator: int, slice_index: int) -> int | None:
        """Of which incarnation the copy of a slice is that is here, if there is one."""
        held = self._held.get((operator, slice_index))
        return None if held is None else held.incarnation

    def _known(self, key: tuple[int, int]) -> int:
        """The highest incarnation of a slice's owner that was heard of."""
        held = self._held.get(key)
        return max(0 if held is None else held.incarnation, self._given.get(key, 0))

    def _answer(self, key: tuple[int, int], incarnation: int) -> Held:
        """What is here of the slice for a sender of this incarnation; if it knows of a higher one, only that."""
        held = self._held.get(key)
        operator, index = key
        known = max(incarnation, self._known(key))
        if held is None or held.incarnation < known:
            return Held(operator, index, known, self._number, self.incarnation, -1, -1)
        cut, settled = held.vault.newest, held.vault.settled
        return Held(operator, index, held.incarnation, self._number, self.incarnation, cut, settled)
