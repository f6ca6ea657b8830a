"""A long run at a steady rate, with a ``kill -9`` every so often: is anything lost, does memory grow?

A topology of six operators (keyed counts, a diamond, several replicas) takes so many tuples a second for some minutes.
Its keys are few, so its state stands still; what grows, leaks. Every so often one replica, drawn from a seed, is
killed. At the end the output must be, to the byte, that of an undisturbed run of the same tuples.

Memory is that of all processes together, pages that they share counted once (PSS). Right after a kill it is lower, and
higher while the new process replays; so medians are compared: of the last third of the run with those of the second
one. The first third is warm-up: allocators and caches fill.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from kit import run, running
from memory import pss_mb

TOPOLOGY = """
name: endurance
chain: false
sources:
  visits:
    generate: {{n: counter, user: {{int: [1, 5000]}}, page: {{choice: [home, shop, help, blog]}}}}
    count: {tuples}
    rate: {rate}
    slices: 2
    replicas: 2
operators:
  shop:   {{input: visits, filter: page = "shop", replicas: 2}}
  other:  {{input: visits, filter: page != "shop", replicas: 2}}
  all:    {{input: [shop, other], dup: , replicas: 2}}
  counts: {{input: all, count: user, replicas: 3, slices: 6}}
  users:  {{input: all, uniq: user, replicas: 2}}
"""
UP = re.compile(rb'"event":"replica up".*?"pid":(\d+),"replica":"([^"]+)"')
LOOK_S = 0.5
GROWTH_MAX = 0.05
PROGRESS_S = 30.0


def endure(folder: Path, minutes: float, every_s: float, rate: int, seed: int) -> tuple[list[tuple[float, float]], int]:
    """The run: its memory over time, and how many were killed."""
    tuples = int(rate * minutes * 60)
    text = TOPOLOGY.format(tuples=tuples, rate=rate)
    (folder / "endurance.yaml").write_text(text)
    chance = random.Random(seed)
    curve: list[tuple[float, float]] = []
    kills = 0
    with running("run", "endurance.yaml", "--sink", "csv", "--quiet", cwd=folder) as command:
        front = psutil.Process(command.process.pid)
        begun = told = time.monotonic()
        while command.process.poll() is None:
            now = time.monotonic()
            curve.append((now - begun, pss_mb(front)))
            if now - begun > (kills + 1) * every_s and now - begun < minutes * 60:
                kills += kill_one(folder, chance)
            if now - told > PROGRESS_S:
                told = now
                print(f"  {(now - begun) / 60:.1f} min, {kills} kills, {curve[-1][1]:,.0f} MB", file=sys.stderr)
            time.sleep(LOOK_S)
        command.ended(10).ok()
    same = folder / "calm"
    same.mkdir()
    (same / "endurance.yaml").write_text(text.replace(f"    rate: {rate}\n", ""))
    calm = run("run", "endurance.yaml", "--sink", "csv", "--quiet", cwd=same, within_s=1800).ok()
    for name, wanted in calm.files.items():
        if (folder / "out" / name).read_bytes() != wanted:
            raise SystemExit(f"WRONG: {name} differs from the undisturbed run's; both are in {folder}")
    return curve, kills


def kill_one(folder: Path, chance: random.Random) -> int:
    """Kill a replica that is alive; how many were."""
    log = next(folder.glob("runs/*/puppetmaster.log")).read_bytes()
    latest = {name: int(pid) for pid, name in UP.findall(log)}
    victim = chance.choice(sorted(latest))
    try:
        os.kill(latest[victim], signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def growth(curve: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Medians of the second and of the last third."""
    third = curve[-1][0] / 3
    middle = [mb for at, mb in curve if third <= at < 2 * third]
    last = [mb for at, mb in curve if 2 * third <= at < 2.95 * third]
    return statistics.median(middle), statistics.median(last)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=20, metavar="SECONDS", help="between two kills (%(default)s)")
    parser.add_argument("--rate", type=int, default=5000, help="tuples a second (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="endurance-"))
    curve, kills = endure(folder, options.minutes, options.every, options.rate, options.seed)
    shutil.rmtree(folder)
    middle, last = growth(curve)
    print(
        f"{options.minutes:g} minutes, {options.rate:,} tuples/s, {kills} kills: the output is the undisturbed run's\n"
        f"  memory of all processes: {middle:,.0f} MB in the second third, {last:,.0f} MB in the last "
        f"({last / middle - 1:+.1%}), {max(mb for _, mb in curve):,.0f} MB at most"
    )
    return 0 if last < middle * (1 + GROWTH_MAX) else 1


if __name__ == "__main__":
    raise SystemExit(main())
