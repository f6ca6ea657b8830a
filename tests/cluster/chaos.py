"""Chaos: replicas of a running topology are killed and hung at random, from a seed; the output must not change by a
byte.

The topology has a diamond, an expanding operator, two keyed states and two or three replicas everywhere; its source is
paced, so that a run takes some seconds and there is something to disturb. A victim gets SIGKILL, or SIGSTOP for longer
than the time-out after which its peers suspect it (it is then replaced, whether it wakes up again or not). Faults keep
to what the operator can bear: one replica at a time, and a pause in which its copies are renewed. Run as a program
(``scripts/chaos``) this does any number of rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kit import Running, files_in, run, running

TOPOLOGY = """
name: chaos
snapshot_every: 300ms
sources:
  visits:
    generate: {n: counter, user: {int: [0, 5000]}, text: {words: 4}}
    count: %(count)d
    rate: %(rate)d
    slices: 2
    replicas: 2
operators:
  some:   {input: visits, filter: n >= 10, replicas: 2}
  words:  {input: visits, split: text, replicas: 2}
  fresh:  {input: words, uniq: [user, text], replicas: 3}
  either: {input: [some, fresh], dup: , replicas: 2}
  counts: {input: either, count: user, replicas: 3, slices: 6}
"""
COUNT, RATE = 40_000, 8_000
PAUSE_S = (0.3, 1.0)
"""Between two faults; more than a recovery and the renewal of its copies take."""
HANG_S = 1.6
"""Longer than ``suspect_after``."""
UP = re.compile(rb'"event":"replica up".*?"pid":(\d+),"replica":"([^"]+)"')


@dataclass(frozen=True)
class Round:
    seed: int
    faults: list[str]
    code: int
    same: bool
    seconds: float
    message: str

    def __str__(self) -> str:
        verdict = "identical" if self.same and not self.code else f"WRONG (exit {self.code}) {self.message}"
        faults = f"{len(self.faults)} faults ({', '.join(self.faults)})"
        return f"seed {self.seed}: {faults}, {self.seconds:.1f} s: {verdict}"


def reference(folder: Path) -> dict[str, bytes]:
    """The output of an undisturbed run, as fast as it goes."""
    folder.mkdir(parents=True)
    topology = TOPOLOGY % {"count": COUNT, "rate": 10_000_000}
    (folder / "topology.yaml").write_text(topology)
    run("run", "topology.yaml", cwd=folder).ok()
    return files_in(folder / "out")


def disturbed(folder: Path, seed: int, wanted: dict[str, bytes], faults: int) -> Round:
    """One run with faults."""
    folder.mkdir(parents=True)
    (folder / "topology.yaml").write_text(TOPOLOGY % {"count": COUNT, "rate": RATE})
    chance = random.Random(seed)
    done: list[str] = []
    with running("run", "topology.yaml", cwd=folder) as topology:
        begun = time.monotonic()
        while len(done) < faults and topology.process.poll() is None:
            time.sleep(chance.uniform(*PAUSE_S))
            victim = _strike(folder, topology, chance)
            if victim:
                done.append(victim)
        outcome = topology.ended(within_s=120)
    seconds = time.monotonic() - begun
    return Round(seed, done, outcome.code, files_in(folder / "out") == wanted, seconds, outcome.err[-2000:])


def _strike(folder: Path, topology: Running, chance: random.Random) -> str | None:
    """Kill or hang one replica; what was done, or None if there is nobody."""
    replicas = _replicas(folder)
    if not replicas or topology.process.poll() is not None:
        return None
    name = chance.choice(sorted(replicas))
    pid = replicas[name]
    with suppress(ProcessLookupError):
        if chance.random() < 0.75:
            os.kill(pid, signal.SIGKILL)
            return f"kill {name}"
        os.kill(pid, signal.SIGSTOP)
        time.sleep(HANG_S)
        os.kill(pid, signal.SIGCONT)
        return f"hang {name}"
    return None


def _replicas(folder: Path) -> dict[str, int]:
    """The processes of the run, by name, as the PuppetMaster's log tells them."""
    logs = list(folder.glob("runs/*/puppetmaster.log"))
    if not logs or b'"event":"start"' not in (text := logs[0].read_bytes()):
        return {}
    return {name.decode(): int(pid) for pid, name in UP.findall(text)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description="Kill and hang replicas of a running topology; compare the output."
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=8, help="per round, at most")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    wrong = 0
    try:
        wanted = reference(folder / "reference")
        for number in range(options.rounds):
            seed = options.seed + number
            result = disturbed(folder / str(seed), seed, wanted, options.faults)
            print(result, flush=True)
            if result.code or not result.same:
                wrong += 1
                print(f"kept: {folder / str(seed)}")
            else:
                shutil.rmtree(folder / str(seed))
    finally:
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.rounds} rounds, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
