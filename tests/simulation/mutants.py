"""The protocol, broken on purpose: does the simulator notice?

Each mutant leaves out or twists one rule of recovery, each of which is there for a reason. A simulator that lets one
pass for 2,000 seeds would not find such a mistake either if somebody made it. A few are rare: they need a coincidence,
and unit tests bring it about. ``scripts/mutants`` runs them all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import mutants_state  # noqa: F401 (to have them all)
import numpy as np
import pyarrow as pa
from breaking import MUTANTS, RARE, SEEDS, Patches, catch, caught_by_unit_tests, mutant, rare

from dadstorm.core import slice as slices
from dadstorm.core.exchange import Exchange
from dadstorm.core.holder import Holder
from dadstorm.core.keeper import Keeper
from dadstorm.core.line import END, START
from dadstorm.core.messages import DISK, Copy, Held, Peer, Settle
from dadstorm.core.outlet import Outlet
from dadstorm.core.replica import ReplicaMachine
from dadstorm.core.rows import Rows
from dadstorm.core.seeking import Seeking
from dadstorm.core.slice import Slice, SourceSlice
from dadstorm.core.spreading import Spreading
from dadstorm.core.steward import Steward
from dadstorm.core.stride import Stride
from dadstorm.core.tile import Inlet, Tile, Verdict
from dadstorm.core.vault import DRAINED, Delta, Vault
from dadstorm.core.wiring import Wiring

# -- tiling ----------------------------------------------------------------------------------------------------------


@mutant
def duplicates_are_taken() -> Patches:
    """What lies below an inlet's ``hi`` is not dropped."""

    def offer(self: Inlet, tile: Tile) -> Verdict:
        self.heard = True
        if tile.lo > self.hi and not self.gaps_allowed:
            return Verdict.GAP
        if len(tile.rows):
            self.waiting.append(tile.rows)
        self.hi = max(self.hi, tile.hi)
        return Verdict.TAKEN

    yield Inlet, "offer", offer


@mutant
def overlaps_are_not_trimmed() -> Patches:
    """A tile that reaches beyond ``hi`` is taken whole."""

    def offer(self: Inlet, tile: Tile) -> Verdict:
        self.heard = True
        if tile.hi <= self.hi:
            return Verdict.DUPLICATE
        if tile.lo > self.hi and not self.gaps_allowed:
            return Verdict.GAP
        if len(tile.rows):
            self.waiting.append(tile.rows)
        self.hi = tile.hi
        return Verdict.TAKEN

    yield Inlet, "offer", offer


@mutant
def gaps_are_taken() -> Patches:
    """A loss is not noticed."""
    usual = Inlet.offer

    def offer(self: Inlet, tile: Tile) -> Verdict:
        self.gaps_allowed = True
        return usual(self, tile)

    yield Inlet, "offer", offer


@mutant
def gaps_are_not_asked_for_again() -> Patches:
    """A loss is noticed, and that is all."""
    yield Exchange, "_ask_again", lambda self, message, missing: iter(())


@mutant
def producers_forget_with_the_fastest_consumer() -> Patches:
    """A tile goes when one slice of the consumer is safe of it, not when all are."""

    def advance(self: Outlet, cuts: Iterable[tuple[int, int]]) -> None:
        for slice_index, cut in cuts:
            self._safe[slice_index] = max(self._safe[slice_index], cut)
        self.safe = max(self._safe)
        while self._kept and self._kept[0].hi <= self.safe:
            self.floor = self._kept.popleft().hi

    yield Outlet, "advance", advance


# -- order -----------------------------------------------------------------------------------------------------------


@mutant
def ties_are_not_broken() -> Patches:
    """Rows are merged by seq alone."""

    def merge(runs: list[Rows], sub_bits: int) -> Rows:
        rows = Rows.concat(runs)
        return rows.take(np.argsort(rows.seq, kind="stable"))

    yield slices, "merge", merge


# -- snapshots -------------------------------------------------------------------------------------------------------


@rare("test_core_stride.py")
def a_snapshot_may_lie_below_what_was_processed() -> Patches:
    """A cut below the last processed row: its state holds rows that will be processed again."""
    usual = Stride.reached
    yield Stride, "reached", lambda self, position, row=START - 1: usual(self, position)


@mutant
def state_is_not_restored() -> Patches:
    """A slice resumes at its cut with nothing in its hands."""
    usual = Wiring.work
    yield Wiring, "work", lambda self, index, incarnation, base: usual(self, index, incarnation, Delta(base.cut))


@mutant
def nobody_says_where_a_source_stands_still() -> Patches:
    """A window that is full stays full if no common cut lies in it."""
    usual = Slice.stand
    yield Slice, "stand", lambda self, still: usual(self, False)


# -- keepers and holders ---------------------------------------------------------------------------------------------


@mutant
def safe_is_one_cut_too_new() -> Patches:
    """Producers forget what the next recovery will ask for."""

    def safe(self: Slice) -> int:
        if self.keeper is None:
            return self._consumers_safe
        newer = self.keeper.vault.since(self.keeper.safe)
        return newer[0].cut if newer else self.keeper.safe

    yield Slice, "safe", property(safe)


@mutant
def safe_does_not_wait_for_consumers() -> Patches:
    """What we hold copies of is called safe, though those downstream may still ask for it."""
    usual = Keeper.consumers_safe
    yield Keeper, "consumers_safe", lambda self, cut: usual(self, END)


@mutant
def producers_are_told_before_copies_are_settled() -> Patches:
    """One step instead of two."""
    usual = Keeper._progress

    def progress(self: Keeper) -> Iterator[Any]:
        yield from usual(self)
        if self._settling > self.safe:
            self.safe = self._settling
            self.vault.settle(self.safe)

    yield Keeper, "_progress", progress


@mutant
def copies_are_not_waited_for() -> Patches:
    """A cut is settled when consumers are safe of it, whoever has a snapshot of it."""

    def progress(self: Keeper) -> Iterator[Any]:
        cut = self.vault.newest_up_to(self._consumers_safe)
        if cut > self._settling:
            self._settling = self.safe = cut
            for peer in self._holders:
                yield self._settle(peer)
            self.vault.settle(cut)

    yield Keeper, "_progress", progress


@mutant
def acknowledgements_of_dead_holders_count() -> Patches:
    """The incarnation of who holds a copy does not matter."""
    usual_hold_at, usual_held = Keeper.hold_at, Keeper.held

    def hold_at(self: Keeper, peers: dict[Any, int]) -> Iterator[Any]:
        return usual_hold_at(self, dict.fromkeys(peers, 0))

    def held(self: Keeper, message: Held) -> Iterator[Any]:
        return usual_held(
            self,
            Held(
                message.operator,
                message.slice,
                message.incarnation,
                message.holder,
                0,
                message.cut,
                message.settled,
            ),
        )

    yield Keeper, "hold_at", hold_at
    yield Keeper, "held", held


@mutant
def acknowledgements_of_earlier_incarnations_count() -> Patches:
    """A holder's answer to the incarnation before us is taken for an answer to us."""

    def held(self: Keeper, message: Held) -> Iterator[Any]:
        for peer, holder in self._holders.items():
            if peer.replica == message.holder and message.cut >= START:
                holder.has = max(message.cut, START if holder.has is None else holder.has)
                holder.settled = max(holder.settled, message.settled)
        yield from self._progress()

    yield Keeper, "held", held


@mutant
def nothing_is_sent_again() -> Patches:
    """A copy that was lost is waited for, for ever."""
    yield Keeper, "tick", lambda self: iter(())


@mutant
def deltas_are_taken_out_of_order() -> Patches:
    """A delta is applied to whatever is there."""
    usual = Holder.copy

    def copy(self: Holder, message: Copy, table: pa.RecordBatch | None) -> Held:
        held = self._held.get((message.operator, message.slice))
        if held is not None and message.after is not None and held.incarnation == message.incarnation:
            if held.vault.newest < message.cut:
                held.vault.add(Delta(message.cut, table, message.mark))
            return self._answer((message.operator, message.slice), message.incarnation)
        return usual(self, message, table)

    yield Holder, "copy", copy


@mutant
def a_zombie_may_overwrite_copies() -> Patches:
    """The incarnation of whom a copy is of does not matter."""
    usual = Holder.copy

    def copy(self: Holder, message: Copy, table: pa.RecordBatch | None) -> Held:
        held = self._held.get((message.operator, message.slice))
        if held is not None and message.after is None and message.incarnation < held.incarnation:
            del self._held[message.operator, message.slice]
        return usual(self, message, table)

    yield Holder, "copy", copy


@rare("test_core_holder.py")
def a_zombie_may_settle_after_its_copy_was_given_away() -> Patches:
    """The old incarnation moves ``safe`` beyond the copy that the new one has just got."""
    yield Holder, "give", lambda self, operator, index, incarnation: self.find(operator, index)


@mutant
def another_PCS_is_not_given_the_copies() -> Patches:
    """Who has no peers goes on waiting for the acknowledgements of the PCS that has died."""

    def heard(self: Steward, incarnation: int, now_ms: float) -> bool:
        news, self.gone, self._heard_ms = self.gone, False, now_ms
        return news

    yield Steward, "heard", heard


@mutant
def holders_settle_what_they_do_not_have() -> Patches:
    """A holder acknowledges a cut that it has no snapshot of."""
    usual = Holder.settle

    def settle(self: Holder, message: Settle) -> Held:
        answer = usual(self, message)
        return Held(
            answer.operator,
            answer.slice,
            message.incarnation,
            answer.holder,
            answer.holder_incarnation,
            max(answer.cut, message.cut),
            message.cut,
        )

    yield Holder, "settle", settle


# -- resuming --------------------------------------------------------------------------------------------------------


@rare("test_core_seeking.py")
def a_slice_resumes_with_the_first_answer() -> Patches:
    """Who answers later may have had the newer copy."""
    usual = Seeking.answered

    def answered(self: Seeking, message: Any, table: pa.RecordBatch | None) -> None:
        usual(self, message, table)
        self._waiting.clear()

    yield Seeking, "answered", answered


@rare("test_core_seeking.py")
def a_slice_resumes_with_the_oldest_copy() -> Patches:
    """Of several copies, the wrong one is taken."""
    usual = Seeking.answered

    def answered(self: Seeking, message: Any, table: pa.RecordBatch | None) -> None:
        before = self._found.get(message.slice)
        usual(self, message, table)
        if before is not None:
            self._found[message.slice] = before

    yield Seeking, "answered", answered


@rare("test_core_replica.py")
def anybody_vouches_for_anybody() -> Patches:
    """A replica that is merely silent is replaced, though nobody has its state."""
    yield ReplicaMachine, "_vouches", lambda self, replica: True


@mutant
def a_new_incarnation_does_not_introduce_itself() -> Patches:
    """Its consumers go on waiting for the one before."""
    yield ReplicaMachine, "_introduce", lambda self: iter(())


@mutant
def the_disk_is_not_waited_for() -> Patches:
    """What is told to be safe is not on disk yet when everybody dies."""
    usual = ReplicaMachine._holders

    def _holders(self: ReplicaMachine, index: int) -> dict[Peer, int]:
        return {peer: incarnation for peer, incarnation in usual(self, index).items() if peer.replica != DISK}

    yield ReplicaMachine, "_holders", _holders


@mutant
def an_adopted_slice_keeps_its_incarnation() -> Patches:
    """Its former owner, if it lives, is as good as its new one."""
    usual = Spreading.spread

    def spread(self: Spreading, lost: Peer, incarnation: int, living: Sequence[int]) -> list[int]:
        adopters = usual(self, lost, incarnation, living)
        for adopter, adopt in list(self._unheard.items()):
            lower = tuple((index, max(0, term - 1)) for index, term in adopt.slices)
            self._unheard[adopter] = msgspec.structs.replace(adopt, slices=lower)
        return adopters

    yield Spreading, "spread", spread


@mutant
def an_adopter_asks_nobody() -> Patches:
    """It resumes with what it happens to hold itself."""

    def ask(self: Seeking) -> Iterator[Any]:
        self._waiting.clear()
        return iter(())

    yield Seeking, "ask", ask


@mutant
def repeats_move_the_frontier() -> Patches:
    """At-least-once: repeats that are passed on count as all that there is in their range."""
    usual = Inlet.offer

    def offer(self: Inlet, tile: Tile) -> Verdict:
        return usual(self, Tile(tile.lo, tile.hi, tile.rows, tile.safe, tile.incarnation))

    yield Inlet, "offer", offer


@mutant
def who_died_before_it_began_thinks_that_it_is_alone() -> Patches:
    """Nobody has told it who lives, and it takes them all for dead."""
    begin = ReplicaMachine.begin

    def alone(self: ReplicaMachine, living: Any = None, slices: Any = None) -> Any:
        return begin(self, {} if self.incarnation and living is None else living, slices)

    return [(ReplicaMachine, "begin", alone)]


@mutant
def at_least_once_resumes_without_state() -> Patches:
    """What is counted after that is too low, though no tuple is missing."""
    usual = Wiring.work

    def work(self: Wiring, index: int, incarnation: int, base: Delta) -> Any:
        return usual(self, index, incarnation, Delta(base.cut) if self._at_least_once else base)

    yield Wiring, "work", work


# -- draining --------------------------------------------------------------------------------------------------------


@mutant
def who_takes_over_a_drained_stream_does_not_know_that_it_has_ended() -> Patches:
    """It reads on, and those who have not got the end yet get more than the others."""
    usual = Vault.base

    def base(self: Vault) -> Delta:
        found = usual(self)
        mark = {key: value for key, value in (found.mark or {}).items() if key != DRAINED}
        return Delta(found.cut, found.table, mark or None)

    yield Vault, "base", base


@mutant
def a_drained_stream_ends_where_it_stands_whoever_is_ahead() -> Patches:
    """Some of those downstream have got more from an earlier incarnation."""
    yield SourceSlice, "may_drain", property(lambda self: self.stopping and not self.draining)


def main() -> int:
    """All mutants, or those whose names hold one of the arguments; how soon each is caught."""
    if any(word.startswith("-") for word in sys.argv[1:]):
        print("usage: scripts/mutants [WORD ...]: all mutants, or those whose names hold one of the words; these are:")
        print("\n".join(MUTANTS))
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    names = [name for name in MUTANTS if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    by_tests = escaped = 0
    for name in names:
        began = time.monotonic()
        outcome = catch(name)
        took = f"{time.monotonic() - began:.0f} s"
        if outcome is not None:
            problem = (outcome.problem or "").strip().splitlines()[-1]
            print(f"caught   {name}: seed {outcome.seed}, {took}: {problem}", flush=True)
        elif name in RARE and caught_by_unit_tests(name):
            by_tests += 1
            print(f"caught   {name}: not by {SEEDS} seeds, {took}; by tests/unit/{RARE[name]}", flush=True)
        else:
            escaped += 1
            print(f"ESCAPED  {name}: {SEEDS} seeds, {took}", flush=True)
    found = len(names) - by_tests - escaped
    print(f"{found} of {len(names)} mutants caught within {SEEDS} seeds, {by_tests} by unit tests, {escaped} escaped")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
