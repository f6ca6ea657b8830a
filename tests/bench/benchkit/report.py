"""What a benchmark leaves: a table on standard output, JSON with every single run, and plots.

A figure without its circumstances is worth nothing, so the JSON holds them: the machine, its load, the commit, the
command. Progress goes to standard error.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PANELS_WIDE = 3
BUSY = 0.3
"""Load per core above which a figure is not to be trusted."""


def circumstances() -> dict[str, Any]:
    """On what, of what, when."""
    return {
        "command": " ".join(["scripts/bench", *sys.argv[1:]] if "workloads" in sys.argv[0] else
                            ["scripts/bench", Path(sys.argv[0]).stem, *sys.argv[1:]]),
        "commit": commit(),
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
    }  # fmt: skip


def commit() -> str:
    """The clone's commit; with a + if it has changes."""
    try:
        name = git("rev-parse", "--short", "HEAD")
        return name + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


class Stolen:
    """How much of the time that processes wanted to run, from here on, this machine's host gave to others instead."""

    def __init__(self) -> None:
        self._before = self._ticks()

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """CPU that was used, and CPU that was withheld."""
        try:
            user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        except (OSError, ValueError):
            return 0, 0
        return user + nice + system + irq + softirq, steal

    @property
    def share(self) -> float:
        used, stolen = (now - before for now, before in zip(self._ticks(), self._before, strict=True))
        return stolen / max(1, used + stolen)


def warn_if_busy() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY * cores:
        say(f"NOTE: the machine is busy (load {load:.1f} on {cores} cores); only CPU seconds mean anything now")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; the first one to the left, the others to the right."""
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]

    def shown(line: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    return "\n".join([shown(head), shown(["-" * width for width in widths]), *map(shown, rows)])


def save(out: Path, name: str, found: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    path.write_text(json.dumps({**circumstances(), **found}, indent=1) + "\n")
    say(f"written: {path}")


def pyplot() -> Any:
    """Matplotlib without a screen, or None if it is not installed: figures are worth having without drawings."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        say("no plots: matplotlib is not installed (pip install matplotlib)")
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def bars(out: Path, name: str, panels: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """A panel of horizontal bars for each title."""
    plt = pyplot()
    if plt is None or not panels:
        return
    figure, axes = plt.subplots(len(panels), 1, figsize=(8, 1.2 + 1.6 * len(panels)), squeeze=False)
    for axis, (title, values) in zip(axes[:, 0], panels.items(), strict=True):
        drawn = axis.barh(list(values), list(values.values()))
        axis.bar_label(drawn, fmt="%.2f", padding=3)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel(unit)
        axis.invert_yaxis()
        axis.margins(x=0.12)
    finished(plt, figure, out, name)


def lines(out: Path, name: str, panels: Mapping[str, Mapping[float, float]], unit: str, ideal: bool = False) -> None:
    """A panel with a curve over a logarithmic axis for each title; ``ideal`` draws the straight line from its start."""
    plt = pyplot()
    if plt is None or not panels:
        return
    wide = min(len(panels), PANELS_WIDE)
    rows = -(-len(panels) // wide)
    figure, axes = plt.subplots(rows, wide, figsize=(1 + 3.6 * wide, 3.4 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, points) in zip(axes.flat, panels.items(), strict=False):
        places, values = list(points), list(points.values())
        axis.plot(places, values, marker="o")
        if ideal:
            axis.plot(places, [values[0] * place / places[0] for place in places], linestyle=":")
        axis.set_xscale("log", base=2 if places[-1] <= 1024 else 10)
        axis.set_xlabel(title)
        axis.axhline(0, color="grey", linewidth=0.5)
        axis.set_ylim(bottom=min(0.0, 1.2 * min(values)), top=max(1.2 * max(values), -0.2 * min(values)))
    for first in axes[:, 0]:
        first.set_ylabel(unit)
    finished(plt, figure, out, name)


def finished(plt: Any, figure: Any, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.png"
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    say(f"written: {path}")
