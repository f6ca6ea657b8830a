"""The Parquet sink: the same bytes for all batchings and commits, resume at every mark, folders that are not ours."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dadstorm.core.line import END
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator
from dadstorm.sinks import parquet
from tests.unit.sink_kit import FIELDS, WORDS, open_sink, rows_of, sink_operator, write_all

TOTAL = 1_000


def value(i: int) -> tuple:
    moment = datetime(2026, 1, 1) + timedelta(milliseconds=i)
    return (None if i % 11 == 0 else "x" * (i % 40), i if i % 5 else None, i / 3, i % 2 == 0, moment)


ROWS = rows_of([value(i) for i in range(TOTAL)], FIELDS)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 300 rows in groups of at most 64 rows or 1,000 bytes of text: every boundary is met in 1,000 rows."""
    monkeypatch.setattr(parquet, "PART_ROWS", 300)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 64)
    monkeypatch.setattr(parquet, "GROUP_TEXT_BYTES", 1_000)
    monkeypatch.setattr(parquet, "SPOOL_ROWS", 16)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return sink_operator("parquet", tmp_path / "out.parquet", FIELDS)


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    """What one write of all rows and one commit leave."""
    write_all(sink_operator("parquet", tmp_path / "once", FIELDS), ROWS)
    return files(tmp_path / "once")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_parts_of_equal_rows_hold_the_rows_in_order(expected: dict[str, bytes], tmp_path: Path) -> None:
    assert sorted(expected) == [f"part-00000{i}.parquet" for i in range(4)]
    parts = [pq.ParquetFile(tmp_path / "once" / name) for name in sorted(expected)]
    assert [part.metadata.num_rows for part in parts] == [300, 300, 300, 100]
    table = ds.dataset(tmp_path / "once").to_table()
    assert table.schema.equals(ROWS.data.schema)
    assert table.equals(pa.Table.from_batches([ROWS.data]))


def test_row_groups_end_at_their_row_or_byte_limit(expected: dict[str, bytes], tmp_path: Path) -> None:
    meta = pq.ParquetFile(tmp_path / "once" / "part-000000.parquet").metadata
    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    weights = [len(value(i)[0] or "") for i in range(300)]
    for low, high in pairwise(ends[:-1]):
        text = sum(weights[low:high])
        assert high - low == 64 or (text >= 1_000 and text - weights[high - 1] < 1_000)
    assert sum(sizes) == 300 and len(sizes) > 4


@pytest.mark.parametrize("seed", range(20))
def test_bytes_do_not_depend_on_batches_or_commits(
    operator: Operator, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    cuts = chance.sample(range(TOTAL), chance.choice([1, 5, 50, 999]))
    commits = chance.sample(range(TOTAL), chance.choice([0, 3, 40]))
    write_all(operator, ROWS, cuts, commits)
    assert files(tmp_path / "out.parquet") == expected


@pytest.mark.parametrize("seed", range(20))
def test_resume_at_any_committed_mark_ends_with_the_same_bytes(
    operator: Operator, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    """Incarnations that die at random places, each resumed at its newest mark or an older one, as a lost
    acknowledgement would have it; now and then a dying process leaves a torn batch at the end of its spool."""
    chance = random.Random(seed)
    first = open_sink(operator)
    marks = [(0, first.mark())]
    first.close()
    while True:
        del marks[chance.randrange(1, len(marks) + 1) :]
        cut, mark = marks[-1]
        sink = open_sink(operator, mark=mark, cut=cut)
        assert (sink.committed, sink.mark()) == (cut, mark)
        for _ in range(chance.randrange(1, 12)):
            step = min(cut + chance.randrange(1, 120), TOTAL)
            sink.write(ROWS.slice(cut, step))
            cut = step
            if chance.random() < 0.7:
                sink.commit(cut)
                marks.append((cut, sink.mark()))
        if cut == TOTAL and chance.random() < 0.5:
            sink.commit(END)
            sink.close()
            break
        sink.close()
        for spool in (tmp_path / "out.parquet").glob("*.spool"):
            spool.write_bytes(spool.read_bytes() + chance.randbytes(chance.choice([0, 0, 5, 40])))
    assert files(tmp_path / "out.parquet") == expected


def test_resume_behind_the_end_takes_the_rows_from_the_finished_part(
    operator: Operator, expected: dict[str, bytes], tmp_path: Path
) -> None:
    sink = open_sink(operator)
    sink.write(ROWS.slice(0, 350))
    sink.commit(350)
    mark = sink.mark()
    sink.write(ROWS.slice(350, TOTAL))
    sink.commit(END)
    sink.close()
    again = open_sink(operator, mark=mark, cut=350)
    assert sorted(files(tmp_path / "out.parquet")) == ["_part-000001.spool", "_part-000001.tmp", "part-000000.parquet"]
    again.write(ROWS.slice(350, TOTAL))
    again.commit(END)
    again.close()
    assert files(tmp_path / "out.parquet") == expected


def test_a_plain_reader_sees_whole_parts_only(operator: Operator, tmp_path: Path) -> None:
    sink = open_sink(operator)
    sink.write(ROWS.slice(0, 450))
    sink.commit(450)
    assert ds.dataset(tmp_path / "out.parquet").count_rows() == 300
    sink.close()


def test_a_lost_spool_or_part_says_so(operator: Operator, tmp_path: Path) -> None:
    sink = open_sink(operator)
    sink.write(ROWS.slice(0, 450))
    sink.commit(450)
    sink.close()
    (tmp_path / "out.parquet" / "_part-000001.spool").unlink()
    with pytest.raises(RunFailed, match="expected 150 rows of part 1 in its spool as committed, found 0 rows"):
        open_sink(operator, mark=sink.mark(), cut=450)
    (tmp_path / "out.parquet" / "part-000000.parquet").unlink()
    with pytest.raises(RunFailed, match=r"expected 1 whole parts as committed, found no part-000000\.parquet"):
        open_sink(operator, mark=sink.mark(), cut=450)


def test_no_rows_leave_one_empty_part_with_the_columns(operator: Operator, tmp_path: Path) -> None:
    write_all(operator, ROWS.slice(0, 0))
    assert sorted(files(tmp_path / "out.parquet")) == ["part-000000.parquet"]
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["s", "i", "f", "b", "t"]


def test_a_full_last_part_is_followed_by_none(operator: Operator, tmp_path: Path) -> None:
    write_all(operator, ROWS.slice(0, 600))
    assert sorted(files(tmp_path / "out.parquet")) == ["part-000000.parquet", "part-000001.parquet"]


def test_the_id_goes_in_front_on_request(tmp_path: Path) -> None:
    write_all(sink_operator("parquet", tmp_path / "o", WORDS, with_id=True), rows_of([("a", 1)]))
    assert pq.read_table(tmp_path / "o").to_pylist() == [{"_seq": 0, "_sub": 0, "word": "a", "n": 1}]


def test_an_earlier_run_is_replaced_but_a_strangers_file_is_not(operator: Operator, tmp_path: Path) -> None:
    write_all(operator, ROWS)
    write_all(operator, ROWS.slice(0, 10))
    assert sorted(files(tmp_path / "out.parquet")) == ["part-000000.parquet"]
    (tmp_path / "out.parquet" / "holiday.jpg").write_bytes(b"sea")
    with pytest.raises(RunFailed, match=r"sink out: cannot write .*found 'holiday\.jpg' in it; move it away"):
        open_sink(operator)
    assert sorted(files(tmp_path / "out.parquet")) == ["holiday.jpg", "part-000000.parquet"]


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("mine")
    with pytest.raises(RunFailed, match="a file stands where a folder is needed"):
        open_sink(sink_operator("parquet", tmp_path / "o"))
    assert (tmp_path / "o").read_text() == "mine"
