"""A sink's table under a name of Spark's catalog, and rows that a later run adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from dadstorm.core.line import END
from dadstorm.errors import UserError
from dadstorm.spark.catalog import CatalogTable, settings
from dadstorm.spark.commits import Commit, commit_name
from dadstorm.spark.session import Session, Settings, open_session
from dadstorm.spark.table import Header
from tests.cluster.kit import run

pytestmark = [pytest.mark.spark]

TOPOLOGY = """\
name: towns
sources:
  made: {generate: {n: counter, town: {choice: [Faro, Porto]}}, count: 100}
sinks:
  all: {input: made, spark: parquet, table: towns, mode: append, with_id: true, partition_by: town, master: "local[1]"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two runs of the topology have written."""
    folder = tmp_path_factory.mktemp("towns")
    (folder / "job.yaml").write_text(TOPOLOGY)
    for _ in range(2):
        run("run", "job.yaml", "--quiet", cwd=folder, within_s=280).ok()
    return folder


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    """Of somebody else who uses the catalog."""
    conf = settings({}, str(folder / "out" / "_catalog"))
    one = open_session(Settings("reader", "local[1]", conf), str(folder))
    yield one
    one.close()


def test_what_two_runs_have_written_is_found_by_its_name(folder: Path, session: Session) -> None:
    rows = session.spark.sql("SELECT substr(commit, 1, 7) AS run, n, town FROM towns ORDER BY run, n").collect()
    assert [row.n for row in rows] == [*range(100)] * 2
    assert {row.run for row in rows[:100]} == {"0000000"} and {row.run for row in rows[100:]} == {"r00001-"}
    assert session.spark.table("towns").columns == ["_seq", "_sub", "_epoch", "n", "commit", "town"]
    run("verify", "out/all", cwd=folder).ok()


def test_the_catalog_is_put_right_where_it_knows_too_much_or_too_little(folder: Path, session: Session) -> None:
    header = Header("t", "s", "csv", (("n", "int"),), False, 4)
    path = folder / "out" / "other"
    commits = [Commit(lo, hi, 1, "", (), f"commit={commit_name(0, lo, hi)}") for lo, hi in ((0, 5), (5, 9), (9, END))]
    table = CatalogTable("others", str(path), header)
    for number, commit in enumerate(commits):
        (path / str(commit.folder)).mkdir(parents=True)
        (path / str(commit.folder) / "part-0.csv").write_text(f"{number}\n")
    table.agree(session, [], anew=True)

    def seen() -> list[int]:
        return sorted(row.n for row in session.spark.table("others").collect())

    assert seen() == []
    table.add(session, commits[0])
    assert seen() == [0]
    table.agree(session, commits, anew=False)
    assert seen() == [0, 1, 2]
    table.drop(session, commits[2:])
    assert seen() == [0, 1]
    table.agree(session, commits[:1], anew=False)
    assert seen() == [0]
    assert len(list(path.glob("commit=*/part-0.csv"))) == 3


def test_a_name_that_is_taken_and_a_database_that_is_missing(folder: Path, session: Session) -> None:
    header = Header("t", "s", "parquet", (("n", "int"),), False, 4)
    with pytest.raises(UserError, match=r"table towns is in the catalog already .* another name"):
        CatalogTable("towns", str(folder / "elsewhere"), header).check(session)
    with pytest.raises(UserError, match="the catalog has no database nowhere"):
        CatalogTable("nowhere.towns", str(folder / "elsewhere"), header).check(session)
    CatalogTable("towns", str(folder / "out" / "all"), header).check(session)
