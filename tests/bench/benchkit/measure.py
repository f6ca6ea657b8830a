"""What a command costs: time by the clock, CPU and memory of all its processes, time to its first output.

CPU is what the kernel has booked for the command and for every descendant whose end somebody has waited for. A process
that nobody waits for (some peers have such) is not in that sum, so the sum over the processes that were seen is taken
as well, and the larger of the two counts.

Memory is the sum of the proportional set sizes, so that pages which several processes share count once. To look is not
free: it walks the page tables of all processes. So the pause between two looks is twenty times the CPU that the last
one took, at most 5 % of one core, by the same rule for everybody.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))

from memory import pss_mb

PAUSE_S = 0.1
PAUSE_SHARE = 20
WATCH_S = 0.002
"""Between two looks at an output that is still empty, and at the very start: some commands are over soon."""


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_s: float
    peak_mb: float
    first_s: float | None
    """From the start to the first byte of output, where that was asked for."""


class Failed(SystemExit):
    """A command that ended badly or not at all, and so does the benchmark; says which, and what it said last."""


class Tree:
    """What the processes below a command have been seen to take."""

    def __init__(self, pid: int) -> None:
        self._front = psutil.Process(pid)
        self._cpu_s: dict[int, float] = {}
        self.peak_mb = 0.0

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())

    def look(self) -> None:
        with suppress(psutil.Error):
            for process in [self._front, *self._front.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self._cpu_s[process.pid] = times.user + times.system
        with suppress(psutil.Error):
            self.peak_mb = max(self.peak_mb, pss_mb(self._front))


class Waiter(threading.Thread):
    """Waits for a child's end, to know the moment exactly and to get what the kernel has booked for it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.over = threading.Event()
        self.ended = 0.0
        self.cpu_s = 0.0

    def run(self) -> None:
        _, status, usage = os.wait4(self._process.pid, 0)
        self.ended = time.monotonic()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.over.set()


def measured(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
    within_s: float = 900.0,
) -> Cost:
    """Run a command to its end. What it prints goes to a log in ``cwd``; when ``output`` first has a byte is noted."""
    log = cwd / "said.log"
    with open(log, "wb") as said:
        begun = time.monotonic()
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    waiter = Waiter(process)
    waiter.start()
    tree, first, watching = Tree(process.pid), None, True
    next_look = begun
    try:
        while not waiter.over.wait(WATCH_S if watching else PAUSE_S / 4):
            now = time.monotonic()
            if now - begun > within_s:
                raise Failed(f"did not end within {within_s:g} s: {' '.join(command)}\n{last_words(log)}")
            if output is not None and first is None and output.exists() and output.stat().st_size:
                first = now - begun
            watching = (output is not None and first is None) or now - begun < PAUSE_S
            if now >= next_look:
                worked = time.thread_time()
                tree.look()
                next_look = time.monotonic() + max(PAUSE_S, PAUSE_SHARE * (time.thread_time() - worked))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        waiter.join()
    if output is not None and first is None and output.exists():
        first = waiter.ended - begun
    if process.returncode != 0:
        raise Failed(f"ended with {process.returncode}: {' '.join(command)}\n{last_words(log)}")
    return Cost(waiter.ended - begun, max(waiter.cpu_s, tree.cpu_s), tree.peak_mb, first)


def last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])
