"""Slices: the unit of ordered processing, and how each of the three kinds moves along the line.

A ``SourceSlice`` turns records into tiles, as far as its window allows. A ``WorkSlice`` merges its inlets below the
frontier, runs the kernels over the merged rows and emits the result. A ``SinkSlice`` merges likewise and hands the rows
over to be written. Each has a ``done`` position (all below is emitted) and a ``safe`` cut (all below is never needed
again, here or downstream); the frontier flows downstream in tiles, safe flows upstream in messages.

Each resumes at a cut: it begins there as if it had processed everything below. On its way it takes snapshots at the
cuts that its ``Stride`` picks, and hands them to its ``Keeper``, which decides what is safe. Under at-most-once there
is no keeper: nothing is kept, and safe is simply what everybody downstream is done with.

A slice may be driven in steps of any size, down to a single row: the kernel's output does not depend on it, and what is
emitted is cut at seqs that are complete, so the tiles differ but the rows and their IDs do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dadstorm.core.again import Again
from dadstorm.core.audit import Audit, Audited
from dadstorm.core.chain import Chain
from dadstorm.core.keeper import Keeper, KeeperAction
from dadstorm.core.kernel import DEAD
from dadstorm.core.line import END, START, Packing
from dadstorm.core.merge import merge
from dadstorm.core.messages import Attach, Beat, Done, Found, Gone, Held, Here, Peer, Reach, Reached, Safe, Seek
from dadstorm.core.outlet import Outlet, Send
from dadstorm.core.ports import DEAD_LETTERS, MAIN
from dadstorm.core.repeat import Age, spaced
from dadstorm.core.rows import Rows
from dadstorm.core.stride import Stride
from dadstorm.core.tile import Inlet, Tile, Verdict
from dadstorm.core.vault import DRAINED, Delta, Mark
from dadstorm.core.window import Window

WRITTEN = "written"
"""Where a sink's mark tells how many rows were written."""
TILE_BYTES_MAX = 32 << 20
"""A tile heavier than this is cut in two where it holds more than one seq, so that messages stay of handy size."""


@dataclass(frozen=True, slots=True)
class Tell:
    """An action: give this message, which has no body, to a replica."""

    to: Peer
    message: Attach | Gone | Safe | Done | Here | Reach | Reached | Held | Seek | Found | Beat


@dataclass(frozen=True, slots=True)
class Deliver:
    """An action: write these rows of a sink's slice; nothing else will come below ``hi``, but for rows that have been
    there (``again``)."""

    slice: int
    rows: Rows
    hi: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Emitted:
    """An action: these tuples were emitted for the first time by this incarnation; for who logs them."""

    rows: Rows


class Slice:
    """What all slices share: where they stand, whom they send to, and how they are kept."""

    def __init__(self, index: int, cut: int, outlets: Sequence[Outlet], keeper: Keeper | None, stride: Stride) -> None:
        self.index = index
        self.outlets = outlets
        self.keeper = keeper
        self.stride = stride
        stride.last = cut
        self.done = cut
        self._stood: set[int] = set()
        """Where sources upstream stand still: each of them may hold back the rest at another place."""
        self.rows_in = 0
        self.rows_out = 0
        self._standing_age = Age()
        self.tapped = False
        """Whether somebody wants to see every tuple that is emitted."""
        self.audit: Audit | None = None
        """The digests of what is emitted, if they are wanted."""

    @property
    def safe(self) -> int:
        return self.keeper.safe if self.keeper else self._consumers_safe

    @property
    def _consumers_safe(self) -> int:
        """What nobody downstream needs any more; with no consumer, all that was done."""
        return min((outlet.safe for outlet in self.outlets), default=self.done)

    @property
    def reached(self) -> int | None:
        """How far anybody downstream has got of what earlier incarnations have emitted; None: not known yet."""
        places = [outlet.reached for outlet in self.outlets]
        known = [place for place in places if place is not None]
        return max(known, default=START) if len(known) == len(places) else None

    def keep(self) -> Iterator[KeeperAction]:
        """Let the keeper know what downstream is safe of."""
        if self.keeper:
            yield from self.keeper.consumers_safe(self._consumers_safe)

    def _snapshot(self, cut: int, table: pa.RecordBatch | None, mark: Mark | None) -> Iterator[KeeperAction]:
        self.stride.taken(cut)
        if self.audit is not None:
            mark = {**(mark or {}), **self.audit.at(cut)}
        if self.keeper:
            yield from self.keeper.snapshot(Delta(cut, table, mark))
            yield from self.keep()  # With no consumer, nobody else says when.

    def _emit(self, hi: int, ports: Sequence[Rows]) -> Iterator[Send | Emitted | Audited]:
        """Emit ``[done, hi)``: the rows of each port to the outlets that read it."""
        rows = ports[MAIN]
        if rows.heavier_than(TILE_BYTES_MAX) and rows.seq[0] < rows.seq[-1]:
            middle = int(rows.seq[len(rows) // 2])
            cut = middle if middle > rows.seq[0] else middle + 1
            yield from self._emit(cut, [port.below(cut) for port in ports])
            yield from self._emit(hi, [port.since(cut) for port in ports])
            return
        lo, self.done = self.done, hi
        self.rows_out += len(rows)
        if self.tapped and len(rows):
            yield Emitted(rows)
        if self.audit is not None:
            yield from self._audited(self.audit, hi, ports)
        for outlet in self.outlets:
            outlet.stride = self.stride.most
            yield from outlet.emit(lo, hi, ports[outlet.port])

    def _audited(self, audit: Audit, hi: int, ports: Sequence[Rows]) -> Iterator[Audited]:
        for outlet in self.outlets:
            outlet.repeats_from = self.safe
        digests = audit.emitted(hi, ports)
        if digests is not None:
            yield digests

    def stands(self, position: int) -> None:
        """A source upstream stands still there: take a snapshot, and tell those downstream."""
        self.stride.hint(position)
        self._stood = {place for place in self._stood if place >= self.done} | {position}

    @property
    def stands_still(self) -> bool:
        """Whether this slice stands, with a snapshot, where a source upstream stands still."""
        return self.done == self.stride.last and self.done in self._stood

    def standing(self, still: bool) -> Iterator[Tell]:
        """On a tick: tell the consumers how far this slice has come, if it has stopped there (the next tile would tell
        it otherwise), and whether a source stands still there."""
        age = self._standing_age.tick((self.done, still))
        if spaced(age) or (still and age == 0):
            yield from self.stand(still)

    def stand(self, still: bool) -> Iterator[Tell]:
        for outlet in self.outlets:
            for peer, done in outlet.standing(still):
                yield Tell(peer, done)


class SourceSlice(Slice):
    """A slice of a source: records in, tiles out, held back by the window."""

    def __init__(
        self,
        index: int,
        cut: int,
        outlets: Sequence[Outlet],
        keeper: Keeper | None,
        stride: Stride,
        window: Window,
        schema: pa.Schema,
        chain: Chain | None = None,
        drained: bool = False,
    ) -> None:
        """``chain``: what becomes of the rows before they are emitted; ``drained``: an earlier incarnation has ended
        the stream at the cut, or was about to."""
        super().__init__(index, cut, outlets, keeper, stride)
        self._chain = chain
        self._window = window
        self._no_dead = Rows.empty(DEAD)
        self._before = cut
        """Where the slice stood at the last tick."""
        self.stopping = False
        """The user wants the stream to end."""
        self.draining = drained
        """The stream is to end early, at a place that the input does not tell."""
        self._ended = drained or cut == END
        """Nothing more will be read."""
        self._nothing = (Rows.empty(schema), self._no_dead)

    @property
    def room(self) -> tuple[int, int]:
        """How many rows and bytes may be read now. What an earlier incarnation was let emit, this one is, too, row by
        row: it may weigh more as it is read now, and who is downstream may be past the cut that we would stand at."""
        if self._ended:
            return (0, 0)
        self._window.advance(self.safe)
        room = self._window.room
        return (1, 1) if not room[0] and self.done < self._owed else room

    @property
    def _owed(self) -> int:
        """How far those downstream have got from earlier incarnations, as far as is known."""
        return max(self.reached or START, max((outlet.owed for outlet in self.outlets), default=START))

    @property
    def asks(self) -> bool:
        """Whether how far those downstream have got decides what it does: it is to end early, or its window is full."""
        return self.stopping and not self.draining if self._window.room[0] else not self._ended

    def records(
        self, rows: Rows, hi: int, dead: Rows | None, mark_at: Callable[[int], Mark]
    ) -> Iterator[Send | Emitted | Audited | KeeperAction]:
        """What the reader gave, and how to resume it at a cut. A ``hi`` that has not moved says nothing new."""
        if hi == END:
            self._ended = True
            if self.draining:
                hi = 1 + max((int(part.seq[-1]) for part in (rows, dead) if part), default=self.done - 1)
        if hi <= self.done:
            return
        letters = self._no_dead if dead is None else dead
        self._window.emitted(hi, len(rows) + len(letters), rows.nbytes + letters.nbytes)
        self.stride.fit(self._window.stride)
        self.rows_in += len(rows)
        yield from self._emit(hi, (rows if self._chain is None else self._chain.onward(rows), letters))
        yield from self._cut(self.stride.reached(self.done), mark_at)

    @property
    def may_drain(self) -> bool:
        """Whether the stream is to end and may do so where it stands: nobody downstream has got more, from an earlier
        incarnation. (Who has got END has it from an input that ended by itself: that end is still to be read.)"""
        return self.stopping and not self.draining and self.reached is not None and self.reached <= self.done

    def end(self, mark_at: Callable[[int], Mark]) -> Iterator[Send | Emitted | Audited | KeeperAction]:
        """End a drained stream, once all it has sent is safe and everybody who holds copies knows that it ends there:
        whoever takes over from then on resumes there, and ends it at the same place. (Where an input ends by itself
        every incarnation finds the same end.)"""
        if not (self.draining and self._ended and self.done < END and self.safe == self.done):
            return
        if self.stride.last < END:
            yield from self._cut(END, lambda cut: {**mark_at(cut), DRAINED: True})
        if self.keeper is None or self.keeper.held_by_all(END):
            yield from self._emit(END, self._nothing)

    def tick(self, mark_at: Callable[[int], Mark]) -> Iterator[Tell | KeeperAction]:
        """Time passes. A source that has not moved since the last tick stands still: its position is a cut for all."""
        still = self.done == self._before and self.done > START
        self._before = self.done
        if still and self.stride.last < self.done:
            yield from self._cut(self.done, mark_at)
        yield from self.standing(still)

    def _cut(self, cut: int | None, mark_at: Callable[[int], Mark]) -> Iterator[KeeperAction]:
        if cut is not None:
            yield from self._snapshot(cut, None, mark_at(cut))


class Merger:
    """The inlets of one slice, and the rows below their common frontier, merged and ready."""

    def __init__(
        self,
        packing: Packing,
        sub_bits: int,
        channels: Sequence[tuple[int, int]],
        cut: int,
        gaps_allowed: bool,
        again: bool = False,
    ) -> None:
        """``again``: what is done again is taken again."""
        self._packing = packing
        self._sub_bits = sub_bits
        self.inlets = {channel: Inlet(hi=cut, gaps_allowed=gaps_allowed) for channel in channels}
        self._agains: list[tuple[int, Again]] = []
        for (input_index, _), inlet in self.inlets.items() if again else ():
            inlet.again = Again()
            self._agains.append((input_index, inlet.again))
        self.frontier = cut
        self.stride = END
        """How far apart cuts may be, for whichever of the producers bears least."""
        self._ready: Rows | None = None
        self._taken = 0
        self.ready_hi = cut

    def offer(self, channel: tuple[int, int], tile: Tile) -> Verdict:
        """A tile for the channel (input, producer slice)."""
        inlet = self.inlets[channel]
        held_back = inlet.hi == self.frontier
        verdict = inlet.offer(tile)
        if tile.stride != inlet.stride or inlet.hi == END:
            inlet.stride = tile.stride
            # Who has ended waits for no cut any more.
            self.stride = min((inlet.stride for inlet in self.inlets.values() if inlet.hi < END), default=END)
        if held_back and verdict is Verdict.TAKEN:
            self.frontier = min(inlet.hi for inlet in self.inlets.values())
        return verdict

    def repeats(self, done: int) -> Rows | None:
        """At-least-once: rows below ``done`` that were emitted again, or None."""
        for input_index, again in self._agains:
            if again.ready(done):
                rows = again.waiting.popleft()
                return Rows(rows.seq, self._packing.enter(rows.sub, input_index), rows.data)
        return None

    @property
    def queued(self) -> int:
        """Rows that were received and not processed yet."""
        return self._left + sum(inlet.queued for inlet in self.inlets.values())

    @property
    def _left(self) -> int:
        return 0 if self._ready is None else len(self._ready) - self._taken

    @property
    def position(self) -> int:
        """All rows below are processed: the next row's seq, or the end of what was merged."""
        if self._ready is None:
            return self.ready_hi
        return int(self._ready.seq[self._taken])

    def has_work(self, done: int) -> bool:
        return self._ready is not None or self.frontier > done or any(again.ready(done) for _, again in self._agains)

    def next(self, rows_max: int, cut: int = END) -> Rows | None:
        """Up to ``rows_max`` further rows in ID order, none at or above ``cut``; None when there is none below the
        frontier (it may have moved)."""
        if self._ready is None and self.frontier > self.ready_hi:
            self._gather()
        if self._ready is None:
            return None
        stop = min(self._taken + rows_max, len(self._ready))
        if int(self._ready.seq[stop - 1]) >= cut:
            stop = self._ready.before(cut)
            if stop <= self._taken:
                return None
        rows = self._ready.slice(self._taken, stop)
        self._taken += len(rows)
        if self._taken == len(self._ready):
            self._ready = None
        return rows

    def _gather(self) -> None:
        """Merge everything below the frontier into one run."""
        frontier = self.frontier
        runs: list[Rows] = []
        for (input_index, _), inlet in self.inlets.items():
            parts = inlet.take(frontier)
            if parts:
                run = Rows.concat(parts)
                runs.append(Rows(run.seq, self._packing.enter(run.sub, input_index), run.data))
        self.ready_hi = frontier
        self._taken = 0
        self._ready = merge(runs, self._sub_bits) if runs else None


class WorkSlice(Slice):
    """A slice of an operator: merge, process, emit."""

    def __init__(
        self,
        index: int,
        cut: int,
        outlets: Sequence[Outlet],
        keeper: Keeper | None,
        stride: Stride,
        merger: Merger,
        chain: Chain,
        schema: pa.Schema,
    ) -> None:
        super().__init__(index, cut, outlets, keeper, stride)
        self.merger = merger
        self._chain = chain
        self._row = START - 1
        """The seq of the last row that was processed."""
        self._nothing = (Rows.empty(schema), Rows.empty(DEAD))
        self._held: list[tuple[Rows, Rows]] = []
        """Outputs of a seq that is not complete yet: some of its rows are still to be processed."""

    def has_work(self) -> bool:
        return self.merger.has_work(self.done) or self.stride.due(self.done)

    def step(self, rows_max: int) -> Iterator[Send | Emitted | Audited | Tell | KeeperAction]:
        """Process up to so many rows and emit what is complete; at a cut, take a snapshot."""
        self.stride.fit(self.merger.stride)
        rows = self.merger.next(rows_max, self.stride.next(self.merger.position))
        if rows is not None:
            self.rows_in += len(rows)
            self._row = int(rows.seq[-1])
            self._held.append(self._chain.process(rows))
        hi = self.merger.position
        if hi > self.done:
            yield from self._emit(hi, self._release(hi))
        cut = self.stride.reached(self.done, self._row)
        if cut is not None:
            yield from self._snapshot(cut, self._chain.delta(), None)
            if cut == self.done and self.stands_still:
                yield from self.stand(True)
        repeats = self.merger.repeats(self.done)
        if repeats is not None:
            yield from self._again(repeats)

    def _again(self, rows: Rows) -> Iterator[Send]:
        """At-least-once: process repeats, and pass on what comes of them."""
        self.rows_in += len(rows)
        ports = self._chain.process(rows)
        for outlet in self.outlets:
            if len(ports[outlet.port]):
                yield from outlet.again(ports[outlet.port])

    def _release(self, hi: int) -> tuple[Rows, Rows]:
        """The held outputs below ``hi``; what lies at ``hi`` stays held."""
        held, self._held = self._held, []
        if len(held) == 1 and all(rows.before(hi) == len(rows) for rows in held[0]):
            return held[0]
        ports: list[Rows] = []
        kept: list[Rows] = []
        for port in (MAIN, DEAD_LETTERS):
            parts = [pair[port] for pair in held if len(pair[port])]
            rows = Rows.concat(parts) if parts else self._nothing[port]
            below = rows.before(hi)
            ports.append(rows.slice(0, below))
            kept.append(rows.slice(below, len(rows)))
        if len(kept[MAIN]) or len(kept[DEAD_LETTERS]):
            self._held.append((kept[MAIN], kept[DEAD_LETTERS]))
        return ports[MAIN], ports[DEAD_LETTERS]


class SinkSlice(Slice):
    """A slice of a sink: merge and deliver whole seqs, so that ``done`` is always a cut that the sink can commit. Its
    snapshots are the sink's marks, at the cuts that are committed."""

    def __init__(
        self,
        index: int,
        cut: int,
        keeper: Keeper | None,
        stride: Stride,
        merger: Merger,
        schema: pa.Schema,
        written: int = 0,
    ) -> None:
        """``written``: how many rows below the cut were."""
        super().__init__(index, cut, (), keeper, stride)
        self.merger = merger
        self.committed = cut
        self.rows_in = self.rows_out = written
        self._nothing = Rows.empty(schema)
        self._held: list[Rows] = []
        """Rows of a seq that is not complete yet."""

    def has_work(self) -> bool:
        return self.merger.has_work(self.done)

    def step(self, rows_max: int) -> Iterator[Deliver | Audited]:
        self.stride.fit(self.merger.stride)
        rows = self.merger.next(rows_max)
        if rows is not None:
            self.rows_in += len(rows)
            self._held.append(rows)
        hi = self.merger.position
        if hi > self.done:
            held = Rows.concat(self._held) if self._held else self._nothing
            rest = held.since(hi)
            self._held = [rest] if len(rest) else []
            self.done = hi
            rows = held.below(hi)
            yield Deliver(self.index, rows, hi)
            if self.audit is not None:
                yield from self._audited(self.audit, hi, (rows,))
        repeats = self.merger.repeats(self.done)
        if repeats is not None:
            self.rows_in += len(repeats)
            yield Deliver(self.index, repeats, self.done, again=True)

    @property
    def _consumers_safe(self) -> int:
        return self.committed

    def commit(self, cut: int, mark: Mark) -> Iterator[KeeperAction]:
        """The sink has committed everything below ``cut``."""
        if cut > self.committed:
            self.committed = cut
            self.rows_out = self.rows_in
            yield from self._snapshot(cut, None, {**mark, WRITTEN: self.rows_out})
            yield from self.keep()
