"""Commits on the ID line: which rows belong to which, and what a later incarnation does about those it finds.

A table that Spark writes is a chain of commits. Each has a range ``[lo, hi)`` of the line, begins where the one before
ended, and is in the table as a whole or not at all. Ranges without rows leave no commit: the next one with rows begins
earlier. Where commits end depends on the clock; which rows there are, and their order, does not.

A later incarnation resumes at the cut of its mark. Commits up to the cut stay. Those beyond it were made by a
predecessor that died before anybody was told, and their rows come again: they are *recognised* if the rows that come
are as many and have the same digests, and count without being written a second time; else they are dropped and redone.
Whatever is no link of the chain is no part of the table.

Everything here is plain data: no files, no Spark, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from dadstorm.core.audit import hash_rows
from dadstorm.core.hashing import hash_columns
from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows

_MASK = 2**64 - 1


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    """What a commit holds of one epoch: how many rows, and the sum modulo 2^64 of their hashes, in hexadecimal."""

    epoch: int
    rows: int
    digest: str


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One commit: a range of the line, and what is in it."""

    lo: int
    hi: int
    rows: int
    digest: str
    """The sum over all its rows, as of its epochs."""
    epochs: tuple[Epoch, ...] = ()
    folder: str | None = None
    """Where its rows are; None: it has none, and only says that the line is complete up to there."""
    run: int = 0
    """Which of the runs that have written the table."""

    @property
    def name(self) -> str:
        """Names sort as the line does, and those of later runs after those of earlier ones."""
        return commit_name(self.run, self.lo, self.hi)

    def same_rows(self, other: Commit) -> bool:
        return self.rows == other.rows and self.epochs == other.epochs


def commit_name(run: int, lo: int, hi: int) -> str:
    return f"{f'r{run:05d}-' if run else ''}{lo:019d}-{hi:019d}"


def summed(parts: Iterable[Rows], span: int, with_id: bool) -> tuple[int, str, tuple[Epoch, ...]]:
    """How many rows there are, the digest of all, and those of their epochs.

    With IDs in the table the hashes go over ID and fields, as those of ``--audit`` do; else over the fields alone: only
    what is in the table can be checked."""
    totals: dict[int, tuple[int, int]] = {}
    for rows in parts:
        if not len(rows):
            continue
        hashes = hash_rows(rows) if with_id else hash_columns(rows.data.columns, 0, exact=True)
        places = rows.seq // span
        starts = np.concatenate(([0], np.flatnonzero(np.diff(places)) + 1))
        counts = np.diff(starts, append=len(places)).tolist()
        sums = np.add.reduceat(hashes, starts).tolist()
        for epoch, count, total in zip(places[starts].tolist(), counts, sums, strict=True):
            rows_before, before = totals.get(epoch, (0, 0))
            totals[epoch] = rows_before + count, before + total & _MASK
    found = tuple(Epoch(epoch, rows, f"{total:016x}") for epoch, (rows, total) in sorted(totals.items()))
    digest = sum(total for _, total in totals.values()) & _MASK
    return sum(rows for rows, _ in totals.values()), f"{digest:016x}", found


def epochs(commits: Iterable[Commit]) -> dict[int, tuple[int, int]]:
    """Rows and digest of every epoch, wherever commits end: how the tables of two runs are compared."""
    totals: dict[int, tuple[int, int]] = {}
    for one in (epoch for commit in commits for epoch in commit.epochs):
        rows, digest = totals.get(one.epoch, (0, 0))
        totals[one.epoch] = rows + one.rows, digest + int(one.digest, 16) & _MASK
    return totals


@dataclass(frozen=True, slots=True)
class Chain:
    """The commits of one run as a resuming incarnation sees them."""

    kept: tuple[Commit, ...]
    """Up to the cut: settled."""
    ahead: tuple[Commit, ...]
    """Beyond the cut: to be recognised."""
    stray: tuple[Commit, ...]
    """No links of the chain."""

    @property
    def reaches(self) -> int:
        return self.kept[-1].hi if self.kept else START


def chain(commits: Iterable[Commit], cut: int) -> Chain:
    """Put the commits of a run in order, as seen from a cut."""
    kept: list[Commit] = []
    ahead: list[Commit] = []
    stray: list[Commit] = []
    reached = START
    for commit in sorted(commits, key=lambda one: (one.lo, one.hi)):
        if commit.lo != reached or commit.hi <= commit.lo:
            stray.append(commit)
            continue
        reached = commit.hi
        (kept if commit.hi <= cut else ahead).append(commit)
    return Chain(tuple(kept), tuple(ahead), tuple(stray))


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done next: ``write`` rows up to ``hi``, or ``recognise`` a commit that ends there."""

    what: Literal["write", "recognise"]
    lo: int
    hi: int
    parts: tuple[Rows, ...]
    found: Commit | None = None


class Line:
    """The rows on their way into the table, and the commits that they are to become.

    ``write`` and ``cut`` say what comes; ``task`` gives what can be done now, one at a time; ``done`` and ``refused``
    say how it went. ``committed`` is the cut below which everything is in the table."""

    def __init__(self, cut: int, reached: int, ahead: Sequence[Commit] = ()) -> None:
        """Resume at ``cut``, in a table whose commits end at ``reached``; ``ahead``: what a predecessor made beyond."""
        self.committed = cut
        self.reached = reached
        self._ahead = deque(ahead)
        self._open: list[Rows] = []
        """Rows since the last cut."""
        self._ready: list[Rows] = []
        """Rows below the last cut."""
        self._noted = cut
        self._task: Task | None = None
        self.rows = 0
        """Rows below the last cut that are in no task."""
        self.nbytes = 0

    def write(self, rows: Rows) -> None:
        self._open.append(rows)

    def cut(self, cut: int) -> None:
        """All rows below the cut have been written. Without any, and nothing under way, it holds at once."""
        self._ready += self._open
        self.rows += sum(len(rows) for rows in self._open)
        self.nbytes += sum(rows.nbytes for rows in self._open)
        self._open = []
        self._noted = cut
        self._skip()

    def _skip(self) -> None:
        """Pass over what is empty. The end of the line is a commit even so: the table is complete."""
        if not self._ready and not self._ahead and self._task is None and self._noted < END:
            self.committed = max(self.committed, self._noted)

    @property
    def span(self) -> int:
        """How much of the line waits to be committed."""
        return self._noted - self.committed

    @property
    def ended(self) -> bool:
        return self._noted == END

    @property
    def has_work(self) -> bool:
        if self._task is not None:
            return True
        if self._ahead:
            return self._noted >= self._ahead[0].hi
        return self._noted > self.committed

    @property
    def recognising(self) -> bool:
        return bool(self._ahead)

    def task(self) -> Task | None:
        """What to do now; the same again until it is done. None: nothing can be done before more has come."""
        if self._task is not None or not self.has_work:
            return self._task
        found = self._ahead[0] if self._ahead else None
        hi = self._noted if found is None else found.hi
        below = [part for rows in self._ready if len(part := rows.below(hi))]
        self._ready = [part for rows in self._ready if len(part := rows.since(hi))]
        self.rows = sum(len(rows) for rows in self._ready)
        self.nbytes = sum(rows.nbytes for rows in self._ready)
        self._task = Task("write" if found is None else "recognise", self.reached, hi, tuple(below), found)
        return self._task

    def done(self) -> None:
        """The task's commit is in the table."""
        assert self._task is not None
        if self._task.what == "recognise":
            self._ahead.popleft()
        self.committed = self.reached = self._task.hi
        self._task = None
        self._skip()

    def refused(self) -> list[Commit]:
        """What was to be recognised has other rows than those that came. It and all after it has to leave the table;
        the task is now to write the rows that came."""
        assert self._task is not None and self._task.what == "recognise"
        gone = list(self._ahead)
        self._ahead.clear()
        self._task = Task("write", self._task.lo, self._task.hi, self._task.parts)
        return gone


def due(line: Line, waited_ms: float, every_ms: float, stride: int, window_bytes: int) -> bool:
    """Whether to commit now: it is time, the line has ended, rows are to be recognised, or half of a window waits.

    A window that is full stands still until something is committed. With half of it committed while the other half
    fills, the topology and Spark work at the same time. ``stride`` is that half, as far as sources have told."""
    if not line.has_work:
        return False
    return (
        waited_ms >= every_ms
        or line.ended
        or line.recognising
        or line.rows >= stride
        or 2 * line.nbytes >= window_bytes
        or line.span >= stride
    )
