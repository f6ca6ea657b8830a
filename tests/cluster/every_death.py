"""Every death that a small topology has to bear: each replica, each two replicas of different operators, and of each
operator all but one of its replicas, killed at the same moment in the middle of a run; under ``recovery: respawn`` or
``spread``.

A run bears many of them, one after the other (not all: who dies too often while young is given up): each time as soon
as everybody is back and everything that was emitted before is safe. That is known from the output: the source may run
no more than a window ahead of what is safe, so when the output has grown by more than a window, all copies have been
renewed since. In the end the run is stopped; its output must be, to the byte, the beginning of an undisturbed run's.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from kit import Running, run, running, until

TOPOLOGY = """
name: small
recovery: {recovery}
snapshot_every: 50ms
window: {window}
sources:
  numbers: {{generate: {{n: counter, k: {{int: [0, 500]}}}}, rate: {rate}, {count}seed: 3, replicas: 2, slices: 1}}
operators:
  some: {{input: numbers, filter: n >= 0, replicas: 2}}
  sums: {{input: some, count: k, replicas: 3}}
"""
OPERATORS = {"numbers": 2, "some": 2, "sums": 3, "sums.sink": 1}
WINDOW, RATE = 2000, 8000
RUNS = 2
UP = re.compile(r" up (\S+) (\d+) at \S+, process (\d+)")


def deaths() -> list[tuple[str, ...]]:
    """Who dies together, for all that has to be borne."""
    rings = {name: [f"{name} {number}" for number in range(count)] for name, count in OPERATORS.items()}
    single = [(who,) for ring in rings.values() for who in ring]
    pairs = [
        pair
        for one, other in itertools.combinations(rings, 2)
        for pair in itertools.product(rings[one], rings[other])
    ]
    rest = [some for ring in rings.values() if len(ring) > 2 for some in itertools.combinations(ring, len(ring) - 1)]
    return [*single, *pairs, *rest]


def borne(folder: Path, victims: Iterable[tuple[str, ...]], recovery: str = "respawn") -> None:
    """Let all these die, one after the other, in one run; AssertionError if the output is not right."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.yaml").write_text(TOPOLOGY.format(recovery=recovery, window=WINDOW, rate=RATE, count=""))
    died: Counter[str] = Counter()
    with running("run", "small.yaml", cwd=folder) as command:
        output = folder / "out" / "sums.csv"
        _grown(command, output)
        for together in victims:
            pids = _replicas(folder)
            for who in together:
                os.kill(pids[who], signal.SIGKILL)
            died.update(together if recovery == "respawn" else ())  # Else what goes on is all there is to see.
            _until(command, lambda: all(_recovered(folder, who) >= died[who] for who in died), f"{together} are back")
            _grown(command, output)
        command.interrupt()
        rows = command.ended().ok().files["sums.csv"]
    assert _undisturbed(folder / "alone", rows.count(b"\n")) == rows, "the output is not that of an undisturbed run"


def _undisturbed(folder: Path, count: int) -> bytes:
    folder.mkdir()
    text = TOPOLOGY.format(recovery="respawn", window=262144, rate=10_000_000, count=f"count: {count}, ")
    (folder / "small.yaml").write_text(text)
    return run("run", "small.yaml", cwd=folder).ok().files["sums.csv"]


def _grown(command: Running, output: Path) -> None:
    """Wait until there is more than a window more of output."""
    before = _rows(output)
    _until(command, lambda: _rows(output) > before + 2 * WINDOW, "it goes on")


def _rows(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0


def _until(command: Running, condition: Callable[[], bool], what: str) -> None:
    until(lambda: condition() or command.process.poll() is not None, what)
    assert command.process.poll() is None, f"it ended:\n{command.err.text[-3000:]}"


def _events(folder: Path) -> str:
    found = list(folder.glob("runs/*/events.log"))
    return found[0].read_text() if found else ""


def _recovered(folder: Path, who: str) -> int:
    return _events(folder).count(f" recovered {who} in ")


def _replicas(folder: Path) -> dict[str, int]:
    return {f"{name} {number}": int(pid) for name, number, pid in UP.findall(_events(folder))}


def main(recovery: str = "respawn") -> int:
    """All of them, in as few runs as can bear them: with ``spread`` nobody comes back, so each in a run of its own."""
    folder, begun, every = Path(tempfile.mkdtemp(prefix="every-death-")), time.monotonic(), deaths()
    runs = RUNS if recovery == "respawn" else len(every)
    try:
        for number in range(runs):
            borne(folder / str(number), every[number::runs], recovery)
    except AssertionError as wrong:
        print(f"WRONG: {wrong}\nkept: {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"{len(every)} sets of replicas killed, {recovery}, {time.monotonic() - begun:.0f} s, output identical")
    return 0
