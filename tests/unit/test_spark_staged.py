"""Staged rows and the columns they come from, without Spark."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dadstorm.errors import RunFailed
from dadstorm.plan import Field
from dadstorm.spark.batches import Batches, number_of
from dadstorm.spark.frames import READABLE, Reading, misfits
from dadstorm.spark.staged import Staged

READING = Reading("csv", ("/data/sales",), (("id", "int"),))


def staged_in(folder: Path, reading: Reading = READING) -> Staged:
    return Staged(str(folder), "sales", reading, fsync=True)


def kept(folder: Path) -> Staged:
    """Two files, as Spark would leave them, and somebody's half."""
    staged = staged_in(folder)
    scratch = Path(staged.scratch(1))
    scratch.mkdir()
    for name in ("part-00001-b.parquet", "part-00000-b.parquet", ".part-00000-b.parquet.crc"):
        (scratch / name).write_text(name)
    Path(staged.scratch(2)).mkdir()
    staged.keep(str(scratch))
    return staged


def test_rows_appear_whole_in_the_order_of_their_files_and_halves_go(tmp_path: Path) -> None:
    assert staged_in(tmp_path).files() is None
    staged = kept(tmp_path)
    assert [Path(path).name for path in staged.files() or ()] == ["part-00000-b.parquet", "part-00001-b.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["sales.rows"]
    assert staged_in(tmp_path).files() == staged.files()


def test_rows_of_another_source_and_rows_that_changed_are_refused(tmp_path: Path) -> None:
    kept(tmp_path)
    other = msgspec.structs.replace(READING, paths=("/data/other",))
    with pytest.raises(RunFailed, match=r"sales\.rows holds what was read from /data/sales.*remove it"):
        staged_in(tmp_path, other).files()
    (tmp_path / "sales.rows" / "part-00001-b.parquet").write_text("")
    with pytest.raises(RunFailed, match=r"has changed: part-00001-b\.parquet had 20 bytes"):
        staged_in(tmp_path).files()


def test_one_stages_while_the_others_wait(tmp_path: Path) -> None:
    with staged_in(tmp_path).lock() as mine:
        assert mine
        with staged_in(tmp_path).lock() as other:
            assert not other
    with staged_in(tmp_path).lock() as mine:
        assert mine


def test_columns_that_do_not_fit_the_fields_are_all_told() -> None:
    columns = {"id": "bigint", "tags": "array<string>", "price": "decimal(10,2)", "at": "date"}
    fields = [Field("id", "string"), Field("tags"), Field("pirce", "float"), Field("at", "timestamp")]
    assert misfits(columns, fields, ["id", "day"]) == [
        'there is no column "pirce"; did you mean "price"?',
        'there is no column "day"; there are id, tags, price, at',
        'column "id" is bigint; expected what can be read as string',
        'column "tags" is array<string>; expected what can be read as string',
    ]
    assert misfits(columns, [Field("id", "float"), Field("price", "float")]) == []
    assert all("string" in kinds for kinds in READABLE.values())


def batch_of(folder: Path, number: int, *counts: int) -> Batches:
    """A micro-batch with files of so many rows, in row groups of 7."""
    batches = Batches(str(folder / "batches"), fsync=True)
    scratch = Path(batches.scratch(number))
    scratch.mkdir()
    at = number * 100_000
    for index, rows in enumerate(counts):
        table = pa.table({"n": pa.array(range(at, at + rows), pa.int64())})
        pq.write_table(table, scratch / f"part-{index:05d}-x.parquet", row_group_size=7)
        at += rows
    batches.keep(number, str(scratch))
    return batches


def test_pieces_of_a_batch_tile_its_rows_and_go_on_after_any_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dadstorm.spark.batches.PIECE_ROWS", 10)
    batches = batch_of(tmp_path, 1, 23, 0, 5)
    batch_of(tmp_path, 0)
    assert batches.numbers() == [0, 1] and batches.has(1) and not batches.has(2)
    assert list(batches.pieces(0)) == []
    pieces = list(batches.pieces(1))
    assert [piece.rows for piece in pieces] == [10, 10, 3, 5]
    assert {number_of(piece) for piece in pieces} == {1}
    read = [n for piece in pieces for n in batches.read(piece).column("n").to_pylist()]
    assert read == list(range(100_000, 100_028))
    for index, piece in enumerate(pieces):
        assert list(batches.pieces(1, piece)) == pieces[index + 1 :]
