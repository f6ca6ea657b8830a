"""What the tests on real processes share: the ``dadstorm`` command as a user's shell would start it.

``run`` is for commands that end by themselves, ``running`` for those that a test talks to while they run. Both have a
deadline for everything, both work in a folder of the test's own, and both kill what they started if the test fails.
Nothing here knows about the inside of DADSTORM: what a test sees is exit codes, what was printed, and files.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 150.0
"""How long a command may take if a test does not say: a hundred times what it needs, for machines that are busy."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    arguments: tuple[str, ...]
    code: int
    """Exit code; negative: the signal that ended it."""
    out: str
    err: str
    seconds: float
    files: dict[str, bytes] = field(repr=False)
    """What it wrote below ``out`` in its folder, by relative path."""

    def ok(self) -> Outcome:
        """Itself, if it ended well; else fails with all that it said."""
        said = f"--- stdout\n{self.out}\n--- stderr\n{self.err}"
        assert self.code == 0, f"dadstorm {' '.join(self.arguments)} ended with {self.code}\n{said}"
        return self


def run(
    *arguments: str | Path,
    cwd: Path,
    stdin: bytes = b"",
    within_s: float = WITHIN_S,
    program: str = "dadstorm",
    as_typed: bool = False,
) -> Outcome:
    """Run ``dadstorm ARGUMENTS`` (or another of our programs) to its end."""
    with running(*arguments, cwd=cwd, stdin=subprocess.PIPE, program=program, as_typed=as_typed) as command:
        assert command.process.stdin is not None
        with suppress(BrokenPipeError):
            command.process.stdin.write(stdin)
            command.process.stdin.close()
        return command.ended(within_s)


def scripted(folder: Path, text: str, *lines: str) -> Outcome:
    """A run of a topology with these commands for a script."""
    (folder / "t.yaml").write_text(text)
    (folder / "script.txt").write_text("".join(f"{line}\n" for line in lines))
    return run("run", "t.yaml", "--script", "script.txt", cwd=folder)


@contextmanager
def running(
    *arguments: str | Path,
    cwd: Path,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    program: str = "dadstorm",
    as_typed: bool = False,
) -> Iterator[Running]:
    """``dadstorm ARGUMENTS``, running; killed when the block is left and it has not ended. Unless ``as_typed``, results
    that nobody says how to write are written as CSV."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    arguments = arguments if as_typed else as_csv(program, arguments, cwd)
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", program, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    command = Running(tuple(map(str, arguments)), process, cwd, begun)
    try:
        yield command
    finally:
        if process.poll() is None:
            process.kill()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        process.wait()
        command.out.join()
        command.err.join()


def as_csv(program: str, arguments: tuple[str | Path, ...], cwd: Path) -> tuple[str | Path, ...]:
    """The arguments, and ``--sink csv`` where results would else be written with Spark, which takes seconds to start:
    nobody says a sink, neither here nor in the topology."""
    runs = program == "puppetmaster" or arguments[:1] == ("run",)
    files = [path for one in arguments if str(one).endswith(".yaml") and (path := cwd / one).is_file()]
    if not runs or not files or "--sink" in arguments or re.search(rb"^sinks:", files[0].read_bytes(), re.MULTILINE):
        return arguments
    return (*arguments, "--sink", "csv")


class Running:
    """A command while it runs."""

    def __init__(self, arguments: tuple[str, ...], process: subprocess.Popen[bytes], cwd: Path, begun: float) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.arguments = arguments
        self.process = process
        self.cwd = cwd
        self.begun = begun
        self.out = Heard(process.stdout)
        self.err = Heard(process.stderr)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """What ^C in a terminal does: the signal goes to the whole foreground group."""
        os.killpg(self.process.pid, number)

    def ended(self, within_s: float = WITHIN_S) -> Outcome:
        """Wait for its end."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            said = f"--- stdout\n{self.out.text}\n--- stderr\n{self.err.text}"
            raise AssertionError(
                f"dadstorm {' '.join(self.arguments)} did not end within {within_s:g} s\n{said}"
            ) from None
        seconds = time.monotonic() - self.begun
        self.out.join()
        self.err.join()
        return Outcome(self.arguments, code, self.out.text, self.err.text, seconds, files_in(self.cwd / "out"))


class Heard:
    """What a process says on one of its pipes, line by line, and when each line came."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._changed = threading.Condition()
        self._lines: list[tuple[float, str]] = []
        self._over = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self._pipe:
            with self._changed:
                self._lines.append((time.monotonic(), line.decode("utf-8", "replace")))
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def join(self) -> None:
        self._thread.join()
        self._pipe.close()

    @property
    def lines(self) -> list[str]:
        return [line.rstrip("\n") for _, line in list(self._lines)]

    @property
    def text(self) -> str:
        return "".join(line for _, line in list(self._lines))

    def wait_for(self, wanted: str | Callable[[str], bool], within_s: float = WITHIN_S) -> float:
        """When the first line came that contains (or satisfies) what is wanted; fails after the deadline."""
        fits = wanted if callable(wanted) else lambda line: wanted in line
        deadline = time.monotonic() + within_s
        looked = 0
        with self._changed:
            while True:
                for moment, line in self._lines[looked:]:
                    if fits(line):
                        return moment
                looked = len(self._lines)
                left = deadline - time.monotonic()
                assert not self._over, f"it ended and never said {wanted!r}; it said:\n{self.text}"
                assert left > 0, f"it did not say {wanted!r} within {within_s:g} s; it said:\n{self.text}"
                self._changed.wait(left)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its relative path; none if there is no such folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def until(holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """Wait for a condition that nobody announces; fails after the deadline."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
        time.sleep(0.01)


def free_port() -> int:
    """A TCP port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connected(port: int, within_s: float = WITHIN_S) -> socket.socket:
    """A connection to a port of this machine, once somebody listens on it."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=within_s)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens on port {port} within {within_s:g} s"
            time.sleep(0.01)
