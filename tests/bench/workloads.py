"""W1, W2, W3: the same work by us and by others, in turns, on the same data; how long, how much CPU and memory.

    W1  500,000 lines of 8 words → the running count of each word, every one of the 4 M counts written
    W2  3 M visits → those of one site → the first of each user → the running count by url
    W3  two ID-sorted streams, 2 M tuples → merged → a Python function of each tuple

We run as everybody would: exactly-once, snapshots every second, results as CSV. What counts is the whole run from the
shell's point of view, start-up included; the start-up alone (ten records) is measured too, in every round. Every
output is checked, and ours must have the same bytes in all rounds. The exit code is 1 if any output is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchkit import peers
from benchkit.checks import Verdict, judged
from benchkit.data import cache, prepared, size_of
from benchkit.measure import Cost, measured
from benchkit.report import bars, save, say, table, warn_if_busy
from benchkit.workload import WORKLOADS, Workload, run_topology, topology

OURS = "dadstorm"
TINY = 10
Side = Callable[[Workload, Path, Path], tuple[Cost, Verdict]]
"""(workload, data, empty folder) → what it cost, and whether what came out is right."""
EXPECTED = "expected.csv"
FUNCTIONS = str(Path(__file__).resolve().parent / "benchkit")
"""Where ``bench_functions`` is: processes that a peer starts for Python have to find it, too."""


@dataclass(frozen=True)
class Run:
    workload: str
    side: str
    round: int
    seconds: float
    cpu_s: float
    peak_mb: float
    start_s: float
    output: str
    lines: int
    digest: str


def ours(workload: Workload, data: Path, folder: Path) -> tuple[Cost, Verdict]:
    cost = run_topology(topology(workload, data), folder)
    return cost, judged([folder / "out" / workload.output], data / EXPECTED, workload.kind)


def side_of(peer: peers.Peer, keep: Path) -> Side:
    """A peer as a side; its environment is made now, before anything is measured."""
    python = peers.python_of(peer, keep)

    def run(workload: Workload, data: Path, folder: Path) -> tuple[Cost, Verdict]:
        if peer.before is not None:
            first = peer.before(python, workload.name, data, folder)
            subprocess.run(first, check=True, stdout=subprocess.DEVNULL)
        command = peer.command(python, workload.name, data, folder)
        environment = {"PYTHONPATH": FUNCTIONS, **peer.environment}
        cost = measured(command, cwd=folder, environment=environment, within_s=1800)
        return cost, judged(list(folder.glob(peer.outputs)), data / EXPECTED, workload.kind, peer.reading)

    return run


def one(side: Side, workload: Workload, data: Path, within: Path) -> tuple[Cost, Verdict]:
    """One run in a folder of its own, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"{workload.name}-", dir=within))
    try:
        return side(workload, data, folder)
    finally:
        shutil.rmtree(folder)


def rounds(sides: dict[str, Side], workload: Workload, records: int, count: int, keep: Path, within: Path) -> list[Run]:
    """All sides in turns, each round beginning with another one."""
    data, tiny = prepared(keep, workload.name, records), prepared(keep, workload.name, TINY)
    runs = []
    names = list(sides)
    for number in range(count):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start, _ = one(sides[name], workload, tiny, within)
            cost, verdict = one(sides[name], workload, data, within)
            runs.append(
                Run(workload.name, name, number, cost.seconds, cost.cpu_s, cost.peak_mb, start.seconds,
                    verdict.text, verdict.lines, verdict.digest)
            )  # fmt: skip
            say(f"{workload.name} round {number + 1}/{count} {name}: {cost.seconds:.2f} s, {verdict.text}")
    return runs


def summary(runs: Sequence[Run], records: int) -> list[list[str]]:
    """A line for each side: medians, the peak of all rounds, and how many times faster we are."""
    by_side: dict[str, list[Run]] = {}
    for run in runs:
        by_side.setdefault(run.side, []).append(run)
    middle = {name: statistics.median(run.seconds for run in found) for name, found in by_side.items()}
    lines = []
    for name, found in by_side.items():
        cpu = statistics.median(run.cpu_s for run in found)
        lines.append([
            name,
            f"{middle[name]:.2f}",
            f"{records / middle[name]:,.0f}",
            f"{cpu:.2f}",
            f"{cpu / records * 1e6:.2f}",
            f"{max(run.peak_mb for run in found):,.0f}",
            f"{statistics.median(run.start_s for run in found):.2f}",
            f"{middle[name] / middle[OURS]:.2f}",
            ", ".join(sorted({run.output for run in found})),
        ])  # fmt: skip
    return lines


HEAD = ["", "seconds", "tuples/s", "CPU s", "CPU µs/tuple", "peak MB", "start-up s", "ours is × as fast", "output"]


def faults(runs: Sequence[Run]) -> list[str]:
    """What makes the figures void."""
    found = [f"{run.workload} {run.side}, round {run.round + 1}: {run.output}" for run in runs if "WRONG" in run.output]
    if len({run.digest for run in runs if run.side == OURS}) > 1:
        found.append(f"{runs[0].workload}: our output was not the same in all rounds")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="+", type=str.upper, choices=list(WORKLOADS), metavar="W1|W2|W3")
    parser.add_argument("--peer", nargs="*", default=["loop"], choices=peers.names(), help="default: loop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size (%(default)s)")
    parser.add_argument("--data", type=Path, default=cache(), help="data and environments of peers (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="for JSON and plots (%(default)s)")
    options = parser.parse_args(arguments)
    warn_if_busy()
    runs: list[Run] = []
    faulty: list[str] = []
    panels = {}
    keep: Path = options.data.resolve()
    with tempfile.TemporaryDirectory(prefix="bench-") as within:
        chosen = [peers.load(name) for name in options.peer]
        sides = {OURS: ours, **{peer.name: side_of(peer, keep) for peer in chosen}}
        for name in options.workloads:
            workload, records = WORKLOADS[name], size_of(name, options.scale)
            able = {side: run for side, run in sides.items() if side == OURS or name in peers.load(side).workloads}
            found = rounds(able, workload, records, options.rounds, keep, Path(within))
            runs += found
            faulty += faults(found)
            panels[f"{name}: {records:,} {workload.title}"] = {
                side: statistics.median(run.seconds for run in found if run.side == side) for side in able
            }
            print(f"{name}: {records:,} {workload.title}; medians of {options.rounds} rounds")
            print(table(HEAD, summary(found, records)), end="\n\n", flush=True)
    save(options.out, "workloads", {"runs": [asdict(run) for run in runs]})
    bars(options.out, "workloads", panels, "seconds, whole run")
    for fault in faulty:
        print(fault)
    return 1 if faulty else 0


if __name__ == "__main__":
    raise SystemExit(main())
