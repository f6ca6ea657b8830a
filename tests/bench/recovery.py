"""How long it takes from a ``kill -9`` until the victim's slices give output again, with 100,000 keys of state.

A topology counts 50,000 tuples a second by user, at several replicas, and writes every count. The sink merges in ID
order, so from the moment the victim's slices stand still nothing more can be written, and the first byte that is
written again is beyond what the victim had emitted. What is measured is what a user sees: the output file. Its growth
is looked at every millisecond; the time from the kill to the end of the longest pause that begins before the log says
that the victim is recovered is the recovery (what was on its way to the sink is still written first; a pause that
begins later is another one, of the machine or of a snapshot, and is told apart). A
second stream that does not pass by the victim must not pause; how much of it is written within a second of the kill is
compared with the second before. So it is with the victim's own operator: its survivors go on, but the sink, which
merges, waits for all, so what they did meanwhile comes out when the victim's slices are back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from kit import running, until

KEYS = 100_000
RATE = 50_000
WARM_TUPLES = 5 * KEYS
"""By then 99 % of the keys have been seen."""
TOPOLOGY = """
name: recovery
recovery: {recovery}
chain: false
sources:
  visits: {{generate: {{n: counter, user: {{int: [1, {keys}]}}}}, count: 1000000000, rate: {rate}}}
  others: {{generate: {{n: counter}}, count: 1000000000, rate: 2000}}
operators:
  counts: {{input: visits, count: user, replicas: {replicas}, slices: {slices}}}
  apart:  {{input: others, filter: n >= 0}}
"""
UP = re.compile(rb'"event":"replica up".*?"pid":(\d+),"replica":"counts replica (\d+)"')
STEPS = ("detected", "spawned", "restored", "replayed")
PAUSE_S = 2.0
"""Between two kills: the copies are renewed, the replay is over."""
KILLS_PER_REPLICA = 7
"""Within one run: who dies eight times in a row, each time young, is given up."""
LOOK_S = 1.5
"""How long after a kill the output is watched."""
RECOVERED = re.compile(r"^(\S+)Z recovered counts ", re.MULTILINE)


class Growth:
    """When a file grew, and to what."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sizes: list[tuple[float, int]] = []
        self._stop = False
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        size = -1
        while not self._stop:
            found = self._path.stat().st_size if self._path.exists() else 0
            if found != size:
                size = found
                self.sizes.append((time.monotonic(), size))
            time.sleep(0.001)

    @property
    def size(self) -> int:
        return self.sizes[-1][1] if self.sizes else 0

    def longest_pause(self, since: float, begun_by: float, until_: float) -> tuple[float, float]:
        """Beginning and end of the longest pause that ends after ``since`` and has begun by ``begun_by``; ``until_``
        is when we looked last, and ends a pause that has not ended."""
        moments = [moment for moment, _ in list(self.sizes) if moment <= until_]
        first = max((m for m in moments if m <= since), default=since)
        pauses = pairwise([first, *(m for m in moments if m > since), until_])
        return max((p for p in pauses if p[0] <= begun_by), key=lambda pause: pause[1] - pause[0])

    def kept_up(self, moment: float) -> float:
        """How much it grew within a second after a moment, of what it grew in the second before."""
        before, then, after = (self._at(moment + shift) for shift in (-1.0, 0.0, 1.0))
        return (after - then) / max(1, then - before)

    def _at(self, moment: float) -> int:
        return max((size for when, size in list(self.sizes) if when <= moment), default=0)

    def stop(self) -> None:
        self._stop = True
        self._thread.join()


@dataclass
class Found:
    took: list[float] = field(default_factory=list)
    """Kill -9 to new output, in seconds."""
    later: list[float] = field(default_factory=list)
    """The longest pause of the victim's stream after that, up to when we looked last."""
    beside: list[float] = field(default_factory=list)
    """The longest pause of the other stream after each kill."""
    kept_up: list[float] = field(default_factory=list)
    """What was written of the victim's operator within a second after each kill, of what was in the second before."""
    beside_kept_up: list[float] = field(default_factory=list)
    """The same of the other stream."""
    steps: list[dict[str, int]] = field(default_factory=list)
    """What the event log says: milliseconds by step, of each recovery."""

    def median_of(self, step: str) -> float:
        return statistics.median(steps[step] for steps in self.steps if step in steps)

    def told(self) -> str:
        """The steps of a recovery, each a median of its own."""
        order = [step for step in STEPS if any(step in steps for steps in self.steps)]
        return ", ".join(f"{step} {self.median_of(step):.0f} ms" for step in order)


def measure(folder: Path, recovery: str, kills: int, replicas: int, slices: int, found: Found) -> None:
    """Kill replicas of one run, one after the other."""
    text = TOPOLOGY.format(recovery=recovery, keys=KEYS, rate=RATE, replicas=replicas, slices=slices)
    (folder / "recovery.yaml").write_text(text)
    with running("run", "recovery.yaml", cwd=folder) as command:
        output, apart = Growth(folder / "out" / "counts.csv"), Growth(folder / "out" / "apart.csv")
        least = WARM_TUPLES * len("12345,1\n")
        until(lambda: output.size >= least or command.process.poll() is not None, "the keys are there")
        assert command.process.poll() is None, command.err.text
        for number in range(kills):
            victims = dict(sorted((int(replica), int(pid)) for pid, replica in UP.findall(log_of(folder))))
            victim = number % replicas
            os.kill(victims[victim], signal.SIGKILL)
            killed, when = time.monotonic(), datetime.now(timezone.utc)
            time.sleep(LOOK_S)
            looked = killed + LOOK_S
            _, end = output.longest_pause(killed, killed + recovered_s(folder, when), looked)
            found.took.append(end - killed)
            if end < looked:
                begin, later = output.longest_pause(end, looked, looked)
                found.later.append(later - begin)
            else:
                print(f"  kill {number + 1}: nothing was written within {LOOK_S} s", file=sys.stderr)
            begin, end = apart.longest_pause(killed, looked, looked)
            found.beside.append(end - begin)
            found.kept_up.append(output.kept_up(killed))
            found.beside_kept_up.append(apart.kept_up(killed))
            time.sleep(PAUSE_S - LOOK_S)
            assert command.process.poll() is None, command.err.text
        output.stop()
        apart.stop()
        command.interrupt()
        command.ended(60)
    events = next(folder.glob("runs/*/events.log")).read_text()
    for event in re.findall(r" recovered counts .*| spread counts .*", events):
        event = event.replace("after", "detected")
        found.steps.append({name: int(ms) for name, ms in re.findall(rf"({'|'.join(STEPS)}) (\d+)", event)})


def recovered_s(folder: Path, killed: datetime) -> float:
    """How long after a kill the log says for the last time that something was recovered; if it does not, for ever."""
    events = next(folder.glob("runs/*/events.log")).read_text()
    told = [datetime.fromisoformat(moment).replace(tzinfo=timezone.utc) for moment in RECOVERED.findall(events)]
    return max(((moment - killed).total_seconds() for moment in told if moment > killed), default=LOOK_S)


def log_of(folder: Path) -> bytes:
    return next(folder.glob("runs/*/puppetmaster.log")).read_bytes()


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench recovery", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="for each way of recovery (%(default)s)")
    parser.add_argument("--ways", nargs="+", choices=("respawn", "spread"), default=["respawn", "spread"])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON as well")
    options = parser.parse_args()
    figures = {}
    for recovery, replicas, slices in (("respawn", 2, 4), ("spread", 4, 8)):
        if recovery not in options.ways:
            continue
        per_run = KILLS_PER_REPLICA * replicas if recovery == "respawn" else replicas - 1
        found = Found()
        while len(found.took) < options.kills:
            folder = Path(tempfile.mkdtemp(prefix="recovery-"))
            try:
                measure(folder, recovery, min(per_run, options.kills - len(found.took)), replicas, slices, found)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            print(f"  {recovery}: {len(found.took)} of {options.kills} kills", file=sys.stderr)
        took, others = found.took, found.beside
        figures[recovery] = {
            "kills": len(took),
            "p50": statistics.median(took),
            "p99": percentile(took, 0.99),
            "worst": max(took),
            "all": took,
            "a later pause of the same stream, worst": max(found.later, default=0.0),
            "other stream's longest pause, p50": statistics.median(others),
            "other stream's longest pause, worst": max(others),
            "written in the second after a kill, of the second before, p50": statistics.median(found.kept_up),
            "the same, least": min(found.kept_up),
            "the same of the other stream, least": min(found.beside_kept_up),
        }
        print(f"{recovery}: {replicas} replicas, {slices} slices, {KEYS:,} keys, {RATE:,} tuples/s, {len(took)} kills")
        print(f"  kill -9 to new output: p50 {figures[recovery]['p50']:.3f} s, p99 {figures[recovery]['p99']:.3f} s")
        print(f"  of that, medians: {found.told()}")
        longest = ", ".join(f"{seconds:.3f}" for seconds in sorted(took)[-3:])
        later = max(found.later, default=0.0)
        print(f"  the three longest: {longest} s; the longest pause of its stream after that: {later:.3f} s")
        kept = f"{statistics.median(found.kept_up):.0%} (p50), {min(found.kept_up):.0%} at least"
        print(f"  its operator writes within a second of the kill, of what it wrote in the second before: {kept}")
        print(f"  a stream beside it the same: {min(found.beside_kept_up):.0%} at least")
        print(f"  a stream beside it pauses {statistics.median(others):.3f} s (p50), at worst {max(others):.3f} s")
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
