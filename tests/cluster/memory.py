"""How much memory a run takes: all its processes together, at the worst moment.

The figure is the sum of the processes' proportional set sizes (PSS): pages that several share, such as those of the
libraries that the zygote has loaded for all, count once. It is looked at many times a second, and what a process has
once taken it keeps for a while. Run as a program (``scripts/soak``) this prints the figure for the docs.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from kit import Outcome, running

DIAMOND = """
name: diamond
window: {window}
sources:
  orders:
    generate:
      n: counter
      user: {{int: [0, 9999]}}
      item: {{choice: [apple, pear, plum, fig]}}
      price: {{float: [0.5, 20.0]}}
    count: {tuples}
operators:
  cheap:  {{input: orders, filter: price < 8}}
  dear:   {{input: orders, filter: price >= 8}}
  either: {{input: [orders, cheap, dear], dup: }}     # every order comes twice: by itself and by one of the two
  buyers: {{input: either, uniq: user}}
  total:  {{input: either, count: }}
  last:   {{input: total, filter: count > {all_but_ten}}}
"""
WINDOW = 1 << 18
"""Rows that may be under way, if nothing else is said."""


@dataclass(frozen=True)
class Measured:
    outcome: Outcome
    peak_mb: float
    curve_mb: list[float]
    """The sum over all processes, from the start to the end."""


def diamond(tuples: int, window: int = WINDOW) -> str:
    return DIAMOND.format(tuples=tuples, window=window, all_but_ten=2 * tuples - 10)


def measured(folder: Path, text: str, within_s: float = 300) -> Measured:
    """Run a topology and watch its memory."""
    folder.mkdir(parents=True, exist_ok=True)
    topology = folder / "topology.yaml"
    topology.write_text(text)
    curve: list[float] = []
    with running("run", topology, "--quiet", cwd=folder) as command:
        front = psutil.Process(command.process.pid)
        deadline = time.monotonic() + within_s
        while command.process.poll() is None and time.monotonic() < deadline:
            curve.append(pss_mb(front))
            time.sleep(0.01)
        outcome = command.ended(1)
    return Measured(outcome, max(curve), curve)


def pss_mb(front: psutil.Process) -> float:
    """A process and all that descend from it."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        for process in [front, *front.children(recursive=True)]:
            # One that has just ended has none.
            with suppress(OSError):
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs tuples through a diamond and prints the memory it took.")
    parser.add_argument("tuples", type=int, nargs="?", default=5_000_000)
    parser.add_argument("window", type=int, nargs="?", default=WINDOW, help="rows that may be under way")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    try:
        found = measured(folder, diamond(options.tuples, options.window), within_s=24 * 3600)
    finally:
        shutil.rmtree(folder)
    found.outcome.ok()
    print(
        f"{options.tuples:,} tuples, window {options.window:,}: {found.outcome.seconds:.1f} s, "
        f"at most {found.peak_mb:,.0f} MB in all processes together"
    )


if __name__ == "__main__":
    main()
