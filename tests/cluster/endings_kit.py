"""What the tests of endings share: a run that goes on until it is told to stop, and the moments of its life."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from conftest import MARK, processes_left
from kit import Outcome, Running, running, until

DIAMOND = """
sources:
  g: {generate: {n: counter}, rate: 4000}
operators:
  left:  {input: g, dup: , replicas: 2}
  right: {input: g, filter: n >= 0}
  both:  {input: [left, right], dup: }
suspect_after: 10m
"""
"""It runs until it is told to stop; every number comes out twice, in order. Nobody is suspected of being dead: on a
machine that is busy with other things that would happen, and is another test's affair."""

STUCK = """
sources:
  g: {generate: {n: counter}, rate: 1000}
operators:
  slow: {input: g, custom: functions.stuck, fields: [n:int]}
suspect_after: 10m
"""
FUNCTIONS = """
import time

def stuck(n):
    open("stuck-" + str(n), "w").close()
    while n == 100:
        pass
    return n
"""
"""A user's function that never comes back: whoever waits for its replica to stop by itself waits for ever."""

AT_ONCE, RUNNING, DRAINING = "at once", "running", "draining"
SOON = {f"after {ms} ms": ms / 1000 for ms in (50, 150, 300, 450, 600)}
MOVING = [RUNNING, DRAINING]
MOMENTS = [AT_ONCE, *SOON, *MOVING]

LEAVE_WITHIN_S = 5.0
"""How long those may take whose front end was killed."""


@contextmanager
def started(folder: Path, topology: str = "diamond.yaml", *options: str) -> Iterator[Running]:
    with running("run", topology, *options, cwd=folder) as command:
        yield command


def nothing_is_left(within_s: float = 0.0) -> None:
    """No process of this test lives, and the folder for temporary files is empty."""
    left = processes_left(os.environ[MARK], within_s)
    assert not left, f"left: {[(process.pid, process.cmdline()) for process in left]}"
    assert os.listdir(tempfile.gettempdir()) == []


def wait_for(command: Running, moment: str) -> None:
    """Until the run is at this moment of its life. Those of the beginning are times: each is somewhere else in it."""
    if moment in SOON:
        time.sleep(max(0.0, command.begun + SOON[moment] - time.monotonic()))
    elif moment in (RUNNING, DRAINING):
        until(lambda: rows_written(command.cwd) > 0, "rows come out")
        if moment == DRAINING:
            command.process.send_signal(signal.SIGINT)
            command.err.wait_for("draining")


def rows_written(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("out/*.csv"))


def parts(command: Running) -> tuple[psutil.Process, psutil.Process, dict[str, psutil.Process]]:
    """The PCS, the zygote, and the replicas by name."""
    log = command.cwd / "runs" / "diamond-1" / "puppetmaster.log"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    replicas = {e["replica"]: psutil.Process(e["pid"]) for e in events if e["event"] == "replica up"}
    (pcs,) = psutil.Process(command.process.pid).children()
    (zygote,) = pcs.children()
    return pcs, zygote, replicas


def is_a_prefix(outcome: Outcome) -> int:
    """The output is every number twice, up to some number; how many numbers."""
    lines = outcome.files.get("both.csv", b"").decode().splitlines()
    assert lines == [str(i // 2) for i in range(len(lines))]
    assert len(lines) % 2 == 0
    return len(lines) // 2


def is_complete(outcome: Outcome) -> None:
    """The output is a prefix, and holds everything that was read."""
    numbers = is_a_prefix(outcome)
    read = re.search(r"^diamond: ([\d,]+) tuples in ", outcome.err, re.MULTILINE)
    assert read, outcome.err
    assert numbers == int(read[1].replace(",", ""))


def was_still_starting(outcome: Outcome) -> bool:
    """Whether Python was interrupted while it started, before the first function of ours was called."""
    ours = re.search(r'File ".*/(dadstorm|puppetmaster|pcs)/.*", line \d+, in [^<]', outcome.err)
    return "KeyboardInterrupt" in outcome.err and not ours


@contextmanager
def stuck(folder: Path) -> Iterator[Running]:
    """A run one replica of which is in the user's function and does not come back."""
    (folder / "stuck.yaml").write_text(STUCK)
    (folder / "functions.py").write_text(FUNCTIONS)
    with started(folder, "stuck.yaml") as command:
        until((folder / "stuck-100").exists, "the function is stuck")
        yield command
