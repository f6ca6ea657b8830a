"""CPU per tuple without the start: what a run costs, less what the same topology costs with next to no tuples.

Start-up is about a second of CPU; over 100,000 tuples it would hide everything else.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchkit.report import say
from benchkit.workload import run_topology

FEW = 10


def cpu_us(topology: Callable[[int], str], tuples: int, rounds: int, what: str) -> float:
    """Microseconds of CPU, over all processes, that one tuple more costs; ``topology`` makes the text for so many."""
    samples = []
    for number in range(rounds):
        start, whole = (cpu_s(topology(count)) for count in (FEW, tuples))
        samples.append((whole - start) / (tuples - FEW) * 1e6)
        say(f"{what}, round {number + 1}/{rounds}: {samples[-1]:.3f} µs/tuple")
    return statistics.median(samples)


def cpu_s(text: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return run_topology(text, Path(folder)).cpu_s
