"""The audit: digests of what slices emit, and the proof that work done twice gives the same tuples.

An **epoch** of the line is ``seq // span``. Its digest, for one operator, is the sum modulo 2^64 of a 64-bit hash of
every tuple emitted in it, over seq, sub, port and all fields, together with how many tuples there were. Sums commute:
the digests of an operator's slices add up to the operator's, and neither slices, replicas, routing nor batches reach
it. A slice's digests are numbered; epochs without tuples have none. So they are a pure function of the slice's stream,
and two incarnations that record one number must record the same.

An ``Audit`` is a slice's book-keeping. Snapshots are taken at cuts inside epochs, and sometimes behind what was
emitted (sources read ahead, sinks commit later), so it also keeps the hashes since the last snapshot: the state at any
cut from there on is a sum over a part of them. It travels in the snapshot's mark, and a later incarnation goes on with
it as if nothing had happened.

A ``Witness`` is what an inlet remembers: the rows that came, from the cut on below which the producer will never go
again. What comes a second time is compared with them, row by row, before it is dropped. The first that differs ends
the run: whoever made it does not give the same output for the same input.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dadstorm.core.hashing import Hashes, hash_columns
from dadstorm.core.line import END, START, Ints
from dadstorm.core.ports import MAIN
from dadstorm.core.rows import Rows
from dadstorm.core.vault import DRAINED
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator, Plan

_MASK = 2**64 - 1
MARK = "audit"
"""Under which name an audit's state travels in the mark of a snapshot."""
SHOWN = 300
"""How many characters of a tuple a message shows."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What a slice emitted in one epoch; ``number`` counts the slice's digests."""

    number: int
    epoch: int
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Audited:
    """An action: write down these digests of a slice, before anything that comes after them. ``ended``: they were its
    last, and so many digests there are."""

    slice: int
    digests: tuple[Digest, ...]
    ended: int | None = None


def hash_rows(rows: Rows, port: int = MAIN) -> Hashes:
    """One hash per tuple: its ID, its port, its fields. Null is a value, every NaN is the same, -0.0 is not 0.0."""
    return hash_columns([pa.array(rows.seq), pa.array(rows.sub), *rows.data.columns], port, exact=True)


@dataclass(frozen=True, slots=True)
class Tally:
    """How far a slice's digests are at some place: ``open`` is the newest epoch, which may not be complete."""

    open: Digest

    def add(self, span: int, seq: Ints, hashes: Hashes) -> tuple[Tally, list[Digest]]:
        """Further rows, in the order of their seqs; the digests of the epochs that they leave behind."""
        if not len(seq):
            return self, []
        epochs = seq // span
        starts = np.concatenate(([0], np.flatnonzero(np.diff(epochs)) + 1))
        counts = np.diff(starts, append=len(seq)).tolist()
        sums = np.add.reduceat(hashes, starts).tolist()
        tally, closed = self, []
        for epoch, count, total in zip(epochs[starts].tolist(), counts, sums, strict=True):
            tally, left = tally.close(epoch)
            closed += left
            now = tally.open
            tally = Tally(Digest(now.number, epoch, now.rows + count, now.digest + total & _MASK))
        return tally, closed

    def close(self, epoch: int) -> tuple[Tally, list[Digest]]:
        """Nothing more comes below ``epoch``."""
        if epoch <= self.open.epoch:
            return self, []
        if not self.open.rows:
            return Tally(replace(self.open, epoch=epoch)), []
        return Tally(Digest(self.open.number + 1, epoch, 0, 0)), [self.open]


class Audit:
    """The digests of one slice, from the cut on at which it resumes. If nobody has recorded what lies before it (the
    run was not audited until now), it leaves out number 0: what is missing is then known to be missing."""

    def __init__(self, slice_index: int, span: int, cut: int = START, mark: Mapping[str, Any] | None = None) -> None:
        state = (mark or {}).get(MARK)
        self._slice = slice_index
        self._span = span
        self._now = self._base = Tally(Digest(*state) if state else Digest(0 if cut == START else 1, 0, 0, 0))
        """Where the slice stands, and where it stood at its last snapshot."""
        self._since: list[tuple[Ints, Hashes]] = []
        """What was emitted from the last snapshot on."""

    def emitted(self, hi: int, ports: Sequence[Rows]) -> Audited | None:
        """The slice has emitted these rows, and all below ``hi``; the digests that this completes, if any."""
        parts = [(rows.seq, hash_rows(rows, port)) for port, rows in enumerate(ports) if len(rows)]
        closed: list[Digest] = []
        if parts:
            seq, hashes = parts[0]
            if len(parts) > 1:
                seq, hashes = np.concatenate([s for s, _ in parts]), np.concatenate([h for _, h in parts])
                order = np.argsort(seq, kind="stable")
                seq, hashes = seq[order], hashes[order]
            self._since.append((seq, hashes))
            self._now, closed = self._now.add(self._span, seq, hashes)
        self._now, left = self._now.close(self._epoch(hi))
        closed += left
        ended = self._now.open.number if hi == END else None
        return Audited(self._slice, tuple(closed), ended) if closed or ended is not None else None

    def at(self, cut: int) -> dict[str, list[int]]:
        """The state at a cut where a snapshot is taken, for its mark: what follows from all rows below it."""
        above: list[tuple[Ints, Hashes]] = []
        for seq, hashes in self._since:
            below = int(np.searchsorted(seq, cut))
            self._base, _ = self._base.add(self._span, seq[:below], hashes[:below])
            if below < len(seq):
                above.append((seq[below:], hashes[below:]))
        self._since = above
        self._base, _ = self._base.close(self._epoch(cut))
        state = self._base.open
        return {MARK: [state.number, state.epoch, state.rows, state.digest]}

    def _epoch(self, position: int) -> int:
        """Where END stands there is no epoch any more: it comes after all of them."""
        return position // self._span + (position == END)


class Witness:
    """What came by one channel and may come again."""

    def __init__(self, plan: Plan, producer: Operator, producer_slice: int, cut: int) -> None:
        self._plan = plan
        self._producer = producer
        self._slice = producer_slice
        self._floor = cut
        """From here on we know what came."""
        self._rows: list[Rows] = []
        self._lasts: list[int] = []
        """The last seq of each of the rows, to find them by."""

    def took(self, rows: Rows) -> None:
        """Rows that were new."""
        self._rows.append(rows)
        self._lasts.append(int(rows.seq[-1]))

    def forget(self, cut: int) -> None:
        """The producer will never emit anything below ``cut`` again."""
        if cut > self._floor:
            self._floor = cut
            gone = bisect_left(self._lasts, cut)
            del self._rows[:gone], self._lasts[:gone]

    @property
    def kept_rows(self) -> int:
        return sum(len(rows) for rows in self._rows)

    def again(self, lo: int, hi: int, rows: Rows) -> None:
        """All of ``[lo, hi)`` has come before and comes again: raises NotReproduced unless it is the same."""
        lo = max(lo, self._floor)
        if lo >= hi:
            return
        repeated = rows.since(lo).below(hi)
        known = [part.since(lo).below(hi) for part in self._rows[bisect_left(self._lasts, lo) : self._end(hi)]]
        first = Rows.concat(known) if known else repeated.slice(0, 0)
        place = first_difference(first, repeated)
        if place is not None:
            raise self._not_reproduced(_pick(first, place), _pick(repeated, place))

    def _end(self, hi: int) -> int:
        """Behind the last of the kept rows that reach below ``hi``."""
        return bisect_left(self._lasts, hi) + 1

    def _not_reproduced(self, first: Rows | None, again: Rows | None) -> NotReproduced:
        """What to tell about the rows at the first place that differs. Of two with different IDs the later one has
        lost its counterpart only because the earlier one has none."""
        ids = [(int(one.seq[0]), int(one.sub[0])) for one in (first, again) if one is not None]
        where = min(ids)
        texts = [
            tuple_text(one) if one is not None and (int(one.seq[0]), int(one.sub[0])) == where else "nothing"
            for one in (first, again)
        ]
        name = self._producer.name
        epoch = where[0] // self._plan.span
        return NotReproduced(
            f"operator {name} did not reproduce what it had emitted before it was recovered.\n"
            f"  epoch {epoch}, tuple ({where[0]}, {where[1]}), slice {self._slice} of {name}\n"
            f"  first: {texts[0]}\n"
            f"  again: {texts[1]}\n"
            f"{blame(self._plan, self._producer)}"
        )


class NotReproduced(RunFailed):
    """Work that was done again gave something else; the message names the operator, the epoch and the tuple."""


def first_difference(one: Rows, other: Rows) -> int | None:
    """The first place at which two sequences of rows differ; None: nowhere."""
    both = min(len(one), len(other))
    a, b = one.slice(0, both), other.slice(0, both)
    if both:
        unequal = (a.seq != b.seq) | (a.sub != b.sub) | (hash_rows(a) != hash_rows(b))
        if unequal.any():
            return int(unequal.argmax())
    return None if len(one) == len(other) else both


def _pick(rows: Rows, place: int) -> Rows | None:
    return rows.slice(place, place + 1) if place < len(rows) else None


def tuple_text(row: Rows) -> str:
    """A tuple's fields for a message, cut off if they are long."""
    fields = [column[0].as_py() for column in row.data.columns]
    text = f"<{', '.join(repr(field) if isinstance(field, str) else str(field) for field in fields)}>"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def blame(plan: Plan, operator: Operator) -> str:
    """Who is not deterministic when an operator's output was not reproduced, and what to do about it."""
    if operator.kind == "source":
        return (
            f"{operator.name} is a source: its input has changed while it was being read. Let a run read what "
            "stays as it is."
        )
    before = [one.name for one in _upstream(plan, operator) if one.kind == "custom"]
    others = f" (or {' or '.join(before)} before it, if that was recovered at the same time)" if before else ""
    if operator.kind == "custom":
        who = f"The function of {operator.name}{others} is not deterministic"
    elif before:
        who = f"{operator.name} has no function of yours, but {' or '.join(before)} before it is not deterministic"
    else:
        return f"{operator.name} has no function of yours: this is a defect in DADSTORM, please report it."
    return (
        f"{who}: for the same tuples it must give the same output, in every process and at any time. Look for "
        "random(), clocks, process IDs, the order of sets, hash() of strings and variables that outlive a call; "
        "see docs/determinism.md."
    )


def _upstream(plan: Plan, operator: Operator) -> list[Operator]:
    """All operators that feed this one, in the order of the plan."""
    names = {link.operator for link in operator.inputs}
    for one in reversed(plan.operators):
        if one.name in names:
            names |= {link.operator for link in one.inputs}
    return [one for one in plan.operators if one.name in names]


def made_outside(mark: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A snapshot's mark as the reader or the sink that made it knows it."""
    if mark is None or not mark.keys() & {MARK, DRAINED}:
        return mark
    return {key: value for key, value in mark.items() if key not in (MARK, DRAINED)} or None
