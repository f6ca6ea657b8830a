"""Exactly-once commits without Spark: whatever dies and when, the table ends up with each row once.

A table is a set of commits here, and a run is a schedule of writes, cuts, commits and deaths; what a death leaves
behind is what the files would hold.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.spark.commits import Commit, Line, Task, chain, commit_name, due, epochs, summed

SPAN = 16


def rows(lo: int, hi: int, text: str = "w") -> Rows:
    """A row for every seq, but for those that a filter took: every third and all of the forties."""
    seq = np.array([n for n in range(lo, hi) if n % 3 and n // 10 != 4], dtype=np.int64)
    return Rows(seq, np.zeros(len(seq), dtype=np.int64), pa.record_batch({"w": pa.array([f"{text}{n}" for n in seq])}))


def commit_of(task: Task) -> Commit:
    count, digest, epochs = summed(task.parts, SPAN, True)
    folder = f"commit={commit_name(0, task.lo, task.hi)}" if count else None
    return Commit(task.lo, task.hi, count, digest, epochs, folder)


class FakeTable:
    """What files would hold: commits that count, and the rows in them."""

    def __init__(self) -> None:
        self.commits: dict[str, Commit] = {}
        self.seqs: dict[str, list[int]] = {}

    def add(self, task: Task) -> None:
        commit = commit_of(task)
        self.commits[commit.name] = commit
        self.seqs[commit.name] = [int(seq) for part in task.parts for seq in part.seq]

    def drop(self, gone: list[Commit]) -> None:
        for commit in gone:
            del self.commits[commit.name], self.seqs[commit.name]

    @property
    def written(self) -> list[int]:
        return [seq for name in sorted(self.seqs) for seq in self.seqs[name]]

    def resumed(self, cut: int) -> Line:
        found = chain(self.commits.values(), cut)
        assert not found.stray
        return Line(cut, found.reaches, found.ahead)


def step(line: Line, table: FakeTable) -> bool:
    """One task, if there is one, as the sink does it."""
    task = line.task()
    if task is None:
        return False
    if task.found is not None and not task.found.same_rows(commit_of(task)):
        table.drop(line.refused())
        task = line.task()
        assert task is not None and task.what == "write"
    if task.found is None:
        table.add(task)
    line.done()
    return True


def test_names_sort_as_the_line_does() -> None:
    names = [commit_name(run, lo, hi) for run, lo, hi in [(0, 0, 9), (0, 9, 100), (0, 100, END), (1, 0, 5), (2, 0, 1)]]
    assert names == sorted(names)


def test_rows_below_a_cut_become_one_commit() -> None:
    table, line = FakeTable(), Line(START, START)
    line.write(rows(0, 7))
    assert line.task() is None, "nothing is committed before somebody says where"
    line.cut(7)
    line.write(rows(7, 20))
    assert step(line, table) and line.committed == 7
    line.cut(END)
    assert step(line, table) and line.committed == END
    assert table.written == rows(0, 20).seq.tolist()


def test_a_task_is_the_same_until_it_is_done() -> None:
    line = Line(START, START)
    line.write(rows(0, 7))
    line.cut(7)
    task = line.task()
    line.write(rows(7, 9))
    line.cut(9)
    assert line.task() is task and line.committed == START


def test_an_empty_piece_of_the_line_holds_at_once_and_the_next_commit_covers_it() -> None:
    table, line = FakeTable(), Line(START, START)
    line.cut(40)
    assert line.committed == 40 and not line.has_work
    line.write(rows(50, 55))
    line.cut(55)
    assert step(line, table)
    assert list(table.commits) == [commit_name(0, 0, 55)]


def test_nothing_holds_early_while_a_commit_is_under_way() -> None:
    line = Line(START, START)
    line.write(rows(0, 5))
    line.cut(5)
    assert line.task() is not None
    line.cut(9)
    assert line.committed == START
    line.done()
    assert line.committed == 9, "what followed was empty"


def test_the_end_is_a_commit_even_without_rows() -> None:
    table, line = FakeTable(), Line(START, START)
    line.cut(END)
    assert step(line, table)
    (commit,) = table.commits.values()
    assert (commit.lo, commit.hi, commit.rows, line.committed) == (START, END, 0, END)


def test_commits_that_nobody_was_told_of_are_recognised_and_not_written_again() -> None:
    table, line = FakeTable(), Line(START, START)
    for lo, hi in ((0, 10), (10, 20), (20, 30)):
        line.write(rows(lo, hi))
        line.cut(hi)
        step(line, table)
    before = dict(table.commits)
    again = table.resumed(10)
    again.write(rows(10, 25))
    again.cut(25)
    assert step(again, table) and again.committed == 20
    assert not step(again, table), "25 lies within a commit: it waits for the rest of it"
    again.write(rows(25, 33))
    again.cut(33)
    assert step(again, table) and again.committed == 30
    assert table.commits == before
    assert step(again, table) and again.committed == 33
    assert table.written == rows(0, 33).seq.tolist()


def test_commits_with_other_rows_are_dropped_and_redone() -> None:
    table, line = FakeTable(), Line(START, START)
    for lo, hi in ((0, 10), (10, 20), (20, 30)):
        line.write(rows(lo, hi, "old" if lo else "w"))
        line.cut(hi)
        step(line, table)
    again = table.resumed(10)
    again.write(rows(10, 30))
    again.cut(30)
    while step(again, table):
        pass
    assert table.written == rows(0, 30).seq.tolist() and again.committed == 30
    assert table.commits[commit_name(0, 10, 20)] == commit_of(Task("write", 10, 20, (rows(10, 20),)))


def test_what_is_no_link_of_the_chain_is_no_part_of_it() -> None:
    def commit(lo: int, hi: int) -> Commit:
        return Commit(lo, hi, 1, "0")

    found = chain([commit(30, 40), commit(0, 10), commit(10, 20), commit(12, 15), commit(20, 20)], 10)
    assert [c.hi for c in found.kept] == [10] and [c.hi for c in found.ahead] == [20]
    assert sorted(c.lo for c in found.stray) == [12, 20, 30]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.booleans(), st.booleans()), max_size=40),
    st.integers(0, 100),
)
def test_each_row_is_there_once_whatever_dies_and_when(steps: list[tuple[int, int, bool, bool]], last: int) -> None:
    """Each step writes some rows, commits some tasks, and perhaps dies: the mark that the next one starts from is of
    that moment or older, and Spark may have finished one more commit than anybody was told of."""
    table, line = FakeTable(), Line(START, START)
    done, mark = 0, START
    for count, tasks, dies, told in steps:
        line.write(rows(done, done + count))
        done += count
        line.cut(done)
        for _ in range(tasks):
            step(line, table)
        assert table.written == sorted(set(table.written))
        if told:
            mark = line.committed
        if dies:
            task = line.task()
            if task is not None and task.found is None and count % 2:
                table.add(task)
            line, done = table.resumed(mark), mark
    end = max(done, last)
    line.write(rows(done, end))
    line.cut(END)
    while step(line, table):
        pass
    assert line.committed == END
    assert table.written == rows(0, end).seq.tolist()


def test_digests_do_not_depend_on_how_rows_were_batched() -> None:
    whole = rows(0, 200)
    pieces = [whole.slice(0, 1), whole.slice(1, 50), whole.slice(50, 51), whole.slice(51, len(whole))]
    for with_id in (True, False):
        assert summed([whole], SPAN, with_id) == summed(pieces, SPAN, with_id)
    assert summed([whole], SPAN, True)[1] != summed([rows(0, 200, "x")], SPAN, True)[1]
    assert sum(epoch.rows for epoch in summed([whole], SPAN, True)[2]) == len(whole)


def test_tables_whose_commits_end_elsewhere_have_the_same_epochs() -> None:
    def table(*cuts: int) -> list[Commit]:
        return [commit_of(Task("write", lo, hi, (rows(lo, hi),))) for lo, hi in pairwise((0, *cuts, 200))]

    assert epochs(table(20, 100)) == epochs(table(3, 4, 77)) == epochs(table())
    assert epochs(table(20)) != epochs(table(20)[:1])


def test_a_commit_is_due_when_it_is_time_or_half_a_window_waits_or_all_is_there() -> None:
    def line_with(hi: int, cut: int) -> Line:
        line = Line(START, START)
        line.write(rows(0, hi))
        line.cut(cut)
        return line

    assert not due(Line(START, START), 1e9, 2000, 50, 1 << 20), "nothing to commit"
    assert not due(line_with(10, 10), 100, 2000, 50, 1 << 20)
    assert due(line_with(10, 10), 2000, 2000, 50, 1 << 20)
    assert due(line_with(10, END), 0, 2000, 50, 1 << 20)
    assert due(line_with(10, 50), 0, 2000, 50, 1 << 20), "sources stand at half of their window"
    assert due(line_with(10, 10), 0, 2000, 10**6, 100), "bytes"
