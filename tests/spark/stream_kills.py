"""Kills at random moments, from a seed, around Spark's data source ``dadstorm``: the query's driver, its Java process,
one of its Python workers, or the replica of the spool. Each row of the topology must come out of the query once.

    python tests/spark/stream_kills.py --kills 15 --seed 7

The spool is small, so the topology goes only as fast as the query reads, and lives as long.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.csv
import pyarrow.dataset as ds

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.cluster.kit import Running, running, until  # noqa: E402

WITHIN_S = 300.0
FAILURES_MAX = 5
BATCH_ROWS = 300
VICTIMS = ("driver", "java", "worker", "replica")
TOPOLOGY = """\
name: job
window: 2000
sources:
  made: {generate: {n: counter, w: {choice: [red, green, blue]}}, count: COUNT}
sinks:
  live: {input: made, spool: , keep: 64KB, commit_every: 50ms}
  plain: {input: made, csv: , with_id: true}
"""


class Query:
    """The user's program, and whoever looks after it: it is started again when it was killed, and when it failed (on a
    busy machine Spark sometimes waits too short a time for its workers)."""

    def __init__(self, folder: Path, max_rows: int | None) -> None:
        self._folder = folder
        self._failures = 0
        self.start(max_rows)

    def start(self, max_rows: int | None) -> None:
        self._max_rows = max_rows
        command = [sys.executable, str(ROOT / "tests" / "spark" / "stream_query.py"), str(self._folder)]
        command += [] if max_rows is None else [str(max_rows)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with open(self._folder / "query.log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def ended(self) -> bool:
        """Whether it came to its end. One that failed is started again, a few times."""
        if self.process.poll() is None:
            return False
        if self.process.returncode:
            self._failures += 1
            assert self._failures <= FAILURES_MAX, (self._folder / "query.log").read_text()[-3000:]
            self.start(self._max_rows)
            return False
        return True

    def children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def find(self, victim: str) -> psutil.Process | None:
        """The process to be killed, if there is one just now."""
        for child in self.children():
            with suppress(psutil.NoSuchProcess):
                line = " ".join(child.cmdline())
                if victim == "java" and child.name() == "java" and "launcher.Main" not in line:
                    return child
                if victim == "worker" and "pyspark" in line and child.name() != "java":
                    return child
        return None

    def kill(self) -> None:
        """Whatever is left of it is gone when this returns."""
        left = self.children()
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        psutil.wait_procs(left, timeout=60)


def batches(folder: Path) -> int:
    return len(list((folder / "result").glob("batch=*"))) if (folder / "result").exists() else 0


def replica_of(folder: Path) -> psutil.Process | None:
    """The process that writes the spool, as the log of the run's events has it."""
    events = (folder / "runs" / "job-1" / "events.log").read_text()
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(int(re.findall(r" live 0 .*process (\d+)", events)[-1]))
    return None


def kills(folder: Path, count: int, seed: int, rows: int, say: bool = False) -> None:
    """All of it; an AssertionError if a row is missing or comes twice."""
    chance = random.Random(seed)
    (folder / "job.yaml").write_text(TOPOLOGY.replace("COUNT", str(rows)))
    with running("run", "job.yaml", "--quiet", cwd=folder) as topology:
        query = Query(folder, BATCH_ROWS)
        try:
            for number in range(count):
                victim = VICTIMS[(number + seed) % len(VICTIMS)]
                # Not before it has read something, so that there is always some progress between two kills.
                wait_for_batches(folder, topology, query, batches(folder) + 1)
                time.sleep(chance.random() * 2)
                if say:
                    print(f"kill {number + 1}: {victim} after {batches(folder)} batches", flush=True)
                if victim == "replica":
                    replica = replica_of(folder)
                    assert replica is not None, "no replica of the spool"
                    replica.kill()
                    continue
                process = query.find(victim)
                if process is not None:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                # Spark survives the death of a worker, or fails: leave it a moment, and end the rest of it.
                time.sleep(chance.random() * 2)
                query.kill()
                query.start(BATCH_ROWS if number + 1 < count else None)
            until(query.ended, "the end of the query", WITHIN_S)
            topology.ended().ok()
        finally:
            query.kill()
    check(folder)


def wait_for_batches(folder: Path, topology: Running, query: Query, wanted: int) -> None:
    def there() -> bool:
        assert not query.ended(), "the query came to its end before the kills did: give it more rows"
        assert topology.process.poll() is None, topology.err.text
        return batches(folder) >= wanted

    until(there, f"{wanted} batches", WITHIN_S)


def check(folder: Path) -> None:
    names = ["_seq", "_sub", "n", "w"]
    plain = pyarrow.csv.read_csv(
        folder / "out" / "plain.csv", read_options=pyarrow.csv.ReadOptions(column_names=names)
    ).to_pylist()
    codes = {"red": 1, "green": 2}
    expected = [(row["_seq"], row["n"], codes[row["w"]]) for row in plain if row["w"] in codes]
    found = ds.dataset(folder / "result", format="parquet", partitioning="hive").to_table()
    got = sorted((row["_seq"], row["n"], row["code"]) for row in found.to_pylist())
    assert got == expected, f"{len(got)} rows came out, expected {len(expected)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="kills around Spark's data source dadstorm, from a seed")
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=60_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills(Path(folder), chosen.kills, chosen.seed, chosen.rows, say=True)
    print(f"{chosen.kills} kills, seed {chosen.seed}: each row once")


if __name__ == "__main__":
    main()
