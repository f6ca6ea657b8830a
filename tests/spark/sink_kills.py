"""Kills over the life of a Spark sink, at random moments, from a seed: the table equals the oracle, each row once.

A durable run writes a few thousand rows in many small commits. What is killed (SIGKILL), drawn from the seed:

- ``java``: Spark's driver; the sink starts another one and makes the open commit again;
- ``replica``: the sink's process; the kernel ends its Java process with it, and a new incarnation goes on;
- ``both``: the two at once;
- ``all``: every process of the run, which is then resumed.

The moment is drawn too: some commits later and a little, or just after a while, which may be while Spark starts, while
a new incarnation looks at the table, or amid a commit. After each death of everything, all that the manifest counts
must be there. The oracle is an undisturbed run of the same topology that writes CSV. Run as a program
(``scripts/chaos_spark``) this does any number of kills, in as many runs as they take.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.cluster.kit import Running, run, running

TOPOLOGY = """\
name: killed
durable: state
window: 2000
sources:
  made: {generate: {n: counter, w: {choice: [red, green, blue]}, x: {float: [0, 1]}}, count: COUNT}
operators:
  few: {input: made, filter: w != blue}
sinks:
  table: {input: few, spark: parquet, with_id: true, commit_every: 100ms, master: "local[2]"}
"""
COUNT = 40_000
WHAT = ("java", "replica", "both", "all")
COMMITS = (0, 4)
LITTLE_S = 0.4
WHILE_S = 5.0
"""How long a while may be: about as long as Spark takes to start."""
WITHIN_S = 150.0


def oracle(folder: Path, count: int = COUNT) -> pa.Table:
    """What the table has to hold."""
    folder.mkdir(parents=True)
    (folder / "calm.yaml").write_text(_topology(count).replace("durable: state\n", ""))
    run("run", "calm.yaml", "--sink", "csv", cwd=folder).ok()
    names = pyarrow.csv.ReadOptions(column_names=["n", "w", "x"])
    return pyarrow.csv.read_csv(folder / "out" / "few.csv", read_options=names)


class Killed:
    """A run that is killed again and again until it comes to its end."""

    def __init__(self, folder: Path, chance: random.Random, count: int = COUNT) -> None:
        self._folder = folder
        self._chance = chance
        self._table = folder / "out" / "table"
        self.done: list[str] = []
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(_topology(count))

    def ended(self, kills: int) -> None:
        """Run to the end, with this many kills if there is the time for them."""
        resume: list[str] = []
        while True:
            with running("run", "job.yaml", "--quiet", *resume, cwd=self._folder) as command:
                prior = None
                while prior != "all" and len(self.done) < kills and self._strike(command, prior):
                    prior = self.done[-1]
                if prior != "all":
                    command.ended(WITHIN_S).ok()
                    return
            self._counted_is_there()
            resume = ["--resume"]

    def _strike(self, command: Running, prior: str | None) -> bool:
        """Kill something at some moment; False: the run was over before. ``prior``: the last that this life bore."""
        what = self._chance.choice(WHAT)
        commits, little = self._chance.randint(*COMMITS), self._chance.uniform(0, LITTLE_S)
        late, pause = self._chance.random() < 0.5, self._chance.uniform(0, WHILE_S)
        fails = prior == "java"  # Nobody believes in a Spark that dies again and again and never commits anything.
        if late and not fails:
            time.sleep(pause)
        elif not self._more_commits(command, commits + fails):
            return False
        time.sleep(little)
        tree = _tree(command)
        java = [process for process in tree if _is_java(process)]
        victims = {
            "java": java,
            "replica": [process.parent() for process in java],
            "both": [one for process in java for one in (process, process.parent())],
            # Everything at once, or the command alone: then nobody outlives it.
            "all": tree if late else tree[:1],
        }[what]
        if command.process.poll() is not None:
            return False
        if not victims or (what == "all" and not list((self._folder / "state").glob("*"))):
            return self._strike(command, prior)
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                if process is not None:
                    process.kill()
        self.done.append(what)
        if what == "all":
            command.process.wait(WITHIN_S)
            _, left = psutil.wait_procs(tree, timeout=WITHIN_S)
            assert not left, f"outlived their run: {left}"
        return True

    def _more_commits(self, command: Running, count: int) -> bool:
        """Wait for so many further commits; False: the run is over."""
        wanted = len(self._records()) + count
        deadline = time.monotonic() + WITHIN_S
        while len(self._records()) < wanted:
            assert time.monotonic() < deadline, f"no {count} commits within {WITHIN_S:g} s\n{command.err.text}"
            if command.process.poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def _records(self) -> list[Path]:
        return sorted((self._table / "_dadstorm").glob("*-*.json"))

    def _counted_is_there(self) -> None:
        """Every commit of the manifest is in the table, whole, whatever else there is."""
        for record in self._records():
            commit = json.loads(record.read_text())
            if commit["folder"] is not None:
                files = sorted((self._table / commit["folder"]).glob("*.parquet"))
                assert sum(pq.read_metadata(file).num_rows for file in files) == commit["rows"], commit

    def check(self, wanted: pa.Table) -> None:
        """The table holds the oracle's rows, each once, in the order of their IDs, and verifies."""
        got = ds.dataset(self._table, format="parquet", partitioning="hive").to_table()
        seqs = got.column("_seq").to_pylist()
        assert seqs == sorted(set(seqs)), "not in order, or not each row once"
        assert got.select(["n", "w", "x"]).equals(wanted), "not the oracle's rows"
        run("verify", "out/table", cwd=self._folder).ok()


def _topology(count: int) -> str:
    return TOPOLOGY.replace("COUNT", str(count))


def _tree(command: Running) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        front = psutil.Process(command.process.pid)
        return [front, *front.children(recursive=True)]
    return []


def _is_java(process: psutil.Process) -> bool:
    """Whether it is Spark's Java process, and not the one that only finds out how to start it."""
    with suppress(psutil.Error):
        return process.name() == "java" and "pyspark-shell" in " ".join(process.cmdline())
    return False


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    try:
        yield folder
    except BaseException:
        print(f"kept: {folder}")
        raise
    shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos_spark", description="Kill a Spark sink; compare its table.")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with _scratch() as folder:
        wanted = oracle(folder / "calm")
        chance, kills, begun = random.Random(options.seed), 0, time.monotonic()
        for number in range(1, options.kills + 1):
            victim = Killed(folder / str(number), chance)
            victim.ended(options.kills - kills)
            victim.check(wanted)
            kills += len(victim.done)
            print(f"run {number}: {len(victim.done)} kills ({', '.join(victim.done)}): each row once", flush=True)
            if kills >= options.kills:
                break
        print(f"seed {options.seed}: {kills} kills in {time.monotonic() - begun:.0f} s, the table equals the oracle")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
