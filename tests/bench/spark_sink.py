"""How fast the Spark sink commits: rows per second with commits of 100,000 and of 1,000,000 rows, embedded Spark.

    scripts/bench spark_sink [--rounds 8] [--cores 2]

One commit after the other, each begun when the one before is in the table: what is measured is everything between the
sink's getting the rows and ``committed``. Rows have a word, an integer and a float. The first commits are not counted:
Java is still compiling. CPU time, of this process and of Java, tells what a commit costs on a machine that is busy.
"""

from __future__ import annotations

import argparse
import select
import statistics
import tempfile
import time

import numpy as np
import psutil
import pyarrow as pa

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.plan import Field, Operator, Plan, Replica, Routing
from dadstorm.sinks.spark import SparkSink

GOALS = {100_000: 150_000, 1_000_000: 600_000}
WARM_UP = 4
FIELDS = (Field("word"), Field("n", "int"), Field("x", "float"))


def made(count: int) -> pa.RecordBatch:
    chance = np.random.default_rng(7)
    words = pa.array([f"word{n}" for n in range(5000)]).take(pa.array(chance.integers(0, 5000, count)))
    return pa.record_batch([words, pa.array(chance.integers(0, 1000, count)), pa.array(chance.random(count))],
                           names=["word", "n", "x"])  # fmt: skip


def cpu_s() -> float:
    """What this process and those below it have computed so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def commits(folder: str, count: int, rounds: int, cores: int) -> list[tuple[float, float]]:
    """Seconds of each commit, by the clock and of CPU; the start is part of the first."""
    params = {"format": "spark", "writes": "parquet", "path": f"{folder}/table", "master": f"local[{cores}]",
              "commit_every_ms": 100}  # fmt: skip
    operator = Operator("table", "sink", params, (), FIELDS, 1, (Replica("here"),), Routing())
    plan = Plan("bench", (operator,), window_rows=2 * count, window_bytes=1 << 30)
    sink = SparkSink(operator, plan, mark=None, cut=0, run="bench", folder=folder)
    data = made(count)
    times = []
    try:
        for number in range(WARM_UP + rounds):
            seq = np.arange(number * count, (number + 1) * count, dtype=np.int64)
            begun, computed = time.monotonic(), cpu_s()
            sink.write(Rows(seq, np.zeros(count, dtype=np.int64), data))
            sink.commit((number + 1) * count)
            while sink.committed < (number + 1) * count:
                select.select(sink.wake_fds(), [], [], 1.0)
            times.append((time.monotonic() - begun, cpu_s() - computed))
        sink.commit(END)
        while sink.committed < END:
            select.select(sink.wake_fds(), [], [], 1.0)
    finally:
        sink.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    for count, goal in GOALS.items():
        with tempfile.TemporaryDirectory() as folder:
            times = commits(folder, count, options.rounds, options.cores)
        steady = [seconds for seconds, _ in times[WARM_UP:]]
        median = statistics.median(steady)
        cpu = statistics.median(seconds for _, seconds in times[WARM_UP:])
        print(
            f"commits of {count:,} rows: median {median:.2f} s, {count / median:,.0f} rows/s (goal {goal:,}); "
            f"best {count / min(steady):,.0f}, worst {count / max(steady):,.0f}; "
            f"CPU {cpu:.2f} s a commit; the first took {times[0][0]:.1f} s, Spark's start included", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
