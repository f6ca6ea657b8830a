"""The ledger: all digests of a run, as they were recorded, slice by slice.

The same digest may be recorded several times, by the incarnations of a slice: each time it must be the same, for a
slice's digests are a pure function of its stream (see ``audit``). One that is not is a conflict. Digests are numbered,
and a slice that is at its end has said how many there are, so what is missing is known to be missing: it can be told up
to which epoch all of an operator's digests are there, whatever was lost or is still to come.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from dadstorm.core.audit import Digest

_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Total:
    """What an operator emitted in an epoch: the sum over its slices."""

    rows: int = 0
    digest: int = 0

    def plus(self, one: Digest) -> Total:
        return Total(self.rows + one.rows, self.digest + one.digest & _MASK)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two incarnations of a slice recorded different digests."""

    operator: str
    slice: int
    first: Digest
    again: Digest

    @property
    def epoch(self) -> int:
        return min(self.first.epoch, self.again.epoch)


@dataclass(slots=True)
class _Slice:
    digests: dict[int, Digest] = field(default_factory=dict)
    count: int | None = None
    """How many there are in all, once the slice is at its end."""

    @property
    def reached(self) -> int | None:
        """The first epoch that is not known whole; None if all are."""
        number = 0
        while number in self.digests:
            number += 1
        if self.count is not None and number >= self.count:
            return None
        return self.digests[number - 1].epoch + 1 if number else 0


class Ledger:
    def __init__(self) -> None:
        self._slices: dict[str, dict[int, _Slice]] = defaultdict(lambda: defaultdict(_Slice))
        self.conflicts: list[Conflict] = []

    def add(self, operator: str, slice_index: int, digest: Digest) -> None:
        """A digest that a slice recorded; the first of its number stays."""
        first = self._slices[operator][slice_index].digests.setdefault(digest.number, digest)
        if first != digest:
            self.conflicts.append(Conflict(operator, slice_index, first, digest))

    def end(self, operator: str, slice_index: int, count: int) -> None:
        """A slice is at its end and has recorded so many digests."""
        self._slices[operator][slice_index].count = count

    def epochs(self, operator: str) -> dict[int, Total]:
        """What an operator emitted, by epoch, in order."""
        totals: dict[int, Total] = defaultdict(Total)
        for one in self._slices[operator].values():
            for digest in one.digests.values():
                totals[digest.epoch] = totals[digest.epoch].plus(digest)
        return dict(sorted(totals.items()))

    def reached(self, operator: str, slices: int) -> int | None:
        """The first epoch of an operator that is not known whole; None if all are."""
        ends = [self._slices[operator][index].reached for index in range(slices)]
        return min((end for end in ends if end is not None), default=None)
