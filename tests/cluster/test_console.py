"""A console session as a person has it: through a pseudo-terminal, key by key; and the same commands from a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.kit import ROOT, WITHIN_S, as_csv, run, until
from tests.cluster.test_script import COUNTED, NUMBERS, commands, events

pytestmark = pytest.mark.cluster

ENDLESS = """\
sources: {numbers: {generate: {n: counter}, rate: 1000}}
operators:
  pass: {input: numbers, dup: , replicas: 2}
  count: {input: pass, count: }
"""
TAB, UP, CTRL_C, CTRL_D = "\t", "\x1b[A", "\x03", "\x04"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
_HALF = re.compile(r"\x1b(\[[0-9;?]*)?\Z")
BEGUN = "Type Help for the commands"


class Screen:
    """Somebody at a terminal: types keys, reads what appears."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._fd = fd
        self._process = process
        self._folder = folder
        self._raw = ""
        self._text = ""
        self._seen = 0

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def enter(self, line: str) -> None:
        self.type(f"{line}\r")

    def completed(self, typed: str, rest: str) -> None:
        """Type the beginning of a word, and let Tab add the rest."""
        self.type(f"{typed}{TAB}")
        self.wait_for(rest)

    def wait_for(self, wanted: str, within_s: float = WITHIN_S) -> str:
        """What has appeared since the last time, up to and with what is wanted."""
        deadline = time.monotonic() + within_s
        while (at := self._text.find(wanted, self._seen)) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"{wanted!r} did not appear; what did:\n{self._text[self._seen :]}"
            self._read(left)
        found, self._seen = self._text[self._seen : at + len(wanted)], at + len(wanted)
        return found

    def _read(self, within_s: float) -> None:
        if select.select([self._fd], [], [], within_s)[0]:
            try:
                chunk = os.read(self._fd, 65536)
            except OSError:
                chunk = b""
            assert chunk, f"the console ended; what had appeared:\n{self._text[self._seen :]}"
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        """Keep the text without what moves the cursor; an escape sequence that is not all there yet waits."""
        self._raw += chunk.decode("utf-8", "replace")
        whole = self._raw[: half.start()] if (half := _HALF.search(self._raw)) else self._raw
        self._raw = self._raw[len(whole) :]
        self._text += _ESCAPE.sub("", whole)

    def logged(self, command: str, run_name: str = "t-1") -> None:
        """Wait until a command was carried out, reading on meanwhile: a terminal that nobody reads fills up."""
        path = self._folder / "runs" / run_name / "events.log"

        def there() -> bool:
            self._read(0.01)
            return path.exists() and any(line.endswith(f" {command}") for line in path.read_text().splitlines())

        until(there, f"{command} in the log")

    def ended(self) -> int:
        """The exit code, once it has ended."""
        deadline = time.monotonic() + WITHIN_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"the console did not end:\n{self._text[self._seen :]}"
            if select.select([self._fd], [], [], 0.05)[0]:
                try:
                    self._take(os.read(self._fd, 65536))
                except OSError:
                    break
        return self._process.wait(WITHIN_S)


@contextmanager
def at_the_console(folder: Path, *arguments: str) -> Iterator[Screen]:
    """``puppetmaster ARGUMENTS`` on a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(folder / "state"),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "puppetmaster", *as_csv("puppetmaster", arguments, folder)],
        cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Screen(ours, process, folder)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.yaml").write_text(ENDLESS)
    return tmp_path


def test_a_session(folder: Path) -> None:
    with at_the_console(folder, "t.yaml") as screen:
        screen.wait_for(BEGUN)
        screen.wait_for("puppetmaster>")
        # Completion: of a command, an operator, a replica's number.
        screen.completed("Inter", "val")
        screen.completed(" pa", "ss")
        screen.enter(" 2")
        screen.logged("Interval pass 2")
        screen.completed("Fr", "eeze")
        screen.completed(" count.s", "ink")
        screen.completed(" ", "0")
        screen.enter("")
        screen.logged("Freeze count.sink 0")
        screen.enter("Unfreeze count.sink 0")
        # A wrong command says so and changes nothing.
        screen.enter("Frezze count 0")
        screen.wait_for('unknown command "Frezze"')
        screen.wait_for('did you mean "Freeze"?')
        screen.enter("Crash count 3")
        screen.wait_for("count has no replica 3; it has replica 0 only")
        screen.enter("help wait")
        screen.wait_for("let so much time pass")
        screen.enter("start")
        screen.logged("Start")
        # Status is a table, printed above the prompt.
        screen.enter("status pass")
        screen.wait_for("suspected by")
        assert "running" in screen.wait_for("running")
        # ^C throws away what was typed, and no more.
        screen.type(f"Crash pass 0{CTRL_C}")
        screen.enter("Status count")
        screen.logged("Status count")
        screen.wait_for("suspected by")
        # A crash is seen.
        screen.enter("Crash pass 1")
        screen.wait_for("died pass 1")
        screen.wait_for("recovered pass 1 in")
        # ^C at an empty prompt offers to drain, and the second time does.
        screen.type(CTRL_C)
        screen.wait_for("^C again: drain")
        screen.type(CTRL_C)
        screen.wait_for("draining")
        screen.enter("Interval pass 0")
        screen.wait_for("finished: all")
        # A key that comes while the prompt makes room for a line is the terminal's, not ours.
        screen.wait_for("puppetmaster>")
        screen.type(CTRL_D)
        assert screen.ended() == 0
    assert commands(events(folder, "t")) == [
        "Interval pass 2", "Freeze count.sink 0", "Unfreeze count.sink 0", "Start", "Status pass", "Status count",
        "Crash pass 1", "Stop", "Interval pass 0", "Exit",
    ]  # fmt: skip
    counts = (folder / "out" / "count.csv").read_text().split()
    assert counts and counts == [str(n) for n in range(1, len(counts) + 1)]


def test_history_outlives_a_session(folder: Path) -> None:
    with at_the_console(folder, "t.yaml") as screen:
        screen.wait_for("puppetmaster>")
        screen.enter("Interval pass 7")
        screen.logged("Interval pass 7")
        screen.enter("exit")
        assert screen.ended() == 0
    with at_the_console(folder, "t.yaml") as screen:
        screen.wait_for("puppetmaster>")
        screen.type(f"{UP}{UP}\r")
        screen.logged("Interval pass 7", "t-2")
        screen.type(CTRL_D)
        assert screen.ended() == 0


def test_a_script_comes_first_and_a_wait_can_be_ended(folder: Path) -> None:
    (folder / "s.txt").write_text("Start\nWait 600000\nCrash count 0\n")
    with at_the_console(folder, "t.yaml", "--script", "s.txt") as screen:
        screen.wait_for("> Wait 600000")
        screen.wait_for("puppetmaster>")
        screen.type(CTRL_C)
        screen.wait_for("the Wait was ended")
        screen.enter("Stop")
        screen.wait_for("finished: all")
        # A key that comes while the prompt makes room for a line is the terminal's, not ours.
        screen.wait_for("puppetmaster>")
        screen.type(CTRL_D)
        assert screen.ended() == 0
    assert commands(events(folder, "t")) == ["Start", "Wait 600000", "Stop", "Exit"]


def test_a_run_that_fails_ends_the_console_with_its_reason(folder: Path) -> None:
    (folder / "bad.py").write_text("def picky(n):\n    raise ValueError('no such thing')\n")
    (folder / "t.yaml").write_text(
        "sources: {numbers: {generate: {n: counter}, count: 5}}\n"
        "operators: {a: {input: numbers, custom: bad.picky, fields: [n:int]}}\n"
    )
    with at_the_console(folder, "t.yaml") as screen:
        screen.wait_for("puppetmaster>")
        screen.enter("start")
        screen.wait_for("no such thing")
        assert screen.ended() == 1


# -- a pipe ----------------------------------------------------------------------------------------------------------


def test_commands_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(NUMBERS)
    lines = b"start pass\nstatus --json\nnonsense\nWait 100\nStart count\nCrash pass 0"
    outcome = run("t.yaml", cwd=tmp_path, stdin=lines, program="puppetmaster").ok()
    assert outcome.files == {"count.csv": COUNTED}
    assert 'unknown command "nonsense"' in outcome.out and '"state": "waiting"' in outcome.out
    log = commands(events(tmp_path, "t"))
    assert log == ["Start pass", "Status --json", "Wait 100", "Start count", "Crash pass 0"]


def test_a_pipe_that_ends_before_all_are_started_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(NUMBERS)
    outcome = run("t.yaml", cwd=tmp_path, stdin=b"Start pass\n", program="puppetmaster").ok()
    assert "it cannot finish: count is not started" in outcome.out


def test_what_puppetmaster_cannot_do_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("sources: {lines: {stdin: text}}\noperators: {a: {input: lines, dup: }}\n")
    outcome = run("t.yaml", cwd=tmp_path, program="puppetmaster")
    assert outcome.code == 2 and "reads standard input" in outcome.err
    outcome = run(cwd=tmp_path, program="puppetmaster")
    assert outcome.code == 2 and "expected puppetmaster FILE" in outcome.err
    outcome = run("nothing.yaml", cwd=tmp_path, program="puppetmaster")
    assert outcome.code == 2 and "no such file" in outcome.err
