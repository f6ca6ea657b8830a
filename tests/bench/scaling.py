"""Does cost grow as it should? CPU per tuple as there are more tuples, more keys, more operators, more slices.

Each axis varies one thing and leaves the rest:

    tuples     10^5 to 10^7, counted by 10,000 keys
    keys       10^3 to 10^6 keys of state
    known      the same, of tuples that come when nearly all keys are known
    operators  1, 2, 4, 8 filters in a row: what each of them adds, against a source that goes straight to its sink
    hops       the same with ``chain: false``: each filter is a process of its own
    slices     1 to 16 slices of the count, at one replica
    apart      the same with ``chain: false``: they are not run as one
    state      10^3 to 10^6 keys of state, of which 1000 change from one snapshot to the next

Generated tuples are counted by key, and every count is written. What is shown is CPU of all processes, start-up taken
off (the same topology with ten tuples). Flat means: the largest is hardly above the smallest. Of ``state`` it is the
CPU of one snapshot: what the slice, the wire and both who keep it do for it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchkit.marginal import FEW, Point, cpu_us
from benchkit.report import lines, save, say, table, warn_if_busy

from dadstorm.core.rows import Rows
from dadstorm.core.vault import Delta, Vault
from dadstorm.operators import make_kernel
from dadstorm.plan import Field, Input, Operator, Plan, Routing
from dadstorm.wire.bodies import decode_table, encode_table

SOURCE = """
name: scaling
sources:
  made: {{generate: {{n: counter, key: {{int: [1, {keys}]}}}}, count: {tuples}}}
"""
COUNT = "operators:\n  counts: {{input: made, count: key, slices: {slices}}}\n"
KEYS = 10_000
GOALS = {
    "tuples": "15%", "keys": "15%", "known": "15%", "operators": "15%", "hops": "15%", "slices": "20%", "apart": "20%",
    "state": "none"}  # fmt: skip
UNITS = {"operators": "CPU µs/operator", "hops": "CPU µs/hop", "state": "CPU µs/snapshot"}
CHANGES = 1000
TWICE, TIMES = 2, 3
"""After twice as many tuples as elsewhere nearly all keys are known; three times that are taken in all."""
SNAPSHOTS = 3000
"""So many that everything is folded at least once."""


def counted(keys: int = KEYS, slices: int = 1, chain: bool = True) -> Callable[[int], str]:
    text = SOURCE + COUNT + f"chain: {str(chain).lower()}\n"
    return lambda tuples: text.format(keys=keys, tuples=tuples, slices=slices)


def in_a_row(operators: int, chain: bool) -> Callable[[int], str]:
    """Filters that let everything pass, each reading the one before."""
    names = ["made", *(f"pass{number}" for number in range(operators))]
    rows = [f"  {name}: {{input: {before}, filter: n >= 0}}" for before, name in pairwise(names)]
    middle = "\n".join(["operators:", *rows]) if rows else ""
    sink = f"sinks:\n  written: {{input: {names[-1]}, csv: written.csv}}\n"
    return lambda tuples: f"{SOURCE.format(keys=KEYS, tuples=tuples)}{middle}\n{sink}chain: {str(chain).lower()}\n"


def snapshot_us(keys: int) -> float:
    """The CPU of one snapshot of so many keys: what changed, written, sent, read, and kept by owner and holder."""
    source = Operator("made", "source", {}, (), (Field("key", "int"),), 1, (), Routing())
    count = Operator(
        "counts", "count", {"by": [0]}, (Input("made"),), (Field("key", "int"), Field("count", "int")), 1, (), Routing()
    )
    kernel = make_kernel(count, Plan("scaling", (source, count)))
    owner, holder = Vault(), Vault()

    def snapshot(cut: int) -> None:
        table = kernel.delta()
        assert table is not None
        copy = decode_table(memoryview(encode_table(table)))
        for vault, theirs in ((owner, table), (holder, copy)):
            vault.add(Delta(cut, theirs))
            vault.settle(cut)

    def process(numbers: np.ndarray) -> None:
        ids = np.arange(len(numbers))
        kernel.process(Rows(ids, ids, pa.RecordBatch.from_arrays([pa.array(numbers)], names=["key"])))

    process(np.arange(keys))
    snapshot(1)
    chance = np.random.default_rng(1)
    spent = 0.0
    for number in range(SNAPSHOTS):
        process(chance.choice(keys, min(CHANGES, keys), replace=False, shuffle=False))
        begun = time.process_time()
        snapshot(2 + number)
        spent += time.process_time() - begun
    say(f"state, {keys:,} keys: {spent / SNAPSHOTS * 1e6:.0f} µs/snapshot")
    return spent / SNAPSHOTS * 1e6


def powers(least: int, most: int, factor: int = 10) -> list[int]:
    found = [least]
    while found[-1] * factor <= most:
        found.append(found[-1] * factor)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axis", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tuples", type=int, default=2_000_000, help="where they do not vary (%(default)s)")
    parser.add_argument("--most-tuples", type=int, default=10_000_000)
    parser.add_argument("--most-keys", type=int, default=1_000_000)
    parser.add_argument("--most-operators", type=int, default=8)
    parser.add_argument("--most-slices", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="for JSON and plots (%(default)s)")
    options = parser.parse_args(arguments)
    warn_if_busy()

    def measured(topologies: dict[int, Callable[[int], str]], what: str, less: int = FEW) -> dict[int, float]:
        tuples = TIMES * less if less > FEW else options.tuples
        points = [
            Point(f"{place:,} {what}", made, place if what == "tuples" else tuples, less)
            for place, made in topologies.items()
        ]
        return dict(zip(topologies, cpu_us(points, options.rounds), strict=True))

    found: dict[str, dict[int, float]] = {}
    for axis in options.axis:
        if axis == "tuples":
            places = powers(min(100_000, options.most_tuples), options.most_tuples)
            points = measured({place: counted() for place in places}, axis)
        elif axis in ("keys", "known"):
            places = powers(min(1000, options.most_keys), options.most_keys)
            less = FEW if axis == "keys" else TWICE * options.tuples
            points = measured({place: counted(keys=place) for place in places}, axis, less)
        elif axis in ("operators", "hops"):
            places = [0, *powers(1, options.most_operators, 2)]
            points = measured({place: in_a_row(place, axis == "operators") for place in places}, axis)
            none = points.pop(0)
            points = {place: (cost - none) / place for place, cost in points.items()}
        elif axis == "state":
            places = powers(min(1000, options.most_keys), options.most_keys)
            points = {place: snapshot_us(place) for place in places}
        else:
            places = powers(1, options.most_slices, 2)
            points = measured({place: counted(slices=place, chain=axis == "slices") for place in places}, axis)
        found[axis] = points
        first = next(iter(points.values()))
        told = [[f"{place:,}", f"{value:.3f}", f"{value / first:.2f}"] for place, value in points.items()]
        print(table([axis, UNITS.get(axis, "CPU µs/tuple"), "× the first"], told))
        spread = max(points.values()) / min(points.values()) - 1
        print(f"the largest is {spread:.0%} above the smallest (goal {GOALS[axis]})\n", flush=True)
    save(options.out, "scaling", {"tuples": options.tuples, "cpu_us_per_tuple": found})
    panels = {f"{axis} ({UNITS.get(axis, 'CPU µs/tuple')})": dict(points) for axis, points in found.items()}
    lines(options.out, "scaling", panels, "CPU µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
