"""CPU per tuple without the start: what a run costs, less what the same topology costs with next to no tuples.

Start-up is about a third of a second of CPU; over 100,000 tuples it would hide everything else. What disturbs a run
only ever adds CPU (a cold cache, a page that has to be fetched), so of several rounds the least of each counts; short
runs, of which the start is the most, are made more often. What is to be compared is measured in turns: a machine that
is shared may be twice as slow a minute later.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchkit.report import say
from benchkit.workload import run_topology

FEW = 10
SHORT = 1_000_000
"""Below so many tuples a run is short."""
MORE = 3
"""How many times as often those are made."""


@dataclass(frozen=True)
class Point:
    """Something whose cost is wanted."""

    what: str
    topology: Callable[[int], str]
    """Makes the text for so many tuples."""
    tuples: int
    less: int = FEW
    """How many are not to count: the cost of a run with these is taken off."""


def cpu_us(points: Sequence[Point], rounds: int) -> list[float]:
    """Of each point the microseconds of CPU, over all processes, that one tuple more costs."""
    wholes: list[list[float]] = [[] for _ in points]
    rests: list[list[float]] = [[] for _ in points]
    for number in range(rounds):
        for point, whole, rest in zip(points, wholes, rests, strict=True):
            for _ in range(MORE if point.tuples < SHORT else 1):
                rest.append(cpu_s(point.topology(point.less)))
                whole.append(cpu_s(point.topology(point.tuples)))
            us = (whole[-1] - rest[-1]) / (point.tuples - point.less) * 1e6
            say(f"{point.what}, round {number + 1}/{rounds}: {us:.3f} µs/tuple")
    return [
        (min(whole) - min(rest)) / (point.tuples - point.less) * 1e6
        for point, whole, rest in zip(points, wholes, rests, strict=True)
    ]


def cpu_s(text: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return run_topology(text, Path(folder)).cpu_s
