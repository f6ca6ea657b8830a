"""CPU per tuple without the start: what a run costs, less what the same topology costs with next to no tuples.

Start-up is about a second of CPU; over 100,000 tuples it would hide everything else. What disturbs a run only ever adds
CPU (a cold cache, a page that has to be fetched), so of several rounds the least of each counts; short runs, of which
the start is the most, have more rounds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchkit.report import say
from benchkit.workload import run_topology

FEW = 10
SHORT = 1_000_000
"""Below so many tuples a run is short."""
MORE = 3
"""How many times as many rounds for those."""


def cpu_us(topology: Callable[[int], str], tuples: int, rounds: int, what: str) -> float:
    """Microseconds of CPU, over all processes, that one tuple more costs; ``topology`` makes the text for so many."""
    starts, wholes = [], []
    rounds = rounds * MORE if tuples < SHORT else rounds
    for number in range(rounds):
        starts.append(cpu_s(topology(FEW)))
        wholes.append(cpu_s(topology(tuples)))
        say(f"{what}, round {number + 1}/{rounds}: {(wholes[-1] - starts[-1]) / (tuples - FEW) * 1e6:.3f} µs/tuple")
    return (min(wholes) - min(starts)) / (tuples - FEW) * 1e6


def cpu_s(text: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return run_topology(text, Path(folder)).cpu_s
