"""What a CUSTOM function of one tuple costs beyond itself.

The same generated tuples go through a function and, in another run, through DUP, which passes columns on as they are.
The difference in CPU is what it takes to make Python values of a tuple, to call, to check what comes back and to make
columns of it again, and the function itself. The latter is measured alone, in a loop over the same values, and taken
off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchkit import bench_functions
from benchkit.marginal import Point, cpu_us
from benchkit.report import save, table, warn_if_busy

TOPOLOGY = """
name: custom
sources:
  made: {{generate: {{n: counter, text: {{words: 3}}}}, count: {tuples}}}
operators:
  done: {{input: made, {what}}}
"""
CALL = "custom: bench_functions.{name}, fields: [n:int, text], max_outputs: 1"
FUNCTIONS = {"same": bench_functions.same, "tagged": bench_functions.tagged}
GOAL_US = 0.5


def through(what: str) -> Callable[[int], str]:
    return lambda tuples: TOPOLOGY.format(tuples=tuples, what=what)


def alone_us(function: Callable[[int, str], object], tuples: int, rounds: int) -> float:
    """The function, called in a loop."""
    rows = [(number, f"word{number % 1000} and{number % 777} another") for number in range(tuples)]
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        [function(number, text) for number, text in rows]
        times.append(time.process_time() - begun)
    return statistics.median(times) / tuples * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench custom", description=__doc__)
    parser.add_argument("--function", nargs="+", choices=list(FUNCTIONS), default=list(FUNCTIONS))
    parser.add_argument("--tuples", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="for the JSON (%(default)s)")
    options = parser.parse_args(arguments)
    warn_if_busy()
    points = [Point("dup", through("dup: "), options.tuples)]
    points += [Point(name, through(CALL.format(name=name)), options.tuples) for name in options.function]
    without, *wholes = cpu_us(points, options.rounds)
    rows, found = [], {}
    for name, whole in zip(options.function, wholes, strict=True):
        alone = alone_us(FUNCTIONS[name], min(options.tuples, 500_000), options.rounds)
        found[name] = {"with_us": whole, "dup_us": without, "alone_us": alone, "above_us": whole - without - alone}
        rows.append([name, f"{whole:.3f}", f"{without:.3f}", f"{alone:.3f}", f"{whole - without - alone:.3f}"])
    print(f"CPU µs for each of {options.tuples:,} tuples of two fields (goal: {GOAL_US} above the function itself)")
    print(table(["function", "topology with it", "with dup", "function alone", "above the function"], rows))
    save(options.out, "custom", {"tuples": options.tuples, "functions": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
