"""The Spark source: the same input gives the same rows the same seqs, however it is read and whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from dadstorm.errors import UserError
from dadstorm.spark.frames import Reading, write_rows
from dadstorm.spark.session import Session, Settings, open_session
from tests.cluster.kit import Running, files_in, run, running, until
from tests.spark.test_spark_kills import java_of

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

FIELDS = (("id", "int"), ("name", "string"))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    conf = {"spark.sql.files.maxPartitionBytes": "2k", "spark.sql.shuffle.partitions": "3"}
    one = open_session(Settings("test", "local[2]", conf), str(tmp_path_factory.mktemp("spark")))
    yield one
    one.close()


def sales(folder: Path, files: int = 3, rows: int = 1000) -> list[tuple[int, str]]:
    """A folder of CSV files, and what is in it by file and position."""
    folder.mkdir()
    expected = []
    for number in range(files):
        part = [(i * 7919 % 1000, f"name {number}-{i}") for i in range(rows)]
        lines = "".join(f"{key},{name}\n" for key, name in part)
        (folder / f"{number}.csv").write_text(f"id,name\n{lines}")
        expected += part
    return expected


def rows_in(folder: Path) -> list[tuple[object, ...]]:
    found = [pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    return [tuple(row.values()) for row in pa.concat_tables(found).to_pylist()]


def read(session: Session, folder: Path, reading: Reading) -> list[tuple[object, ...]]:
    write_rows(session, reading, str(folder / "rows"))
    return rows_in(folder / "rows")


def test_files_are_read_by_path_and_position_though_spark_splits_them(tmp_path: Path, session: Session) -> None:
    expected = sales(tmp_path / "sales")
    reading = Reading("csv", (str(tmp_path / "sales"),), FIELDS, options={"header": "true"})
    assert read(session, tmp_path, reading) == [(str(key), name) for key, name in expected]


def test_named_columns_come_first_and_then_all_fields(tmp_path: Path, session: Session) -> None:
    expected = sales(tmp_path / "sales")
    schema = "id INT, name STRING"
    reading = Reading(
        "csv", (str(tmp_path / "sales"),), FIELDS, schema=schema, order_by=("id",), options={"header": "true"}
    )
    assert read(session, tmp_path, reading) == sorted(expected)


def test_a_query_and_a_table_are_read_by_all_fields(tmp_path: Path, session: Session) -> None:
    values = "VALUES (2, 'b', -0.0D), (1, 'c', 1D), (2, 'a', 0.0D), (2, 'a', -0.0D), (2, 'a', -0.0D) AS t(id, name, x)"
    fields = (*FIELDS, ("x", "float"))
    expected = [(1, "c", 1.0), (2, "a", -0.0), (2, "a", -0.0), (2, "a", 0.0), (2, "b", -0.0)]
    found = read(session, tmp_path, Reading(None, (), fields, sql=f"SELECT * FROM {values}"))
    assert str(found) == str(expected)
    session.spark.sql(f"SELECT * FROM {values}").createOrReplaceTempView("here")
    assert str(read(session, tmp_path, Reading(None, (), fields, table="here"))) == str(expected)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (Reading("parkett", ("/tmp",), FIELDS), "parkett"),
        (Reading(None, (), FIELDS, table="nowhere"), "nowhere"),
        (Reading(None, (), FIELDS, sql="SELECT 1 AS id, array(1) AS name"), 'column "name" is array<int>'),
        (Reading(None, (), FIELDS, sql="SELEKT 1"), "SELEKT"),
    ],
)
def test_what_spark_cannot_read_is_told_on_one_line(
    reading: Reading, expected: str, tmp_path: Path, session: Session
) -> None:
    with pytest.raises(UserError) as caught:
        write_rows(session, reading, str(tmp_path / "rows"))
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def started(command: Running) -> psutil.Process:
    """Spark's Java process, as soon as it is the replica's child: before, a script looks for what to start."""
    def there() -> bool:
        assert command.process.poll() is None, command.err.text
        found = java_of(command)
        return found is not None and "org.apache.spark.launcher.Main" not in found.cmdline()

    until(there, "a Java process")
    java = java_of(command)
    assert java is not None
    return java


TOPOLOGY = """\
window: 1000
durable: state
sources:
  s: {spark: csv, path: sales, fields: [id:int, name], options: {header: true}, master: "local[2]", SLICES}
sinks:
  out: {input: s, csv: , with_id: true}
"""


def in_folder(folder: Path, slices: str) -> list[str]:
    """A folder with the table and the topology; what the output has to be."""
    folder.mkdir()
    expected = sales(folder / "sales", rows=2000)
    (folder / "job.yaml").write_text(TOPOLOGY.replace("SLICES", slices))
    return [f"{seq},0,{key},{name}" for seq, (key, name) in enumerate(expected)]


def test_java_is_killed_while_it_stages_and_the_replica_when_the_table_has_changed(tmp_path: Path) -> None:
    expected = in_folder(tmp_path / "one", "slices: 1")
    out = tmp_path / "one" / "out" / "out.csv"
    with running("run", "job.yaml", cwd=tmp_path / "one") as command:
        java = started(command)
        replica = java.parent()
        assert replica is not None
        java.kill()
        until(lambda: out.exists() and out.stat().st_size > 1000, "some rows")
        (tmp_path / "one" / "sales" / "0.csv").write_text("id,name\n1,changed\n")
        replica.kill()
        assert command.ended().ok().files["out.csv"].decode().splitlines() == expected
    assert not [name for name in files_in(tmp_path / "one" / "state") if name.endswith(".tmp")]


def test_seqs_are_the_same_with_three_slices_at_three_replicas(tmp_path: Path) -> None:
    expected = in_folder(tmp_path / "three", "slices: 3, replicas: 3")
    assert run("run", "job.yaml", cwd=tmp_path / "three").ok().files["out.csv"].decode().splitlines() == expected


STREAM = """\
window: 1000
sources:
  s: {spark: text, path: in, fields: [value], stream: available-now,
      options: {maxFilesPerTrigger: 2}, master: "local[2]"}
sinks:
  out: {input: s, csv: , with_id: true}
"""


def test_the_batches_of_a_stream_come_once_though_java_and_the_replica_are_killed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(10):
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{number}-{i}\n" for i in range(500)))
    (tmp_path / "job.yaml").write_text(STREAM)
    out = tmp_path / "out" / "out.csv"
    with running("run", "job.yaml", cwd=tmp_path) as command:
        until(lambda: out.exists() and out.stat().st_size > 1000, "some rows")
        java = started(command)
        replica = java.parent()
        assert replica is not None
        java.kill()
        replica.kill()
        rows = [line.split(",") for line in command.ended().ok().files["out.csv"].decode().splitlines()]
    assert sorted(row[2] for row in rows) == sorted(f"{number}-{i}" for number in range(10) for i in range(500))
    assert [int(row[0]) for row in rows] == sorted({int(row[0]) for row in rows})
