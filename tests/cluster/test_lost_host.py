"""A host is lost, or only cut off: what was there is taken over by another one, and the output does not change by a
byte; what cannot be had elsewhere stops the run with a message that names it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from kit import Outcome, Running, run, running, until
from pcs_kit import Site, pcs

pytestmark = pytest.mark.cluster

TOPOLOGY = """
hosts: {hosts}
snapshot_every: 200ms
sources:
  numbers: {{generate: {{n: counter, k: {{int: [0, 50]}}}}, count: 15000, rate: 3000, replicas: 2, on: [a, b]}}
operators:
  some: {{input: numbers, filter: n >= 10, replicas: 2, on: [a, b]}}
  counts: {{input: some, count: k, replicas: 2, on: [b, a]}}
"""


ALONE_ON_B = """
hosts: {hosts}
snapshot_every: 200ms
sources:
  numbers: {{generate: {{n: counter, k: {{int: [0, 50]}}}}, count: 15000, rate: 3000, on: b}}
operators:
  counts: {{input: numbers, count: k, replicas: 2, on: [a, a]}}
"""
REFUSED = """
hosts: {hosts}
sources:
  lines: {{text: lines.txt, fields: [line], on: c}}
operators:
  mine: {{input: lines, custom: mine.same, fields: [line], replicas: 2, on: [b, c]}}
sinks:
  out: {{input: mine, csv: out.csv, on: a}}
"""
ALONE = """
hosts: {hosts}
sources:
  numbers: {{generate: {{n: counter}}, rate: 1000}}
operators:
  alone: {{input: numbers, count: , on: b}}
sinks:
  out: {{input: alone, csv: out.csv, on: b}}
"""


@contextmanager
def daemons(folder: Path, **options: Sequence[str | Path]) -> Iterator[dict[str, tuple[Running, str]]]:
    """A PCS for each name, with its options."""
    (folder / "out").mkdir()
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(pcs(folder / name, *more, site=Site(f"127.0.0.{number}")))
            for number, (name, more) in enumerate(options.items(), 2)
        }


@contextmanager
def hosts(folder: Path, **options: Sequence[str | Path]) -> Iterator[dict[str, str]]:
    """The same, for who needs the addresses only."""
    with daemons(folder, **options) as there:
        yield {name: address for name, (_, address) in there.items()}


def scripted(folder: Path, text: str, there: dict[str, str], *lines: str) -> Outcome:
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "t.yaml").write_text(text.format(hosts=str(there).replace("'", "")))
    (folder / "script.txt").write_text("".join(f"{line}\n" for line in lines))
    return run("run", "t.yaml", "--lib", folder / "lib", "--script", "script.txt", cwd=folder)


def events(folder: Path) -> str:
    return (folder / "runs" / "t-1" / "events.log").read_text()


def is_right(folder: Path, outcome: Outcome, topology: str = TOPOLOGY) -> None:
    """The same bytes as on one host."""
    alone = folder / "alone"
    alone.mkdir()
    text = re.sub(r", on: (\[[\w, ]*\]|b)|, rate: 3000|hosts: .*\n", "", topology.format(hosts=""))
    (alone / "t.yaml").write_text(text)
    assert run("run", "t.yaml", cwd=alone).ok().files == outcome.ok().files


ON_B = ("numbers 1", "some 1", "counts 0")


@pytest.mark.parametrize("more", ["recovery: respawn", "recovery: spread", "durable: kept/state"])
def test_what_was_on_a_lost_host_goes_on_at_another(tmp_path: Path, more: str) -> None:
    writes = ("--out", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    with hosts(tmp_path, a=writes, b=writes) as there:
        text = f"{more}\n{TOPOLOGY}"
        outcome = scripted(tmp_path, text, there, "Start", "Wait 1000", "Kill b", "Wait 4500", "Status")
    is_right(tmp_path, outcome)
    log = events(tmp_path)
    for replica in ON_B:
        assert f" moved {replica} to " in log and f" recovered {replica} in " in log
        assert not re.search(rf"^{replica}.*{there['b']}".replace(" ", " +"), outcome.out, re.M)


def test_a_source_that_had_died_often_begins_again_at_another_host(tmp_path: Path) -> None:
    """Nobody of its ring is left who would know in which incarnation it was."""
    died = ["Crash numbers 0", "Wait 700"]
    with hosts(tmp_path, a=(), b=()) as there:
        outcome = scripted(tmp_path, ALONE_ON_B, there, "Start", "Wait 300", *died, *died, *died, "Kill b")
    is_right(tmp_path, outcome, ALONE_ON_B)
    assert " moved numbers 0 to " in events(tmp_path)


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
def test_a_host_that_was_only_cut_off_finds_itself_replaced(tmp_path: Path, recovery: str) -> None:
    """Both incarnations live for a while, on either side."""
    lines = ["Start", "Wait 1000", "Partition b a", "Partition b localhost", "Wait 4500", "Heal"]
    with hosts(tmp_path, a=(), b=()) as there:
        outcome = scripted(tmp_path, f"recovery: {recovery}\n{TOPOLOGY}", there, *lines)
    is_right(tmp_path, outcome)
    assert all(f" moved {replica} to " in events(tmp_path) for replica in ON_B)


@pytest.mark.parametrize("more", ["recovery: respawn", "durable: kept/state"])
def test_who_was_replaced_and_wakes_up_steps_down_by_itself(tmp_path: Path, more: str) -> None:
    """A whole host hangs, and then its replicas go on; its PCS, which would end them, does not yet."""
    writes = ("--out", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    with daemons(tmp_path, a=writes, b=writes) as there:
        addresses = {name: address for name, (_, address) in there.items()}
        (tmp_path / "t.yaml").write_text(f"{more}\n{TOPOLOGY}".format(hosts=str(addresses).replace("'", "")))
        arguments = ("t.yaml", "--out", tmp_path / "out")
        with running(*arguments, cwd=tmp_path, program="puppetmaster", stdin=subprocess.PIPE) as command:
            assert command.process.stdin is not None
            command.process.stdin.write(b"Start\n")
            command.process.stdin.flush()
            output = tmp_path / "out" / "counts.csv"
            until(lambda: output.exists() and output.stat().st_size > 0, "rows come out")
            daemon = psutil.Process(there["b"][0].process.pid)
            (zygote,) = daemon.children()
            replicas = zygote.children()
            assert len(replicas) == len(ON_B)
            for process in (daemon, zygote, *replicas):
                process.suspend()
            until(lambda: all(f" recovered {one} in " in events(tmp_path) for one in ON_B), "others have taken over")
            for process in replicas:
                process.resume()
            until(lambda: all(map(stepped_down, logs_of(tmp_path / "b"))), "they have seen that", 30)
            for process in (zygote, daemon):
                process.resume()
            command.process.stdin.close()
            is_right(tmp_path, command.ended())
    assert " failed " not in events(tmp_path)


def logs_of(folder: Path) -> list[str]:
    """What the replicas of a host have logged there."""
    found = [folder.glob(f"runs/*/{one.replace(' ', '.')}.log") for one in ON_B]
    return ["".join(path.read_text() for path in paths) for paths in found]


def stepped_down(log: str) -> bool:
    return "superseded by a higher incarnation: stepping down" in log


def test_a_host_that_may_not_take_over_is_passed_by_and_a_source_begins_again(tmp_path: Path) -> None:
    """a has no folder of modules, and the file is only for a and b; of the source there were no copies."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text("import time\n\ndef same(line):\n    time.sleep(0.002)\n    yield line\n")
    lines = "".join(f"{n}\n" for n in range(3000))
    (tmp_path / "lines.txt").write_text(lines)
    lib, data, out = ("--lib", tmp_path / "lib"), ("--data", tmp_path), ("--out", tmp_path / "out")
    with hosts(tmp_path, a=(*data, *out), b=lib, c=(*lib, *data)) as there:
        outcome = scripted(tmp_path, REFUSED, there, "Start", "Wait 500", "Kill c")
    assert outcome.ok().files == {"out.csv": lines.encode()}
    log = events(tmp_path)
    assert f" moved mine 1 to {there['b']}\n" in log and f" moved lines 0 to {there['a']}\n" in log


def test_what_cannot_be_had_elsewhere_stops_the_run_and_is_named(tmp_path: Path) -> None:
    with hosts(tmp_path, a=(), b=("--out", tmp_path / "out")) as there:
        outcome = scripted(tmp_path, ALONE, there, "Start", "Wait 500", "Kill b", "Wait 60000", "Stop")
    assert outcome.code == 1
    assert f"the PCS {there['b']} was not heard of for 1" in outcome.err
    assert "operator alone had all its replicas, and so all copies of its state, there" in outcome.err
    assert "sink out writes" in outcome.err and "Traceback" not in outcome.err
