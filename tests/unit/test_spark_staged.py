"""Staged rows and the columns they come from, without Spark."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dadstorm.errors import RunFailed
from dadstorm.plan import Field
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
