"""The holder: which copies it takes, what it answers, and what it promises by giving one away."""

from __future__ import annotations

import pyarrow as pa

from dadstorm.core.holder import Holder
from dadstorm.core.messages import Copy, Held, Settle

OWNER, ME = 1, 2
"""Places in the ring."""


def table(**values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key_0": list(values), "value": list(values.values())})


def copy(after: int | None, cut: int, incarnation: int = 0) -> Copy:
    return Copy(0, 0, incarnation, OWNER, after, cut)


def settle(cut: int, incarnation: int = 0) -> Settle:
    return Settle(0, 0, incarnation, OWNER, cut)


def has(held: Held) -> tuple[int, int, int]:
    """Of an answer: the incarnation, the newest cut, the settled one."""
    return held.incarnation, held.cut, held.settled


def filled() -> Holder:
    """A whole copy at 4 and deltas up to 8 and 12."""
    holder = Holder(ME, 0)
    holder.copy(copy(None, 4), table(a=1, b=1))
    holder.copy(copy(4, 8), table(a=2))
    holder.copy(copy(8, 12), table(c=1))
    return holder


def found(holder: Holder) -> tuple[int, int, dict[str, int]]:
    """The copy that somebody would be given: its incarnation, its cut, its state."""
    copy = holder.find(0, 0)
    assert copy is not None
    incarnation, base = copy
    rows = [] if base.table is None else base.table.to_pylist()
    return incarnation, base.cut, {row["key_0"]: row["value"] for row in rows}


def test_it_answers_with_what_it_has() -> None:
    holder = Holder(ME, 3)
    assert holder.copy(copy(None, 4), table(a=1)) == Held(0, 0, 0, ME, 3, 4, 4)
    assert has(holder.copy(copy(4, 8), table(a=2))) == (0, 8, 4)
    assert has(holder.settle(settle(8))) == (0, 8, 8)


def test_who_has_nothing_says_so() -> None:
    holder = Holder(ME, 0)
    assert holder.find(0, 0) is None
    assert has(holder.copy(copy(4, 8), table(a=2))) == (0, -1, -1), "a delta on what is not there"
    assert has(holder.settle(settle(8))) == (0, -1, -1)


def test_what_is_given_away_is_what_is_settled() -> None:
    holder = filled()
    assert found(holder) == (0, 4, {"a": 1, "b": 1})
    holder.settle(settle(8))
    assert found(holder) == (0, 8, {"a": 2, "b": 1})
    holder.settle(settle(12))
    assert found(holder) == (0, 12, {"a": 2, "b": 1, "c": 1})


def test_deltas_are_taken_in_order_and_once() -> None:
    holder = filled()
    assert has(holder.copy(copy(16, 20), table(d=1))) == (0, 12, 4), "one is missing in between"
    assert has(holder.copy(copy(4, 8), table(a=9))) == (0, 12, 4), "it is there already"
    holder.settle(settle(12))
    assert found(holder) == (0, 12, {"a": 2, "b": 1, "c": 1})


def test_what_it_does_not_have_it_does_not_settle() -> None:
    assert has(filled().settle(settle(16))) == (0, 12, 4)


def test_a_whole_copy_of_a_higher_incarnation_replaces_what_is_there() -> None:
    holder = filled()
    assert has(holder.copy(copy(None, 8, incarnation=1), table(z=1))) == (1, 8, 8)
    assert found(holder) == (1, 8, {"z": 1})


def test_a_delta_of_another_incarnation_is_not_applied() -> None:
    holder = filled()
    assert has(holder.copy(copy(12, 16, incarnation=1), table(d=1))) == (1, -1, -1)
    assert found(holder) == (0, 4, {"a": 1, "b": 1})


def test_a_lower_incarnation_learns_that_it_was_superseded() -> None:
    holder = Holder(ME, 0)
    holder.copy(copy(None, 8, incarnation=2), table(a=1))
    assert has(holder.copy(copy(None, 12, incarnation=1), table(a=9)))[0] == 2
    assert has(holder.settle(settle(12, incarnation=1)))[0] == 2
    assert found(holder) == (2, 8, {"a": 1})


def test_a_copy_that_was_given_away_stays_the_newest_there_is() -> None:
    """Else an owner that is given up but lives could settle a later cut and tell its producers, and they would forget
    what its successor is about to ask for."""
    holder = filled()
    given = holder.give(0, 0, incarnation=1)
    assert given is not None and given[1].cut == 4
    assert has(holder.settle(settle(12))) == (1, -1, -1)
    assert has(holder.copy(copy(12, 16), table(d=1))) == (1, -1, -1)
    assert has(holder.copy(copy(None, 16), table(d=1))) == (1, -1, -1)
    assert found(holder) == (0, 4, {"a": 1, "b": 1})
    assert has(holder.copy(copy(None, 4, incarnation=1), table(a=1, b=1))) == (1, 4, 4), "the successor's is taken"


def test_a_late_question_of_a_dead_incarnation_does_not_shut_out_its_successor() -> None:
    holder = filled()
    holder.give(0, 0, incarnation=2)
    holder.give(0, 0, incarnation=1)
    assert has(holder.copy(copy(None, 4, incarnation=1), table(a=1)))[0] == 2
    assert has(holder.copy(copy(None, 4, incarnation=2), table(a=1, b=1))) == (2, 4, 4)
