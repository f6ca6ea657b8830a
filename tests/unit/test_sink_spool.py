"""The spool: ranges that tile the line, the same rows whenever they are asked for, room again when they were read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Field, Operator, Plan, Replica, Routing
from dadstorm.sinks.spool import SpoolSink
from dadstorm.spark.spool import Gone, Header, Spool, begin, header_in, rows_between

FIELDS = (Field("n", "int"), Field("w"))
HEADER = Header("t", "s", (("n", "int"), ("w", "string")), 4, "ab")


def rows(*seqs: int) -> Rows:
    """Rows whose number is their seq; several of one seq have different subs."""
    subs = [seqs[:i].count(seq) for i, seq in enumerate(seqs)]
    data = pa.record_batch({"n": pa.array(seqs, pa.int64()), "w": [f"w{seq}" for seq in seqs]})
    return Rows(np.array(seqs, np.int64), np.array(subs, np.int64), data)


def sink(folder: Path, *, mark: Any = None, cut: int = START, run: str = "ab", **params: Any) -> SpoolSink:
    given = {"format": "spool", "path": str(folder / "s.spool"), "commit_every_ms": 0, **params}
    operator = Operator("s", "sink", given, (), FIELDS, 1, (Replica("here"),), Routing())
    return SpoolSink(operator, Plan("t", (operator,), span=4), mark=mark, cut=cut, run=run)


def spool_in(folder: Path) -> Spool:
    header = header_in(str(folder / "s.spool"))
    assert header is not None
    return Spool(str(folder / "s.spool"), header)


def seqs_between(spool: Spool, start: int, end: int) -> list[int]:
    found = [rows_between(one.path, start, end, True) for one in spool.between(start, end)]
    return [seq for batches in found for batch in batches for seq in batch.column("_seq").to_pylist()]


def put(one: SpoolSink, cut: int, *seqs: int) -> int:
    if seqs:
        one.write(rows(*seqs))
    one.commit(cut)
    return one.committed


def test_commits_become_ranges_that_tile_the_line_and_those_without_rows_are_part_of_the_next(tmp_path: Path) -> None:
    one = sink(tmp_path)
    assert [put(one, 10, 1, 1, 4), put(one, 20), put(one, 30, 25), put(one, 40), put(one, END)] == [10, 20, 30, 40, END]
    ranges = spool_in(tmp_path).ranges()
    assert [(r.lo, r.hi, r.rows) for r in ranges] == [(0, 10, 3), (10, 30, 1), (30, END, 0)]
    (batch,) = rows_between(ranges[1].path, 0, END, True)
    assert batch.to_pylist() == [{"_seq": 25, "_sub": 0, "_epoch": 6, "n": 25, "w": "w25"}]
    (batch,) = rows_between(ranges[0].path, 2, END, False)
    assert batch.to_pylist() == [{"n": 4, "w": "w4"}]


def test_a_new_incarnation_drops_what_is_there_already_and_goes_on(tmp_path: Path) -> None:
    one = sink(tmp_path)
    put(one, 10, 3)
    mark = one.mark()
    put(one, 20, 15)
    Path(spool_in(tmp_path).folder, f"{20:019d}-{30:019d}-9.arrow.tmp").write_text("half")
    again = sink(tmp_path, mark=mark, cut=10)
    assert [put(again, 18, 15), put(again, 25, 21, 22)] == [18, 25]
    spool = spool_in(tmp_path)
    assert seqs_between(spool, 0, 25) == [3, 15, 21, 22]
    assert len(os.listdir(spool.folder)) == 3
    assert seqs_between(spool, 15, 22) == [15, 21]


def test_one_that_died_before_it_told_anybody_begins_at_the_start_and_writes_nothing_twice(tmp_path: Path) -> None:
    put(sink(tmp_path), 10, 3, 4)
    again = sink(tmp_path)
    put(again, 5, 3, 4)
    put(again, 20, 12)
    assert seqs_between(spool_in(tmp_path), 0, 20) == [3, 4, 12]


def test_what_was_read_is_trimmed_and_stays_known_though_all_of_it_is_gone(tmp_path: Path) -> None:
    one = sink(tmp_path)
    put(one, 10, 3)
    put(one, 20, 15)
    spool = spool_in(tmp_path)
    spool.trim(20)
    assert spool.ranges() == [] and spool.stand() == spool.trimmed() == 20
    again = sink(tmp_path, mark=one.mark(), cut=20)
    put(again, 30, 22)
    assert seqs_between(spool, 20, 30) == [22]
    with pytest.raises(Gone, match=r"rows from 5 up to 30.*up to 20 have been trimmed"):
        spool.between(5, 30)


def test_a_full_spool_makes_its_commits_wait_until_something_was_read(tmp_path: Path) -> None:
    one = sink(tmp_path, keep_bytes=100)
    assert put(one, 10, 3) == 10
    assert [put(one, 20, 15), put(one, 30)] == [10, 10]
    spool_in(tmp_path).trim(10)
    assert one.committed == 30
    assert seqs_between(spool_in(tmp_path), 10, 30) == [15]
    assert put(one, END) == END, "the end has no rows, and is told though nothing was read"


def test_another_run_begins_anew_and_who_trims_the_old_one_does_no_harm(tmp_path: Path) -> None:
    put(sink(tmp_path), 10, 3)
    old = spool_in(tmp_path)
    put(sink(tmp_path, run="cd"), 7, 5)
    old.trim(10)
    assert not Path(old.folder).exists()
    assert seqs_between(spool_in(tmp_path), 0, 7) == [5]
    with pytest.raises(RunFailed, match="expected the spool of this run, found another run's"):
        sink(tmp_path, mark={"reached": 10}, cut=10, run="ef")


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.spool").mkdir()
    (tmp_path / "s.spool" / "mine.txt").write_text("")
    with pytest.raises(UserError, match=r"sink s: .*found 'mine\.txt'"):
        sink(tmp_path)
    (tmp_path / "s.spool" / "mine.txt").unlink()
    begin(str(tmp_path / "s.spool"), Header("u", "s", (), 4, "ab"))
    with pytest.raises(UserError, match="spool of sink s of topology u"):
        sink(tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_limit_gives_each_row_once_in_batches_that_keep_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Batches hold at most so many rows, but for a single seq that has more."""
    folder = tmp_path_factory.mktemp("spool")
    one = sink(folder)
    cut, every = 0, []
    for _ in range(data.draw(st.integers(0, 4))):
        seqs = sorted(data.draw(st.lists(st.integers(cut, cut + 5), max_size=8)))
        cut += 6
        put(one, cut, *seqs)
        every += seqs
    put(one, END)
    spool = spool_in(folder)
    limit = data.draw(st.integers(1, 6))
    start, found = START, []
    while (end := spool.end_within(start, limit)) > start:
        batch = seqs_between(spool, start, end)
        assert len(batch) <= limit or len(set(batch)) == 1
        found += batch
        start = end
    assert start == END and found == every
    assert spool.end_within(START, None) == END
