"""The holder: keeps copies of other replicas' slices, and gives them back when one has to be resumed.

A holder is a peer in the operator's ring, or the host's PCS where an operator has no peers. Per slice it has one
vault, of one incarnation of the owner. A full copy of a higher incarnation replaces it whole; anything of a lower one
is refused, and the answer tells the sender that it has been superseded. Deltas are taken only in order: one that does
not follow what is here is answered with what is, and the owner sends the rest again.
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
        self._incarnation = incarnation
        self._held: dict[tuple[int, int], _Held] = {}

    def copy(self, message: Copy, table: pa.RecordBatch | None) -> Held:
        """A piece of a snapshot has come; the answer for its sender."""
        key = (message.operator, message.slice)
        delta = Delta(message.cut, table, message.mark)
        held = self._held.get(key)
        if held is not None and message.incarnation < held.incarnation:
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
        if held is not None and held.incarnation == message.incarnation and held.vault.newest >= message.cut:
            held.vault.settle(message.cut)
        return self._answer(key, message.incarnation)

    def find(self, operator: int, slice_index: int) -> tuple[int, Delta] | None:
        """The copy of a slice that is here: the incarnation it is of, and its settled snapshot, whole."""
        held = self._held.get((operator, slice_index))
        return None if held is None else (held.incarnation, held.vault.base())

    def _answer(self, key: tuple[int, int], incarnation: int) -> Held:
        """What is here of the slice; for a sender of a higher incarnation than is held, nothing."""
        held = self._held.get(key)
        operator, index = key
        if held is None or incarnation > held.incarnation:
            return Held(operator, index, incarnation, self._number, self._incarnation, -1, -1)
        cut, settled = held.vault.newest, held.vault.settled
        return Held(operator, index, held.incarnation, self._number, self._incarnation, cut, settled)
