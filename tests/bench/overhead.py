"""What exactly-once costs: the same topology, under all three semantics, alternately.

Each round runs the topology once under each semantics, as a user would, to the end; what counts is the time from the
Start to the end of the last replica, as the event log tells it, so that neither the start of processes nor this
program is measured. The medians are compared; rounds alternate, for this machine may be busy with something else. A run
is long enough for many snapshots: two of a slice are never further apart than half a window.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from benchkit.events import seconds_of_work
from kit import run

TOPOLOGY = """
name: overhead
semantics: {semantics}
sources:
  lines:
    generate: {{n: counter, text: {{words: {{count: 8, vocabulary: 20000}}}}}}
    count: {tuples}
    slices: 2
    replicas: 2
operators:
  words:  {{input: lines, split: text, replicas: 2}}
  counts: {{input: words, count: text, replicas: 2}}
"""
CUTS_APART = 1 << 16
"""Lines, at most, between two snapshots of a slice: half of what the window lets each of the source's slices have."""
SEMANTICS = ("at-most-once", "at-least-once", "exactly-once")


def seconds(folder: Path, semantics: str, tuples: int) -> float:
    """One run, from its Start to its end."""
    folder.mkdir()
    (folder / "overhead.yaml").write_text(TOPOLOGY.format(semantics=semantics, tuples=tuples))
    run("run", "overhead.yaml", "--quiet", cwd=folder, within_s=600).ok()
    return seconds_of_work(folder / "runs")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tuples", type=int, default=3_000_000, help="lines of 8 words (%(default)s)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    took: dict[str, list[float]] = {semantics: [] for semantics in SEMANTICS}
    try:
        for number in range(options.rounds):
            for semantics in SEMANTICS[number % 3 :] + SEMANTICS[: number % 3]:
                place = folder / f"{number}-{semantics}"
                took[semantics].append(seconds(place, semantics, options.tuples))
                print(f"  round {number + 1}: {semantics} {took[semantics][-1]:.2f} s", file=sys.stderr)
                shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    least = statistics.median(took["at-most-once"])
    print(f"{options.tuples:,} lines of 8 words, split and counted, 2 replicas each; median of {options.rounds} rounds")
    print(f"  but for at-most-once every slice takes at least {options.tuples // CUTS_APART} snapshots in a run")
    for semantics in SEMANTICS:
        found = statistics.median(took[semantics])
        lines = options.tuples / found
        share = 1 - least / found
        print(f"  {semantics:14} {found:6.2f} s, {lines:10,.0f} lines/s, {share:6.1%} of the throughput lost")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
