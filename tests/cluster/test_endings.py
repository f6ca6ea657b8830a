"""However a run ends, nothing is left: no process, no socket file, no temporary folder.

Every way to end it (by itself, by an error, by the user, by a signal) at several moments; ``test_endings_kills``
has the deaths of its processes. A front end that is not killed itself leaves last: when it is gone, everything is. ^C
drains: what comes out is all that was read, and no more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from endings_kit import (
    AT_ONCE,
    DIAMOND,
    MOMENTS,
    RUNNING,
    SOON,
    STUCK,
    is_a_prefix,
    is_complete,
    nothing_is_left,
    rows_written,
    started,
    stuck,
    wait_for,
    was_still_starting,
)
from kit import ROOT, Running, run, running, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def diamond(tmp_path: Path) -> Path:
    (tmp_path / "diamond.yaml").write_text(DIAMOND)
    return tmp_path


# -- by itself --------------------------------------------------------------------------------------------------------


def test_after_a_normal_end_nothing_is_left(tmp_path: Path) -> None:
    run("run", ROOT / "configs" / "reach.yaml", cwd=tmp_path).ok()
    nothing_is_left()


def test_after_a_mistake_in_the_topology_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(DIAMOND.replace("filter", "fliter"))
    outcome = run("run", "wrong.yaml", cwd=tmp_path)
    assert outcome.code == 2, outcome.err
    nothing_is_left()


def test_after_an_error_in_the_data_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1\n2\nthree\n")
    (tmp_path / "data.yaml").write_text(
        "sources: {d: {csv: data.csv, fields: [n:int]}}\noperators: {a: {input: d, dup: , replicas: 3}}\n"
    )
    outcome = run("run", "data.yaml", cwd=tmp_path)
    assert outcome.code == 1, outcome.err
    nothing_is_left()


def test_what_a_users_function_has_started_ends_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(
        "import os, subprocess\n\n"
        "def forks(n):\n    os.fork()\n    return n\n\n"
        "def starts(n):\n    subprocess.Popen(['sleep', '1000'])\n    return n\n"
    )
    (tmp_path / "forks.yaml").write_text(
        "sources: {g: {generate: {n: counter}, count: 3}}\noperators:\n"
        "  a: {input: g, custom: functions.forks, fields: [n:int]}\n"
        "  b: {input: a, custom: functions.starts, fields: [n:int]}\n"
    )
    outcome = run("run", "forks.yaml", cwd=tmp_path).ok()
    nothing_is_left()
    assert outcome.files["b.csv"] == b"0\n1\n2\n"
    assert outcome.seconds < 15


def test_when_nobody_reads_the_output_any_more_nothing_is_left(diamond: Path) -> None:
    """What ``dadstorm run … | head`` does: the front end cannot write any more."""
    with subprocess.Popen(
        [sys.executable, "-m", "dadstorm", "run", "diamond.yaml", "--sink", "console"],
        cwd=diamond,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline()
        command.stdout.close()
        assert command.wait(30) == 1
    nothing_is_left()


# -- by the user ------------------------------------------------------------------------------------------------------


def to_front_end(command: Running, number: int) -> None:
    command.process.send_signal(number)


def to_group(command: Running, number: int) -> None:
    command.interrupt(number)


ENDS: dict[str, tuple[int, Callable[[Running, int], None]]] = {
    "^C": (signal.SIGINT, to_group),
    "SIGINT": (signal.SIGINT, to_front_end),
    "SIGTERM": (signal.SIGTERM, to_front_end),
    "SIGHUP": (signal.SIGHUP, to_group),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("moment", [AT_ONCE, *SOON])
def test_a_run_that_is_ended_while_it_starts(diamond: Path, how: str, moment: str) -> None:
    """Ended by the signal, or with 130, or, if it came that far, drained; never with half of something."""
    number, send = ENDS[how]
    with started(diamond) as command:
        wait_for(command, moment)
        send(command, number)
        outcome = command.ended()
    nothing_is_left()
    assert outcome.code in (0, 130, -number) or was_still_starting(outcome), outcome.err
    assert "Traceback" not in outcome.err or was_still_starting(outcome), outcome.err
    is_a_prefix(outcome)
    if outcome.code == 0:
        is_complete(outcome)


@pytest.mark.parametrize("how", ENDS)
def test_a_run_that_is_ended_drains_and_its_output_is_complete(diamond: Path, how: str) -> None:
    number, send = ENDS[how]
    with started(diamond) as command:
        wait_for(command, RUNNING)
        send(command, number)
        outcome = command.ended().ok()
    nothing_is_left()
    assert "draining" in outcome.err
    assert is_a_prefix(outcome) > 0
    is_complete(outcome)


@pytest.mark.parametrize("moment", MOMENTS)
def test_ended_twice_it_stops_at_once(diamond: Path, moment: str) -> None:
    with started(diamond) as command:
        wait_for(command, moment)
        command.interrupt()
        command.interrupt()
        outcome = command.ended()
    nothing_is_left()
    assert outcome.code in (0, 1, 130, -signal.SIGINT), outcome.err
    assert "Traceback" not in outcome.err or was_still_starting(outcome), outcome.err
    is_a_prefix(outcome)


@pytest.mark.parametrize("program", ["dadstorm", "puppetmaster"])
def test_a_run_that_is_ended_before_its_start_ends_with_nothing(diamond: Path, program: str) -> None:
    """The signal comes when all replicas are there and none was told to begin."""
    lines = "Wait 600000\nStart\n"
    if program == "dadstorm":
        (diamond / "script.txt").write_text(lines)
        arguments = ("run", "diamond.yaml", "--script", "script.txt")
    else:
        arguments = ("diamond.yaml",)
    with running(*arguments, cwd=diamond, program=program, stdin=subprocess.PIPE) as command:
        assert command.process.stdin is not None
        command.process.stdin.write(lines.encode())
        command.process.stdin.flush()
        until(lambda: "Wait" in events(diamond), "it waits")
        command.interrupt()
        outcome = command.ended(60).ok()
    nothing_is_left()
    is_a_prefix(outcome)
    assert "cannot finish" not in outcome.out + outcome.err


def events(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("runs/*/events.log"))


def test_a_second_interrupt_ends_a_drain_that_does_not(tmp_path: Path) -> None:
    with stuck(tmp_path) as command:
        command.interrupt()
        command.err.wait_for("draining")
        assert command.process.poll() is None
        command.interrupt()
        outcome = command.ended(20)
    nothing_is_left()
    assert outcome.code == 1
    assert "stopped at once" in outcome.err
    assert "Traceback" not in outcome.err


def test_an_interrupt_ends_the_reading_of_a_topology_that_does_not(tmp_path: Path) -> None:
    """A user's module that does not finish importing."""
    (tmp_path / "stuck.yaml").write_text(STUCK)
    (tmp_path / "functions.py").write_text("open('importing', 'w').close()\nwhile True: pass\n")
    with started(tmp_path, "stuck.yaml") as command:
        until((tmp_path / "importing").exists, "the module is being imported")
        command.interrupt()
        outcome = command.ended(20)
    nothing_is_left()
    assert outcome.code != 0
    assert not (tmp_path / "runs").exists()


def test_a_signal_that_was_ignored_from_the_start_stays_ignored(diamond: Path) -> None:
    """What nohup is for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with started(diamond) as command:
            wait_for(command, RUNNING)
            command.interrupt(signal.SIGHUP)
            written = rows_written(diamond)
            until(lambda: rows_written(diamond) > written + 20_000, "it goes on")
            command.interrupt(signal.SIGINT)
            outcome = command.ended().ok()
    finally:
        signal.signal(signal.SIGHUP, before)
    nothing_is_left()
    is_complete(outcome)
