"""A run at PCS daemons does not need its PuppetMaster: it goes on without it, and another one can take it over.

What is killed here is the PuppetMaster, with SIGKILL. The replicas go on; when the inputs end, the PCSs end the run
among themselves. Whoever attaches finds everything as the first PuppetMaster had it: what was started, who is frozen.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from kit import Running, files_in, run, running, until
from pcs_kit import Site, pcs

pytestmark = pytest.mark.cluster

JOB = """
name: job
suspect_after: 20s
sources:
  g: {{generate: {{n: counter, k: {{int: [0, 20]}}}}, rate: 4000, seed: 5{count}}}
operators:
  left:  {{input: g, dup: , replicas: 2}}
  right: {{input: g, filter: n >= 0}}
  both:  {{input: [left, right], count: k, replicas: 2}}
"""
ROWS = 6000
PATIENCE = ("--master-patience", "2")


class Hosts:
    """Two PCSs, and a folder that has the results."""

    def __init__(self, folder: Path, daemons: tuple[Running, Running], addresses: tuple[str, str]) -> None:
        self.folder = folder
        self.daemons = daemons
        self.addresses = addresses
        self.output = folder / "out" / "both.csv"
        self.where = ("--pcs", addresses[0], "--pcs", addresses[1])

    @contextmanager
    def moving(self, *, count: int | None = None, name: str = "job") -> Iterator[Running]:
        """A run over both PCSs; rows come out."""
        text = JOB.format(count="" if count is None else f", count: {count}").replace("name: job", f"name: {name}")
        (self.folder / f"{name}.yaml").write_text(text)
        output = self.folder / f"out-{name}" / "both.csv" if name != "job" else self.output
        arguments = ("run", f"{name}.yaml", "--out", output.parent, *self.where)
        with running(*arguments, cwd=self.folder) as command:
            until(lambda: output.exists() and output.stat().st_size > 0, "rows come out")
            yield command

    def replicas(self) -> list[psutil.Process]:
        zygotes = [zygote for daemon in self.daemons for zygote in psutil.Process(daemon.process.pid).children()]
        return [replica for zygote in zygotes for replica in zygote.children()]

    def grows(self) -> None:
        size = self.output.stat().st_size
        until(lambda: self.output.stat().st_size > size + 5000, "it goes on")

    def attach(self, *arguments: str) -> tuple[str, ...]:
        return ("--attach", *arguments, "--pcs", self.addresses[0])


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    for name in ("out", "out-other"):
        (tmp_path / name).mkdir()
    options = ("--out", tmp_path / "out", "--out", tmp_path / "out-other", "--lib", tmp_path / "lib", *PATIENCE)
    (tmp_path / "lib").mkdir()
    with (
        pcs(tmp_path / "a", *options, site=Site("127.0.0.2")) as (first, a),
        pcs(tmp_path / "b", *options, site=Site("127.0.0.3")) as (second, b),
    ):
        yield Hosts(tmp_path, (first, second), (a, b))


def kill(command: Running) -> None:
    command.process.send_signal(signal.SIGKILL)
    command.ended()


def undisturbed(folder: Path) -> dict[str, bytes]:
    (folder / "alone").mkdir()
    (folder / "alone" / "job.yaml").write_text(JOB.format(count=f", count: {ROWS}").replace("rate: 4000, ", ""))
    return run("run", "job.yaml", cwd=folder / "alone").ok().files


def events(hosts: Hosts) -> str:
    return "".join(path.read_text() for path in (hosts.folder / "runs").glob("job-1/events.log"))


def nothing_runs(hosts: Hosts) -> None:
    until(lambda: not hosts.replicas(), "no replica is left", 25)
    outcome = run(*hosts.attach(), cwd=hosts.folder, program="puppetmaster")
    assert outcome.code == 2
    assert "nothing runs there" in outcome.err


# -- without a PuppetMaster -------------------------------------------------------------------------------------------


def test_a_run_whose_puppetmaster_is_killed_comes_to_its_end_with_the_same_bytes(hosts: Hosts) -> None:
    """A replica that dies after it is brought back as ever; and nothing is left when all is done."""
    with hosts.moving(count=ROWS) as command:
        kill(command)
    hosts.replicas()[0].kill()
    nothing_runs(hosts)
    assert files_in(hosts.folder / "out") == undisturbed(hosts.folder)


def test_a_run_that_was_not_started_ends_with_its_puppetmaster(hosts: Hosts) -> None:
    """There is nothing to go on with: nobody was told to begin."""
    (hosts.folder / "job.yaml").write_text(JOB.format(count=""))
    with running("job.yaml", *hosts.where, cwd=hosts.folder, program="puppetmaster", stdin=-1) as command:
        until(lambda: len(hosts.replicas()) == 7, "all replicas are there")
        kill(command)
    nothing_runs(hosts)


def test_a_run_that_fails_without_its_puppetmaster_is_ended_everywhere(hosts: Hosts) -> None:
    """The PCSs see what the PuppetMaster would have seen, and say why in their logs."""
    (hosts.folder / "lib" / "mine.py").write_text(
        f"import os\n\ndef fragile(n, k):\n    if os.path.exists({str(hosts.folder / 'enough')!r}):\n"
        "        raise ValueError('enough')\n    return n, k\n"
    )
    text = JOB.format(count="").replace("filter: n >= 0", "custom: mine.fragile, fields: [n:int, k:int]")
    (hosts.folder / "job.yaml").write_text(text)
    with running("run", "job.yaml", "--lib", "lib", *hosts.where, cwd=hosts.folder) as command:
        until(lambda: hosts.output.exists() and hosts.output.stat().st_size > 0, "rows come out")
        kill(command)
    (hosts.folder / "enough").touch()
    nothing_runs(hosts)
    assert any("enough" in daemon.err.text for daemon in hosts.daemons)


def test_what_is_on_the_machine_of_the_puppetmaster_ends_with_it_and_so_does_the_rest(hosts: Hosts) -> None:
    text = JOB.format(count="").replace("replicas: 2", f"replicas: 2, on: '{hosts.addresses[0]}'", 1)
    (hosts.folder / "job.yaml").write_text(text)
    with running("run", "job.yaml", cwd=hosts.folder) as command:
        until(lambda: hosts.output.exists() and hosts.output.stat().st_size > 0, "rows come out")
        refused = run(*hosts.attach(), cwd=hosts.folder, program="puppetmaster")
        kill(command)
    assert refused.code == 2
    assert "job has replicas on localhost" in refused.err
    nothing_runs(hosts)


def test_who_attaches_to_a_chained_run_may_name_its_members(hosts: Hosts) -> None:
    text = (
        "name: job\nsources: {g: {generate: {n: counter, k: {int: [0, 20]}}, rate: 4000}}\noperators:\n"
        "  counts: {input: g, count: k, replicas: 2}\n  both: {input: counts, filter: count > 0, replicas: 2}\n"
    )
    (hosts.folder / "job.yaml").write_text(text)
    with running("run", "job.yaml", "--out", hosts.output.parent, *hosts.where, cwd=hosts.folder) as command:
        until(lambda: hosts.output.exists() and hosts.output.stat().st_size > 0, "rows come out")
        kill(command)
    commands = b"Crash both 1\nWait 1500\nStatus counts --json\nStop\n"
    outcome = run(*hosts.attach("job"), cwd=hosts.folder, stdin=commands, program="puppetmaster").ok()
    (after,) = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("[")]
    assert {(row["operator"], row["replica"]): row["incarnation"] for row in after} == {
        ("counts+both", 0): 0, ("counts+both", 1): 1,
    }  # fmt: skip
    nothing_runs(hosts)


# -- another PuppetMaster ---------------------------------------------------------------------------------------------


def test_a_puppetmaster_that_attaches_finds_the_run_and_drives_it(hosts: Hosts) -> None:
    with hosts.moving() as command:
        kill(command)
    hosts.grows()
    commands = (
        b"Freeze left 1\nStatus --json\nWait 500\nUnfreeze left 1\nCrash both 1\nWait 1500\nStatus both --json\nStop\n"
    )
    outcome = run(*hosts.attach("job"), cwd=hosts.folder, stdin=commands, program="puppetmaster").ok()
    before, after = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("[")]
    states = {(row["operator"], row["replica"]): row["state"] for row in before}
    assert len(states) == 7
    assert states.pop(("left", 1)) == "frozen"
    assert set(states.values()) <= {"running", "finished"}, "who has no slice is finished"
    assert all(row["pid"] for row in before)
    assert {row["replica"]: row["incarnation"] for row in after} == {0: 0, 1: 1}
    assert "recovered both 1" in outcome.out
    logs = {path.name for path in (hosts.folder / "runs" / "job-2").iterdir()}
    assert {"events.log", "both.1.log"} <= logs
    nothing_runs(hosts)
    numbers = [line.rsplit(",", 1) for line in hosts.output.read_text().splitlines()]
    counted: dict[str, int] = {}
    for key, count in numbers:
        counted[key] = counted.get(key, 0) + 1
        assert int(count) == counted[key]


def test_who_attaches_to_a_run_that_was_not_started_is_told_so_and_can_start_it(hosts: Hosts) -> None:
    (hosts.folder / "job.yaml").write_text(JOB.format(count=f", count: {ROWS}"))
    started = running("job.yaml", *hosts.where, cwd=hosts.folder, program="puppetmaster", stdin=-1)
    with started as command:
        until(lambda: events(hosts).count(" up ") == 7, "all have said hello")
        time.sleep(0.5)  # The directory reaches them.
        outcome = run(*hosts.attach("job"), cwd=hosts.folder, stdin=b"Start\n", program="puppetmaster").ok()
        command.ended()
    assert "not started yet: g, left, right, both, both.sink (Start lets them begin)" in outcome.out
    assert files_in(hosts.folder / "out") == undisturbed(hosts.folder)


def test_the_newer_puppetmaster_wins_and_the_older_one_ends_with_a_message(hosts: Hosts) -> None:
    with (
        hosts.moving() as first,
        running(*hosts.attach(), cwd=hosts.folder, program="puppetmaster", stdin=-1) as second,
    ):
        second.out.wait_for("attached to job")
        told = first.ended(20)
        assert told.code == 1
        assert "another PuppetMaster, at tcp://127.0.0." in told.err
        assert "has taken over the run; it goes on" in told.err
        hosts.grows()
        second.process.send_signal(signal.SIGTERM)
        second.ended().ok()
    nothing_runs(hosts)


def test_which_of_several_runs_is_meant_has_to_be_said(hosts: Hosts) -> None:
    with hosts.moving() as first, hosts.moving(name="other") as second:
        kill(first)
        kill(second)
        several = run(*hosts.attach(), cwd=hosts.folder, program="puppetmaster")
        unknown = run(*hosts.attach("jbo"), cwd=hosts.folder, program="puppetmaster")
        assert several.code == unknown.code == 2
        rows = {line.split()[1]: line.split()[0] for line in several.out.splitlines() if "127.0.0.2" in line}
        assert set(rows) == {"job", "other"}
        assert "2 runs are there; which one? puppetmaster --attach " in several.err
        assert 'no run "jbo" is there' in unknown.err
        run(*hosts.attach("other"), cwd=hosts.folder, stdin=b"Exit\n", program="puppetmaster").ok()
        run(*hosts.attach(rows["job"]), cwd=hosts.folder, stdin=b"Exit\n", program="puppetmaster").ok()
    nothing_runs(hosts)


def test_a_puppetmaster_that_slept_goes_on_with_its_run(hosts: Hosts) -> None:
    with hosts.moving() as command:
        os.kill(command.process.pid, signal.SIGSTOP)
        time.sleep(3)
        hosts.grows()
        os.kill(command.process.pid, signal.SIGCONT)
        command.interrupt()
        command.ended().ok()
    nothing_runs(hosts)
