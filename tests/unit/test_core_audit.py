"""The audit: a digest is a function of the tuples alone, and what comes twice must come the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from core_kit import operator, plan_of, rows
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.audit import Audit, Digest, NotReproduced, Witness, blame, hash_rows, made_outside
from dadstorm.core.ledger import Ledger, Total
from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.core.tile import Inlet, Tile, Verdict
from dadstorm.plan import Plan

SCHEMA = pa.schema([("text", pa.string()), ("number", pa.int64()), ("real", pa.float64()), ("flag", pa.bool_())])
SPAN = 8

Row = tuple[int, int, Any, Any, Any, Any]


def made(found: list[Row]) -> Rows:
    columns = [pa.array([row[i + 2] for row in found], field.type) for i, field in enumerate(SCHEMA)]
    return Rows(
        np.array([row[0] for row in found], np.int64),
        np.array([row[1] for row in found], np.int64),
        pa.RecordBatch.from_arrays(columns, schema=SCHEMA),
    )


def plain(count: int = 40) -> list[Row]:
    return [(3 * n // 2, n % 2, f"t{n}", n, n / 4, n % 3 == 0) for n in range(count)]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 3),
        st.none() | st.text(max_size=12),
        st.none() | st.integers(-5, 5),
        st.none() | st.floats(),
        st.none() | st.booleans(),
    ),
    unique_by=lambda row: row[:2],
    max_size=40,
).map(lambda found: sorted(found, key=lambda row: row[:2]))


def digests(found: list[Row], slices: int = 1, cuts: tuple[int, ...] = (), span: int = SPAN) -> dict[int, Total]:
    """The digests of an operator that emits these rows from so many slices, in tiles with these borders."""
    ledger = Ledger()
    for index in range(slices):
        mine = made([row for row in found if row[0] * 7 % slices == index])
        audit, lo = Audit(index, span), 0
        for hi in (*sorted(set(cuts) - {0}), END):
            action = audit.emitted(hi, (mine.since(lo).below(hi),))
            lo = hi
            for digest in action.digests if action else ():
                ledger.add("op", index, digest)
            if action and action.ended is not None:
                ledger.end("op", index, action.ended)
    assert ledger.reached("op", slices) is None
    assert not ledger.conflicts
    return ledger.epochs("op")


@given(ROWS, st.integers(1, 4), st.lists(st.integers(0, 70), max_size=8))
def test_slices_batches_and_tile_borders_do_not_reach_a_digest(found: list[Row], slices: int, cuts: list[int]) -> None:
    once = digests(found)
    assert digests(found, slices, tuple(cuts)) == once
    assert {epoch: total.rows for epoch, total in once.items()} == {
        epoch: sum(row[0] // SPAN == epoch for row in found) for epoch in {row[0] // SPAN for row in found}
    }


@pytest.mark.parametrize(
    "column, value",
    [
        *((0, 13), (1, 1), (2, "t8 "), (2, ""), (2, None), (3, 9), (3, None)),
        *((4, 2.0000000001), (4, None), (5, True), (5, None)),
    ],
)
def test_every_single_changed_field_or_id_changes_the_digest(column: int, value: object) -> None:
    found = plain()
    changed: list[Any] = [list(row) for row in found]
    assert changed[8][column] != value
    changed[8][column] = value
    assert digests(changed)[found[8][0] // SPAN] != digests(found)[found[8][0] // SPAN]


def test_a_lost_a_doubled_and_a_swapped_row_change_the_digest() -> None:
    found = plain()
    once = digests(found)
    assert digests(found[:8] + found[9:]) != once
    assert digests([*found[:8], found[8], *found[8:]]) != once
    other = [*found]
    other[8], other[9] = (*found[8][:2], *found[9][2:]), (*found[9][:2], *found[8][2:])
    assert digests(other) != once, "the same fields under each other's IDs"


def test_floats_count_by_their_bits_but_every_nan_is_the_same() -> None:
    def hashed(value: float | None) -> int:
        return int(hash_rows(made([(1, 0, "a", 1, value, None)]))[0])

    odd = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0]
    assert hashed(math.nan) == hashed(float(odd))
    assert len({hashed(0.0), hashed(-0.0), hashed(None), hashed(math.nan), hashed(math.inf)}) == 5


def test_a_dead_letter_is_not_a_tuple() -> None:
    one = rows(1)
    assert hash_rows(one, 0).tolist() != hash_rows(one, 1).tolist()


def test_dead_letters_and_tuples_of_one_step_may_lie_in_different_epochs() -> None:
    together = Audit(0, SPAN).emitted(END, (rows(1, 20), rows(3, 9)))
    audit, apart = Audit(0, SPAN), []
    for hi, main, dead in ((5, [1], [3]), (10, [], [9]), (END, [20], [])):
        tuples = rows(*main, values=[0 if seq == 1 else 1 for seq in main])
        letters = rows(*dead, values=[0 if seq == 3 else 1 for seq in dead])
        apart.append(audit.emitted(hi, (tuples, letters)))
    assert together is not None
    assert [d.epoch for d in together.digests] == [0, 1, 2]
    assert [d for action in apart if action for d in action.digests] == list(together.digests)


def test_a_digest_is_told_when_its_epoch_is_complete_and_epochs_without_tuples_have_none() -> None:
    audit = Audit(2, SPAN)
    assert audit.emitted(7, (rows(1, 6),)) is None
    assert audit.emitted(8, (rows(),)) is not None
    assert audit.emitted(800, (rows(),)) is None
    last = audit.emitted(END, (rows(804),))
    assert last is not None
    assert (last.slice, [(d.number, d.epoch, d.rows) for d in last.digests], last.ended) == (2, [(1, 100, 1)], 2)


@given(ROWS, st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=6))
def test_an_incarnation_that_resumes_at_a_cut_records_the_same_digests(
    found: list[Row], places: list[tuple[int, int]]
) -> None:
    """Snapshots may lie behind what was emitted: sources read ahead."""
    whole = made(found)
    everything = Audit(0, SPAN).emitted(END, (whole,))
    assert everything is not None
    known = {digest.number: digest for digest in everything.digests}
    audit, done, last = Audit(0, SPAN), 0, 0
    for one, other in places:
        cut, hi = min(one, other), max(one, other)
        if not done < hi or not last <= cut:
            continue
        action = audit.emitted(hi, (whole.since(done).below(hi),))
        assert all(known[digest.number] == digest for digest in (action.digests if action else ()))
        done, last = hi, cut
        mark = audit.at(cut)
        rest = Audit(0, SPAN, cut, {"offset": 7, **mark}).emitted(END, (whole.since(cut),))
        assert rest is not None and rest.ended == len(known)
        assert [known[digest.number] for digest in rest.digests] == list(rest.digests)
        assert {d.number for d in rest.digests} == {n for n, d in known.items() if (d.epoch + 1) * SPAN > cut}, (
            "all that were not complete at the cut"
        )


def test_an_audit_that_begins_in_the_middle_is_known_to_miss_something() -> None:
    ledger = Ledger()
    action = Audit(0, SPAN, cut=12).emitted(END, (rows(13, 20),))
    assert action is not None and action.ended is not None
    for digest in action.digests:
        ledger.add("op", 0, digest)
    ledger.end("op", 0, action.ended)
    assert ledger.reached("op", 1) == 0


def test_a_mark_is_given_back_as_it_came() -> None:
    assert made_outside({"offset": 7, **Audit(0, SPAN).at(0)}) == {"offset": 7}
    assert made_outside({"offset": 7}) == {"offset": 7}
    assert made_outside(None) is None


# -- what comes again --------------------------------------------------------------------------------------------


def small_plan() -> Plan:
    return plan_of(
        operator("numbers", "source"),
        operator("mine", "custom", ["numbers"]),
        operator("copy", "dup", ["mine"]),
        operator("other", "dup", ["numbers"]),
        span=4,
    )


def inlet(cut: int = 0, name: str = "mine") -> Inlet:
    plan = small_plan()
    return Inlet(hi=cut, witness=Witness(plan, plan[name], 3, cut))


def test_what_comes_again_as_it_came_is_dropped() -> None:
    one = inlet()
    assert one.offer(Tile(0, 6, rows(1, 3, (3, 1), 5))) is Verdict.TAKEN
    assert one.offer(Tile(6, 9, rows(7, values=[4]))) is Verdict.TAKEN
    assert one.offer(Tile(0, 6, rows(1, 3, (3, 1), 5))) is Verdict.DUPLICATE
    assert one.offer(Tile(2, 5, rows(3, (3, 1), values=[1, 2]))) is Verdict.DUPLICATE, "cut elsewhere"
    assert one.offer(Tile(4, 12, rows(5, 7, 10, values=[3, 4, 5]))) is Verdict.TAKEN, "and going on"
    assert one.offer(Tile(0, 12, rows(1, 3, (3, 1), 5, 7, 10))) is Verdict.DUPLICATE
    assert one.offer(Tile(8, 9, rows())) is Verdict.DUPLICATE


@pytest.mark.parametrize(
    "again, wanted",
    [
        (Tile(0, 6, rows(1, 3, 5, values=[0, 9, 2])), (0, 3, "<1>", "<9>")),
        (Tile(0, 6, rows(1, 5, values=[0, 2])), (0, 3, "<1>", "nothing")),
        (Tile(0, 6, rows(1, 3, 4, 5, values=[0, 1, 7, 2])), (1, 4, "nothing", "<7>")),
        (Tile(0, 6, rows(1, 3, (5, 1), values=[0, 1, 2])), (1, 5, "<2>", "nothing")),
        (Tile(2, 6, rows(3, values=[1])), (1, 5, "<2>", "nothing")),
        (Tile(2, 3, rows(2, values=[8])), (0, 2, "nothing", "<8>")),
        (Tile(4, 20, rows(5, 17, values=[3, 4])), (1, 5, "<2>", "<3>")),
    ],
    ids=["changed", "missing", "added", "another ID", "missing at the end", "out of nothing", "in an overlap"],
)
def test_what_does_not_come_again_as_it_came_names_operator_epoch_and_tuple(
    again: Tile, wanted: tuple[int, int, str, str]
) -> None:
    one = inlet()
    one.offer(Tile(0, 6, rows(1, 3, 5)))
    one.take(6)  # What was processed is remembered all the same.
    with pytest.raises(NotReproduced) as caught:
        one.offer(again)
    epoch, seq, first, second = wanted
    assert str(caught.value).splitlines()[:4] == [
        "operator mine did not reproduce what it had emitted before it was recovered.",
        f"  epoch {epoch}, tuple ({seq}, 0), slice 3 of mine",
        f"  first: {first}",
        f"  again: {second}",
    ]
    assert "function of mine is not deterministic" in str(caught.value)


def test_below_where_a_slice_resumed_it_knows_nothing_and_says_nothing() -> None:
    one = inlet(cut=4)
    assert one.offer(Tile(0, 8, rows(1, 3, 5))) is Verdict.TAKEN
    assert one.offer(Tile(0, 8, rows(2, 5, values=[8, 2]))) is Verdict.DUPLICATE
    with pytest.raises(NotReproduced):
        one.offer(Tile(0, 8, rows(2, 5)))


def test_what_the_producer_will_never_emit_again_is_forgotten() -> None:
    one = inlet()
    for seq in range(10):
        one.offer(Tile(seq, seq + 1, rows(seq), safe=max(0, seq - 2)))
    assert one.witness is not None
    assert one.witness.kept_rows == 3


def test_a_long_tuple_is_not_shown_whole() -> None:
    plan = small_plan()
    witness = Witness(plan, plan["mine"], 0, 0)
    witness.took(made([(1, 0, "x" * 5000, 1, 0.5, True)]))
    with pytest.raises(NotReproduced) as caught:
        witness.again(0, 2, made([(1, 0, "y" * 5000, 1, 0.5, True)]))
    assert len(str(caught.value)) < 2000


def test_who_is_to_blame() -> None:
    plan = small_plan()
    assert "its input has changed" in blame(plan, plan["numbers"])
    assert "The function of mine is not deterministic" in blame(plan, plan["mine"])
    assert "but mine before it is not deterministic" in blame(plan, plan["copy"])
    assert "a defect in DADSTORM" in blame(plan, plan["other"])


# -- the ledger --------------------------------------------------------------------------------------------------


def test_digests_of_slices_add_up_and_the_same_again_is_no_news() -> None:
    ledger = Ledger()
    ledger.add("op", 0, Digest(0, 3, 10, 2**64 - 1))
    ledger.add("op", 0, Digest(0, 3, 10, 2**64 - 1))
    ledger.add("op", 1, Digest(0, 3, 5, 3))
    assert ledger.epochs("op") == {3: Total(15, 2)}
    assert ledger.conflicts == []


def test_two_digests_with_one_number_are_a_conflict() -> None:
    ledger = Ledger()
    ledger.add("op", 0, Digest(0, 3, 10, 1))
    ledger.add("op", 0, Digest(0, 3, 10, 2))
    assert [(one.operator, one.slice, one.epoch) for one in ledger.conflicts] == [("op", 0, 3)]


def test_it_is_known_how_far_an_operator_is_known() -> None:
    ledger = Ledger()
    ledger.add("op", 0, Digest(0, 3, 1, 1))
    assert ledger.reached("op", 2) == 0, "nothing of slice 1"
    ledger.add("op", 1, Digest(0, 1, 1, 1))
    ledger.add("op", 1, Digest(2, 9, 1, 1))
    assert ledger.reached("op", 2) == 2, "number 1 of slice 1 is missing"
    ledger.add("op", 1, Digest(1, 4, 1, 1))
    ledger.end("op", 1, 3)
    assert ledger.reached("op", 2) == 4
    ledger.end("op", 0, 1)
    assert ledger.reached("op", 2) is None
