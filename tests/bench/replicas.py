"""Throughput with the replicas of a slow operator, as section 5.1 of the DADSTORM report measures it.

Three operators in a row; the middle one waits 10 ms for each tuple, as one that asks a server would. One replica
gives 100 tuples a second at best, sixteen give 1600. Tuples are routed at random, so some replica always gets a few
more than its share, and the run lasts until that one is done: hence many tuples for each replica. What counts is the
time from the Start to the end of the last replica, as the event log tells it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchkit.events import seconds_of_work
from benchkit.report import lines, save, say, table, warn_if_busy
from benchkit.workload import run_topology

TOPOLOGY = """
name: replicas
sources:
  made: {{generate: {{n: counter}}, count: {tuples}}}
operators:
  before: {{input: made, filter: n >= 0}}
  slow:
    {{input: before, custom: bench_functions.slow, args: {{seconds: {sleep}}}, fields: [n:int], max_outputs: 1,
     replicas: {replicas}}}
  after:  {{input: slow, filter: n >= 0}}
"""
GOAL = 0.9


def throughput(replicas: int, tuples: int, sleep: float) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        run_topology(TOPOLOGY.format(tuples=tuples, sleep=sleep, replicas=replicas), folder)
        written = (folder / "out" / "after.csv").read_bytes()
        assert written == b"".join(b"%d\n" % number for number in range(tuples)), "the output is wrong"
        return tuples / seconds_of_work(folder / "runs")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench replicas", description=__doc__)
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--tuples", type=int, default=1000, help="for each replica (%(default)s)")
    parser.add_argument("--sleep", type=float, default=0.01, metavar="SECONDS", help="for each tuple (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="for JSON and plots (%(default)s)")
    options = parser.parse_args(arguments)
    warn_if_busy()
    found: dict[int, float] = {}
    for replicas in options.replicas:
        found[replicas] = throughput(replicas, options.tuples * replicas, options.sleep)
        say(f"{replicas} replicas: {found[replicas]:.1f} tuples/s")
    print(f"the middle of three operators waits {options.sleep * 1000:g} ms a tuple (goal: {GOAL:.0%} of the ideal)")
    rows = [
        [f"{replicas}", f"{value:.1f}", f"{value * options.sleep / replicas:.0%}"] for replicas, value in found.items()
    ]
    print(table(["replicas", "tuples/s", "of the ideal"], rows))
    save(options.out, "replicas", {"sleep": options.sleep, "tuples_per_s": found})
    lines(options.out, "replicas", {"replicas": dict(found)}, "tuples/s", ideal=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
