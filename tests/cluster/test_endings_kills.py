"""Whichever process of a run dies or hangs, nothing is left: no process, no socket file, no temporary folder.

After the end of a front end that was killed the others notice and go by themselves. A replica is replaced.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from pathlib import Path

import psutil
import pytest
from endings_kit import (
    DIAMOND,
    DRAINING,
    LEAVE_WITHIN_S,
    MOMENTS,
    MOVING,
    RUNNING,
    is_a_prefix,
    is_complete,
    nothing_is_left,
    parts,
    rows_written,
    started,
    stuck,
    wait_for,
)
from kit import Running, until

pytestmark = pytest.mark.cluster

TRIES = 5


@pytest.fixture
def diamond(tmp_path: Path) -> Path:
    (tmp_path / "diamond.yaml").write_text(DIAMOND)
    return tmp_path


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
    """Nobody knows of the others yet; they are started again. On a busy machine the kills may come so late that the run
    has begun, and with both replicas of an operator their state is gone: then once more."""
    (diamond / "diamond.yaml").write_text(f"recovery: {recovery}\n{DIAMOND}")
    for _ in range(TRIES):
        with started(diamond) as command:
            family = psutil.Process(command.process.pid)
            until(lambda: len(descendants(family, 2)) > max(victims), "they are there")  # noqa: B023
            there = descendants(family, 2)
            for number in victims:
                there[number].kill()
            late = begun(command)
            until(lambda: rows_written(diamond) > 0 or command.process.poll() is not None, "it goes on")
            with contextlib.suppress(ProcessLookupError):  # It is over.
                command.interrupt()
            outcome = command.ended(20)
        nothing_is_left()
        assert "Traceback" not in outcome.err
        if not late or outcome.code == 0:
            break
        assert "all copies of it are gone" in outcome.err
        shutil.rmtree(diamond / "runs")
        shutil.rmtree(diamond / "out", ignore_errors=True)
    assert is_a_prefix(outcome.ok()) > 0


def begun(command: Running) -> bool:
    """Whether Start has been said."""
    (log,) = (command.cwd / "runs").glob("*/puppetmaster.log")
    return '"start"' in log.read_text()


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
