"""A PCS that is killed leaves its replicas at work, and one that is started in its place adopts them.

What is killed here is a PCS daemon, with SIGKILL: its zygote and its replicas go on, and wait for another PCS with the
same host, port and folder; but not for ever. What the new one adopts it looks after as if it had started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from kit import Running, files_in, free_port, run, running, until
from pcs_kit import pcs

pytestmark = pytest.mark.cluster

JOB = """
name: job
suspect_after: 20s
sources:
  g: {{generate: {{n: counter, k: {{int: [0, 20]}}}}, rate: {rate}, count: {count}, seed: 5}}
operators:
  some: {{input: g, filter: n >= 0, replicas: 2}}
  many: {{input: some, count: k}}
"""
ENDLESS = 1_000_000_000


class Host:
    """One PCS, started again and again at the same place."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._port = free_port()
        self.output = folder / "out" / "many.csv"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def pcs(self, *options: str, python: tuple[str, ...] = ()) -> Running:
        options = ("--out", str(self.folder / "out"), "--master-patience", "2", *options)
        started = pcs(self.folder / "host", *options, port=self._port, python=python)
        command, _ = self._stack.enter_context(started)
        return command

    @contextmanager
    def moving(self, *, count: int = ENDLESS, rate: int = 3000) -> Iterator[Running]:
        """A run at the PCS; rows come out."""
        (self.folder / "job.yaml").write_text(JOB.format(count=count, rate=rate))
        with running("run", "job.yaml", "--pcs", self.address, cwd=self.folder) as command:
            until(lambda: self.output.exists() and self.output.stat().st_size > 0, "rows come out")
            yield command

    def grows(self) -> None:
        size = self.output.stat().st_size
        until(lambda: self.output.stat().st_size > size + 2000, "it goes on")

    def is_right(self) -> None:
        """The output is that of an undisturbed run of as many rows: each gives one."""
        alone, rows = self.folder / "alone", self.output.read_bytes().count(b"\n")
        alone.mkdir()
        (alone / "job.yaml").write_text(JOB.format(count=rows, rate=10_000_000))
        assert run("run", "job.yaml", cwd=alone).ok().files == files_in(self.folder / "out")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "out").mkdir()
    with ExitStack() as stack:
        yield Host(tmp_path, stack)


def zygote_of(daemon: Running) -> psutil.Process:
    (zygote,) = psutil.Process(daemon.process.pid).children()
    return zygote


def kill(*commands: Running) -> None:
    for command in commands:
        command.process.send_signal(signal.SIGKILL)
    for command in commands:
        command.process.wait()


def pids(folder: Path) -> dict[str, int]:
    """The processes of the replicas, as the log has them."""
    lines = [line.split() for line in (folder / "runs" / "job-1" / "events.log").read_text().splitlines()]
    return {f"{line[2]} {line[3]}": int(line[-1]) for line in lines if line[1] == "up"}


def is_back(host: Host, name: str, before: int) -> None:
    """Somebody else has taken the place of this process."""
    until(lambda: pids(host.folder)[name] != before, f"{name} is brought back")


# -- adopted ----------------------------------------------------------------------------------------------------------


def test_a_pcs_that_is_started_again_adopts_its_replicas_and_brings_them_back_when_they_die(host: Host) -> None:
    """One of a ring, and a single one, whose copies the PCS that was killed had: it has given new ones since."""
    first = host.pcs()
    with host.moving() as command:
        before = pids(host.folder)
        kill(first)
        host.grows()
        second = host.pcs()
        assert "run adopted" in second.err.text
        assert all(psutil.pid_exists(pid) for pid in before.values()), "nobody was started anew"
        host.grows()
        for name in ("some 1", "many 0"):
            os.kill(before[name], signal.SIGKILL)
            is_back(host, name, before[name])
        host.grows()
        command.interrupt()
        command.ended().ok()
    host.is_right()


def test_who_died_while_there_was_no_pcs_is_brought_back_by_the_next_one(host: Host) -> None:
    first = host.pcs()
    with host.moving() as command:
        victim = pids(host.folder)["some 0"]
        kill(first)
        os.kill(victim, signal.SIGKILL)
        host.pcs()
        is_back(host, "some 0", victim)
        host.grows()
        command.interrupt()
        command.ended().ok()
    assert "recovered some 0" in (host.folder / "runs" / "job-1" / "events.log").read_text()
    host.is_right()


def test_puppetmaster_and_pcs_may_both_be_killed(host: Host) -> None:
    """The next PCS ends the run when it is over; nobody has to come."""
    first = host.pcs()
    with host.moving(count=12_000) as command:
        kill(command, first)
    host.grows()
    second = host.pcs()
    second.err.wait_for("run closed")
    assert not any(psutil.pid_exists(pid) for pid in pids(host.folder).values())
    host.is_right()


def test_a_puppetmaster_attaches_to_a_run_that_was_adopted(host: Host) -> None:
    first = host.pcs()
    with host.moving() as command:
        kill(command, first)
    host.pcs()
    arguments = ("--attach", "--pcs", host.address)
    outcome = run(*arguments, cwd=host.folder, stdin=b"Status\nStop\n", program="puppetmaster").ok()
    assert outcome.out.count(" running ") >= 4


# -- not adopted ------------------------------------------------------------------------------------------------------


def test_replicas_that_nobody_adopts_end_after_a_while(host: Host) -> None:
    first = host.pcs("--orphan-patience", "1")
    with host.moving() as command:
        zygote = zygote_of(first)
        left = [zygote, *zygote.children()]
        kill(command, first)
        assert len(left) == 6
        assert not psutil.wait_procs(left, timeout=10)[1]
    assert not (host.folder / "host" / "runs" / f".pcs-{host.address.replace(':', '-')}" / "zygote").exists()


def test_a_single_replica_that_dies_with_its_pcs_is_lost_and_that_is_a_clear_stop(host: Host) -> None:
    first = host.pcs()
    with host.moving() as command:
        kill(first)
        os.kill(pids(host.folder)["many 0"], signal.SIGKILL)
        host.pcs()
        outcome = command.ended()
    assert outcome.code == 1
    assert "the state of operator many is lost: its only replica and the PCS of its host" in outcome.err
    numbers = [line.rsplit(",", 1)[1] for line in outcome.files["many.csv"].decode().splitlines()]
    assert numbers, "what was committed is there"


def test_replicas_of_another_version_are_ended_and_that_is_told(host: Host) -> None:
    other = "import dadstorm; dadstorm.__version__ = '99.0'; from pcs import cli, service, zygote"
    first = host.pcs(python=("-c", f"{other}; import sys; sys.exit(cli.main(sys.argv[1:]))"))
    zygote = zygote_of(first)
    kill(first)
    second = host.pcs()
    assert "cannot be adopted, and were ended: it is of DADSTORM 99.0" in second.err.text
    assert not zygote.is_running() or zygote.status() == psutil.STATUS_ZOMBIE


RUBBISH = """
import os, socket, sys
os.chdir(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind("zygote")
listener.listen()
connection, _ = listener.accept()
connection.sendall(bytes.fromhex(sys.argv[2]))
connection.recv(1)
"""


@pytest.mark.parametrize("said", [b"\x07\0\0\0rubbish", b"\x50\0\0\0cut off", b"\xff\xff\xff\xff"])
def test_rubbish_in_its_place_does_not_keep_a_pcs_from_starting(host: Host, said: bytes) -> None:
    """Whoever listens in its private folder is no use to it."""
    nest = host.folder / "host" / "runs" / f".pcs-{host.address.replace(':', '-')}"
    nest.mkdir(parents=True, mode=0o700)
    with subprocess.Popen([sys.executable, "-c", RUBBISH, str(nest), said.hex()]) as other:
        until((nest / "zygote").exists, "somebody listens there")
        daemon = host.pcs()
        assert "cannot be adopted, and were ended" in daemon.err.text
        other.wait(10)
