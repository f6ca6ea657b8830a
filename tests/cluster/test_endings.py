"""However a run ends, nothing is left: no process, no socket file, no temporary folder.

Every way to end it (by itself, by an error, by the user, by a signal to any of its processes) at several moments of its
life. A front end that is not killed itself leaves last: when it is gone, everything is. After the end of a front end
that was killed the others notice and go by themselves. ^C drains: what comes out is all that was read, and no more.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from conftest import MARK, processes_left
from kit import ROOT, Outcome, Running, run, running, until

pytestmark = pytest.mark.cluster

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


@pytest.fixture
def diamond(tmp_path: Path) -> Path:
    (tmp_path / "diamond.yaml").write_text(DIAMOND)
    return tmp_path


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


@contextmanager
def stuck(folder: Path) -> Iterator[Running]:
    """A run one replica of which is in the user's function and does not come back."""
    (folder / "stuck.yaml").write_text(STUCK)
    (folder / "functions.py").write_text(FUNCTIONS)
    with started(folder, "stuck.yaml") as command:
        until((folder / "stuck-100").exists, "the function is stuck")
        yield command


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


# -- by the death of one of its processes -----------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_front_end_that_is_killed_leaves_nothing(diamond: Path, moment: str) -> None:
    with started(diamond) as command:
        wait_for(command, moment)
        command.process.kill()
        outcome = command.ended()
    nothing_is_left(LEAVE_WITHIN_S)
    assert outcome.code in (-signal.SIGKILL, 0)


def test_a_front_end_that_is_killed_leaves_no_replica_that_is_stuck(tmp_path: Path) -> None:
    with stuck(tmp_path) as command:
        command.process.kill()
        command.ended()
    nothing_is_left(LEAVE_WITHIN_S)


def test_a_front_end_that_is_killed_leaves_no_replica_that_is_stopped(diamond: Path) -> None:
    with started(diamond) as command:
        wait_for(command, RUNNING)
        for replica in parts(command)[2].values():
            replica.suspend()
        command.process.kill()
        command.ended()
    nothing_is_left(LEAVE_WITHIN_S)


def test_a_front_end_that_is_killed_with_its_pcs_leaves_nothing(diamond: Path) -> None:
    with started(diamond) as command:
        wait_for(command, RUNNING)
        pcs = parts(command)[0]
        command.process.kill()
        pcs.kill()
        command.ended()
    nothing_is_left(LEAVE_WITHIN_S)


@pytest.mark.parametrize("moment", MOVING)
@pytest.mark.parametrize("which", ["PCS", "zygote"])
def test_a_run_whose_processes_have_lost_their_parent_fails(diamond: Path, which: str, moment: str) -> None:
    with started(diamond) as command:
        wait_for(command, RUNNING)
        pcs, zygote, _ = parts(command)
        wait_for(command, moment)
        (pcs if which == "PCS" else zygote).kill()
        outcome = command.ended(20)
    nothing_is_left()
    # A drain may be over before the death is noticed.
    assert outcome.code == 1 or (moment == DRAINING and outcome.code == 0), outcome.err
    assert "Traceback" not in outcome.err
    if outcome.code:
        assert "failed: the PCS, the parent of the replicas, died" in outcome.err
    is_a_prefix(outcome)


def test_a_run_without_parent_leaves_no_replica_that_is_stuck(tmp_path: Path) -> None:
    """The zygote's children cannot be ended by the zygote any more."""
    with stuck(tmp_path) as command:
        (pcs,) = psutil.Process(command.process.pid).children()
        (zygote,) = pcs.children()
        zygote.kill()
        outcome = command.ended(20)
    nothing_is_left()
    assert outcome.code == 1, outcome.err


def descendants(process: psutil.Process | None, depth: int) -> list[psutil.Process]:
    """The children of its first child's … first child, as far as they are there."""
    for _ in range(depth):
        try:
            children = process.children() if process else []
        except psutil.NoSuchProcess:
            children = []
        process = children[0] if children else None
    return process.children() if process else []


@pytest.mark.parametrize("generation", ["PCS", "zygote"])
def test_a_parent_that_is_killed_as_soon_as_it_is_there(diamond: Path, generation: str) -> None:
    """Without a parent nothing can run."""
    with started(diamond) as command:
        family = psutil.Process(command.process.pid)
        depth = ["PCS", "zygote"].index(generation)
        until(lambda: bool(descendants(family, depth)), f"there is a {generation}")
        descendants(family, depth)[0].kill()
        outcome = command.ended(20)
    nothing_is_left()
    assert "Traceback" not in outcome.err
    assert outcome.code == 1, outcome.err
    assert "\nfailed: " in f"\n{outcome.err}", outcome.err


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
@pytest.mark.parametrize("victims", [[0], [1], [5], [1, 2]])
def test_replicas_that_are_killed_as_soon_as_they_are_there(diamond: Path, victims: list[int], recovery: str) -> None:
    """Nobody knows of the others yet; they are started again."""
    (diamond / "diamond.yaml").write_text(f"recovery: {recovery}\n{DIAMOND}")
    with started(diamond) as command:
        family = psutil.Process(command.process.pid)
        until(lambda: len(descendants(family, 2)) > max(victims), "they are there")
        there = descendants(family, 2)
        for number in victims:
            there[number].kill()
        wait_for(command, RUNNING)
        command.interrupt()
        outcome = command.ended(20)
    nothing_is_left()
    assert "Traceback" not in outcome.err
    assert is_a_prefix(outcome.ok()) > 0


@pytest.mark.parametrize(
    "name, moment",
    [
        ("g replica 0", RUNNING),
        ("g replica 0", DRAINING),
        *((name, moment) for name in ("left replica 1", "both replica 0", "both.sink replica 0") for moment in MOVING),
    ],
)
def test_a_replica_that_is_killed_is_replaced_and_leaves_nothing(diamond: Path, name: str, moment: str) -> None:
    with started(diamond) as command:
        wait_for(command, RUNNING)
        victim = parts(command)[2][name]
        wait_for(command, moment)
        victim.kill()
        if moment == RUNNING:
            written = rows_written(diamond)
            until(lambda: rows_written(diamond) > written + 5_000, "it goes on")
            command.interrupt()
        outcome = command.ended().ok()
    nothing_is_left()
    assert "Traceback" not in outcome.err
    assert is_a_prefix(outcome) > 0


# -- with processes that hang -----------------------------------------------------------------------------------------


def test_a_replica_that_is_stopped_for_a_while_does_not_change_the_output(diamond: Path) -> None:
    with started(diamond) as command:
        wait_for(command, RUNNING)
        replica = parts(command)[2]["left replica 1"]
        replica.suspend()
        command.interrupt()
        command.err.wait_for("draining")
        replica.resume()
        outcome = command.ended().ok()
    nothing_is_left()
    is_complete(outcome)


def test_a_replica_that_hangs_at_the_end_is_not_waited_for_long(tmp_path: Path) -> None:
    """The second replica of a COUNT stands by: it is finished at once. Then it hangs; the others finish."""
    (tmp_path / "diamond.yaml").write_text(
        "sources:\n  g: {generate: {n: counter}, rate: 2000, count: 3000}\n"
        "operators:\n  c: {input: g, count: , replicas: 2}\n"
    )
    with started(tmp_path) as command:
        log = tmp_path / "runs" / "diamond-1" / "puppetmaster.log"
        until(lambda: log.exists() and "replica finished" in log.read_text(), "the one that stands by is finished")
        parts(command)[2]["c replica 1"].suspend()
        outcome = command.ended(30).ok()
    nothing_is_left()
    assert outcome.files["c.csv"].decode().split() == [str(n + 1) for n in range(3000)]


def test_a_zygote_that_hangs_is_killed_with_its_replicas(diamond: Path) -> None:
    with started(diamond) as command:
        wait_for(command, RUNNING)
        _, zygote, replicas = parts(command)
        zygote.suspend()
        replicas["left replica 0"].suspend()
        command.interrupt()
        command.err.wait_for("draining")
        command.interrupt()
        outcome = command.ended(30)
    nothing_is_left()
    assert outcome.code == 1, outcome.err
