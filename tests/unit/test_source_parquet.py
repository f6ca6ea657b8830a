"""Parquet sources: row groups are the blocks, columns are found by name, values must fit their field's type."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dadstorm.core.kernel import RecordError
from dadstorm.core.line import END
from dadstorm.errors import RunFailed
from dadstorm.plan import Field, Operator, Replica, Routing
from dadstorm.sources.parquet import ParquetReader

FIELDS = (Field("n", "int"), Field("name"))


def source(*paths: Path, fields: tuple[Field, ...] = FIELDS, slices: int = 1, on_error: Any = "fail") -> Operator:
    params = {"type": "file", "format": "parquet", "paths": [str(path) for path in paths]}
    return Operator("in", "source", params, (), fields, slices, (Replica("here"),), Routing(), on_error=on_error)


def everything(reader: ParquetReader, max_rows: int = 1 << 20) -> tuple[list[Any], list[Any]]:
    rows: list[Any] = []
    dead: list[Any] = []
    hi = 0
    while hi < END:
        records = reader.read(max_rows, 1 << 30)
        assert len(records.rows) <= max_rows and records.hi >= hi
        for part, out in ((records.rows, rows), (records.dead, dead)):
            if part is not None:
                assert all(hi <= seq < records.hi for seq in part.seq.tolist())
                out += zip(part.seq.tolist(), (tuple(r.values()) for r in part.data.to_pylist()), strict=True)
        hi = records.hi
    reader.close()
    return rows, dead


def read(operator: Operator, slice_index: int = 0, **how: Any) -> tuple[list[Any], list[Any]]:
    return everything(ParquetReader(operator, slice_index, **how))


@pytest.fixture
def people(tmp_path: Path) -> list[Path]:
    """Two files of 1,000 and 500 rows in row groups of 130, columns in another order, one more than asked for."""
    paths = []
    for i, count in enumerate((1000, 500)):
        numbers = list(range(i * 1000, i * 1000 + count))
        table = pa.table({"name": [f"name {n}" for n in numbers], "x": numbers, "n": pa.array(numbers, pa.int32())})
        paths.append(tmp_path / f"{i}.parquet")
        pq.write_table(table, paths[-1], row_group_size=130)
    return paths


def test_rows_are_numbered_over_all_files_for_any_number_of_slices(people: list[Path]) -> None:
    expected = [(n, (n, f"name {n}")) for n in range(1500)]
    assert read(source(*people)) == (expected, [])
    assert everything(ParquetReader(source(*people), 0, batch_rows=33), max_rows=7)[0] == expected
    for slices in (2, 3, 20):
        parts = [read(source(*people, slices=slices), s)[0] for s in range(slices)]
        assert sorted(row for part in parts for row in part) == expected


def test_resume_at_any_cut_gives_the_tail(people: list[Path]) -> None:
    operator = source(*people, slices=2)
    whole, _ = read(operator, 1)
    reader = ParquetReader(operator, 1, batch_rows=50)
    hi = 0
    while hi < END:
        hi = reader.read(40, 1 << 30).hi
        for cut in (hi, max(0, hi - 1)):
            if cut < END:
                tail = read(operator, 1, cut=cut, mark=reader.mark(min(cut, hi)))
                assert tail[0] == [row for row in whole if row[0] >= cut]
    assert read(operator, 1, cut=END, mark=reader.mark(END)) == ([], [])
    reader.close()


def test_types_are_brought_to_the_fields(tmp_path: Path) -> None:
    when = datetime.datetime(2024, 5, 31, 12, 30)
    table = pa.table(
        {
            "i": pa.array(["1", " 2 ", ""]),
            "f": pa.array([1, None, 2**60], pa.int64()),
            "s": pa.array(["a", "b", "a"]).dictionary_encode(),
            "t": pa.array([when, None, when], pa.timestamp("ms", "Europe/Lisbon")),
            "d": pa.array([when.date(), None, None], pa.date32()),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    fields = (Field("i", "int"), Field("f", "float"), Field("s"), Field("t", "timestamp"), Field("d", "timestamp"))
    rows, _ = read(source(path, fields=fields))
    assert rows[0] == (0, (1, 1.0, "a", when, datetime.datetime(2024, 5, 31)))
    assert rows[1:] == [(1, (2, None, "b", None, None)), (2, (None, 2.0**60, "a", when, None))]


def test_values_that_do_not_fit_follow_on_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": pa.array([1, 2**63, 3], pa.uint64()), "name": ["a", "b", "c"]}), path)
    with pytest.raises(RecordError, match=r"a\.parquet:row 2: field 'n': expected an integer of 64 bits"):
        read(source(path))
    kept = [(0, (1, "a")), (2, (3, "c"))]
    assert read(source(path, on_error="skip")) == (kept, [])
    rows, dead = read(source(path, on_error="dead-letter"))
    assert rows == kept and [(seq, letter[0]) for seq, letter in dead] == [(1, f"{path}:row 2")]


def test_files_that_cannot_be_used_are_named(tmp_path: Path, people: list[Path]) -> None:
    with pytest.raises(RunFailed, match=r"nowhere.*no such file"):
        read(source(tmp_path / "nowhere.parquet"))
    with pytest.raises(RunFailed, match=r"0\.parquet: expected a column 'y', found: name, x, n"):
        read(source(people[0], fields=(Field("y"),)))
    with pytest.raises(RunFailed, match="column 'n' is of type int32, not readable as bool"):
        read(source(people[0], fields=(Field("n", "bool"),)))
    data = people[0].read_bytes()
    for damaged in (b"not parquet", b"", data[: len(data) // 2], b"x" * 4000 + data[4000:]):
        path = tmp_path / "damaged.parquet"
        path.write_bytes(damaged)
        with pytest.raises(RunFailed, match=r"source 'in': .*damaged\.parquet: cannot be read as Parquet"):
            read(source(path))
