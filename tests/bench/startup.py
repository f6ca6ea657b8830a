"""From ``dadstorm run`` to the first byte of output, and to the end, of a topology with hardly any input.

W1 on ten lines: four processes are forked, find each other, count eighty words and end. Nothing of that is the work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchkit.data import cache, prepared
from benchkit.report import save, say, table, warn_if_busy
from benchkit.workload import WORKLOADS, run_topology, topology

LINES = 10
GOAL_S = 1.5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=cache())
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="for the JSON (%(default)s)")
    options = parser.parse_args(arguments)
    warn_if_busy()
    workload = WORKLOADS["W1"]
    data = prepared(options.data.resolve(), "W1", LINES)
    costs = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            cost = run_topology(topology(workload, data), Path(folder), output=workload.output)
        assert cost.first_s is not None, "it ended well and wrote nothing"
        costs.append(cost)
        say(f"round {number + 1}/{options.rounds}: first output after {cost.first_s:.2f} s, end {cost.seconds:.2f} s")
    first = sorted(cost.first_s or 0.0 for cost in costs)
    print(f"start-up of W1 on {LINES} lines, median of {options.rounds} rounds (goal: first output in {GOAL_S} s)")
    row = [
        f"{statistics.median(first):.2f}",
        f"{first[0]:.2f}",
        f"{first[-1]:.2f}",
        f"{statistics.median(cost.seconds for cost in costs):.2f}",
        f"{statistics.median(cost.cpu_s for cost in costs):.2f}",
        f"{max(cost.peak_mb for cost in costs):.0f}",
    ]
    print(table(["first output s", "least", "most", "whole run s", "CPU s", "peak MB"], [row]))
    save(options.out, "startup", {"runs": [asdict(cost) for cost in costs]})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
