"""The book of a run on Spark: how far it is, and all that it takes to go on from there. Plain data, no files, no Spark.

One step after the other is worked off, and after each the book says: the line is complete up to this cut; the readers
stand here, the slices' state is in these files, the sinks have written so much. A run that was killed goes on from the
newest book there is. What was done beyond it counts for nothing: state files that no book names, rows that a sink has
beyond its mark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dadstorm.core.audit import Audited, Digest
from dadstorm.core.ledger import Total
from dadstorm.core.line import END, START
from dadstorm.plan import Plan
from dadstorm.sources import Mark
from dadstorm.spark.engine.parcels import Kind, Parcel
from dadstorm.spark.engine.stages import Stages
from dadstorm.spark.engine.states import StateFile
from dadstorm.spark.engine.task import Failure, Told

FIRST_LENGTH = 1 << 10
"""Seqs of the first step: nobody knows yet how heavy they are."""
GROWTH_MAX = 16
LENGTH_MAX = 1 << 61
STEP_BYTES = 64 << 20
"""What all tasks of a step, and the driver, should take in, about."""

States = dict[int, dict[int, tuple[StateFile, ...]]]
Sum = tuple[int, int, int, int]
"""Operator, epoch, how many tuples of it a part of a step has, and their digest."""
Open = dict[int, dict[int, tuple[int, int]]]
"""Per operator and epoch: how many tuples so far, and their digest."""


class Book(msgspec.Struct, frozen=True):
    """Where a run stands."""

    readers: int
    """How many readers each source has."""
    marks: tuple[Mark | None, ...]
    ended: tuple[bool, ...]
    cut: int = START
    length: int = FIRST_LENGTH
    """Of the next step, in seqs: a power of two."""
    states: States = {}
    sinks: dict[str, dict[str, Any]] = {}
    """Per sink its mark."""
    read: int = 0
    written: dict[str, int] = {}
    open: Open = {}
    """With an audit: the epochs that are not complete."""
    numbers: dict[int, int] = {}
    """With an audit: how many digests each operator has."""

    @property
    def complete(self) -> bool:
        return self.cut == END

    @property
    def next(self) -> int:
        """Where the next step ends: at a multiple of its length, so that epochs and steps share their ends."""
        end = (self.cut // self.length + 1) * self.length
        return min(end, END - 1)

    def state_files(self) -> set[str]:
        return {file.name for slices in self.states.values() for kept in slices.values() for file in kept}


def first(stages: Stages, readers: int) -> Book:
    """Where a run begins."""
    count = len(stages.readers)
    return Book(readers, (None,) * count, (False,) * count)


@dataclass(slots=True)
class Outcome:
    """What came of a step."""

    marks: dict[tuple[int, int], Told] = field(default_factory=dict)
    states: dict[tuple[int, int], tuple[StateFile, ...]] = field(default_factory=dict)
    digests: list[Sum] = field(default_factory=list)
    tiles: dict[int, list[Parcel]] = field(default_factory=lambda: defaultdict(list))
    """Per sink."""
    failures: list[Failure] = field(default_factory=list)
    read: int = 0
    nbytes: int = 0


def outcome(parcels: Iterable[Parcel]) -> Outcome:
    """Sort out what reached the driver of a step."""
    found = Outcome()
    for parcel in parcels:
        place = parcel.operator, parcel.slice
        found.nbytes += len(parcel.payload)
        if parcel.kind is Kind.TILE:
            found.tiles[parcel.operator].append(parcel)
        elif parcel.kind is Kind.WEIGHT:
            found.nbytes += parcel.count
        elif parcel.kind is Kind.READ:
            found.marks[place] = parcel.plain(Told)
            found.read += parcel.count
        elif parcel.kind is Kind.STATE:
            found.states[place] = parcel.plain(tuple[StateFile, ...])
        elif parcel.kind is Kind.DIGESTS:
            sums = parcel.plain(list[tuple[int, int, int]])
            found.digests += [(parcel.operator, *one) for one in sums]
        else:
            found.failures.append(parcel.plain(Failure))
    return found


def turned(book: Book, stages: Stages, hi: int, found: Outcome) -> Book:
    """The book after a step up to ``hi``, but for what the sinks and the audit make of it."""
    told = [found.marks.get(place) for place in stages.readers]
    marks = tuple(mark if one is None else one.mark for mark, one in zip(book.marks, told, strict=True))
    ended = tuple(was if one is None else one.ended for was, one in zip(book.ended, told, strict=True))
    states = {operator: dict(slices) for operator, slices in book.states.items()}
    for (operator, slice_index), kept in found.states.items():
        states.setdefault(operator, {})[slice_index] = kept
    after = msgspec.structs.replace(
        book,
        marks=marks,
        ended=ended,
        states=states,
        cut=END if all(ended) else hi,
        length=next_length(book.length, found.nbytes),
        read=book.read + found.read,
    )
    return after if after.complete else _past_nothing(after, [one.next for one in told if one and not one.ended])


def _past_nothing(book: Book, nexts: list[int]) -> Book:
    """The book at the beginning of the next step that has any records: nobody works through a gap in the seqs."""
    least = min(nexts, default=book.cut)
    return book if least < book.next else msgspec.structs.replace(book, cut=least // book.length * book.length)


def next_length(length: int, nbytes: int) -> int:
    """How long the next step should be, after one of this length that weighed so much. It changes how fast
    the run is and how much memory it takes, never what comes out."""
    wanted = length * STEP_BYTES // max(1, nbytes)
    most = max(1, min(wanted, length * GROWTH_MAX, LENGTH_MAX))
    return 1 << (most.bit_length() - 1)


def audited(
    book: Book, plan: Plan, digests: Iterable[Sum]
) -> tuple[Book, list[tuple[int, Audited]]]:
    """Add a step's digests: the book with the epochs that are still open, and per operator those that are complete."""
    totals: dict[int, dict[int, Total]] = defaultdict(dict)
    for operator, epochs in book.open.items():
        totals[operator] = {epoch: Total(*total) for epoch, total in epochs.items()}
    for operator, epoch, rows, digest in digests:
        before = totals[operator].get(epoch, Total())
        totals[operator][epoch] = before.plus(Digest(0, epoch, rows, digest))
    still: Open = {}
    numbers = dict(book.numbers)
    closed: list[tuple[int, Audited]] = []
    for operator in range(len(plan.operators)):
        done = [epoch for epoch in sorted(totals[operator]) if (epoch + 1) * plan.span <= book.cut or book.complete]
        number = numbers.get(operator, 0)
        found = tuple(
            Digest(number + place, epoch, totals[operator][epoch].rows, totals[operator][epoch].digest)
            for place, epoch in enumerate(done)
        )
        numbers[operator] = number + len(found)
        if left := {epoch: (one.rows, one.digest) for epoch, one in totals[operator].items() if epoch not in done}:
            still[operator] = left
        if found or book.complete:
            closed.append((operator, Audited(0, found, numbers[operator] if book.complete else None)))
    return msgspec.structs.replace(book, open=still, numbers=numbers), closed


def unused(before: Book, now: Book) -> Iterator[str]:
    """State files that no book needs any more."""
    yield from sorted(before.state_files() - now.state_files())
