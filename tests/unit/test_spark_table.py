"""The table's folder and its manifest: what counts, what a death leaves behind, and whose table it is. No Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dadstorm.core.line import END
from dadstorm.errors import UserError
from dadstorm.spark.commits import Commit, chain, commit_name
from dadstorm.spark.table import Header, Table
from dadstorm.spark.verify import verify

HEADER = Header("words", "out", "parquet", (("w", "string"),), True, 16, runs=("a",))


def committed(table: Table, lo: int, hi: int, run: int = 0) -> Commit:
    """A commit with its rows, as Spark would leave them."""
    commit = Commit(lo, hi, 1, "0", (), f"commit={commit_name(run, lo, hi)}", run)
    staged = Path(table.staging) / "out"
    staged.mkdir(parents=True)
    (staged / "part-00000.parquet").write_bytes(b"rows")
    table.add(commit, str(staged), fsync=True)
    return commit


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(str(tmp_path / "table"))
    made.write_header(HEADER)
    return made


def test_the_manifest_gives_back_what_was_written(table: Table) -> None:
    first, second = committed(table, 0, 10), committed(table, 10, END)
    assert table.header() == HEADER
    assert table.commits() == [first, second]
    assert table.folders() == [first.folder, second.folder]
    assert json.loads((Path(table.meta) / f"{first.name}.json").read_text())["rows"] == 1


def test_rows_that_were_moved_in_before_a_death_and_never_counted_are_removed(table: Table) -> None:
    first = committed(table, 0, 10)
    late = committed(table, 10, 20)
    os.remove(Path(table.meta) / f"{late.name}.json")
    (Path(table.meta) / "torn.json.tmp").write_text("{")
    (Path(table.staging) / "out").mkdir()
    table.tidy(table.commits())
    assert table.folders() == [first.folder]
    assert sorted(os.listdir(table.meta)) == [f"{first.name}.json", "staging", "table.json"]
    assert os.listdir(table.staging) == []


def test_a_commit_that_is_made_again_takes_the_place_of_its_rows(table: Table) -> None:
    committed(table, 0, 10)
    folder = Path(table.path) / str(committed(table, 0, 10).folder)
    assert sorted(path.name for path in folder.iterdir()) == ["part-00000.parquet"]


def test_what_is_dropped_leaves_a_whole_chain(table: Table) -> None:
    made = [committed(table, lo, lo + 10) for lo in (0, 10, 20)]
    table.drop(made[1:])
    assert table.commits() == made[:1] and table.folders() == [made[0].folder]
    assert not chain(table.commits(), END).stray


def test_readers_skip_everything_but_rows(table: Table) -> None:
    committed(table, 0, 10)
    assert all(name.startswith(("_", "commit=")) for name in os.listdir(table.path))


@pytest.mark.parametrize(
    ("mode", "topology", "expected"),
    [
        ("overwrite", "words", None),
        ("append", "words", None),
        ("error", "words", "is there already"),
        ("overwrite", "other", "was written by sink out of topology words"),
    ],
)
def test_who_may_write(table: Table, mode: str, topology: str, expected: str | None) -> None:
    problem = table.problem(topology, "out", mode)
    assert problem is None if expected is None else expected in (problem or "")


def test_append_wants_the_same_columns(table: Table) -> None:
    other = Header("words", "out", "parquet", (("n", "int"),), True, 16)
    assert "other columns" in (table.problem("words", "out", "append", other) or "")
    assert table.problem("words", "out", "overwrite", other) is None


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    assert "letters.txt" in (Table(str(tmp_path)).problem("words", "out", "overwrite") or "")
    assert "is a file" in (Table(str(tmp_path / "letters.txt")).problem("words", "out", "overwrite") or "")
    assert "is a file" in (Table(str(tmp_path / "letters.txt" / "t")).problem("words", "out", "overwrite") or "")
    assert os.listdir(tmp_path) == ["letters.txt"]


def test_a_new_folder_needs_a_parent_that_can_be_written(tmp_path: Path) -> None:
    assert Table(str(tmp_path / "a" / "b")).problem("words", "out", "overwrite") is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{", '{"topology": 1}', "[]", '\ud800"'.encode("utf-8", "replace").decode()])
def test_a_broken_manifest_is_told(table: Table, content: str) -> None:
    (Path(table.meta) / "table.json").write_text(content)
    with pytest.raises(UserError, match="cannot be read"):
        table.header()
    assert "cannot be read" in (table.problem("words", "out", "overwrite") or "")


def test_verify_wants_a_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a table that a spark sink wrote"):
        verify(str(tmp_path))


def test_verify_tells_what_is_wrong(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    committed(table, 0, 10)
    stray = Path(table.path) / f"commit={commit_name(0, 10, 20)}"
    stray.mkdir()
    assert verify(table.path) == 1
    told = capsys.readouterr().out
    assert "cannot be read" in told and "is no commit of the manifest" in told and "is not complete" in told
