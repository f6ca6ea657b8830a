"""Crash: every replica killed in turn, by a script and from a pipe, and the output is the same to the byte."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dadstorm import topology
from tests.cluster.kit import ROOT, run, running
from tests.cluster.test_script import commands, events

pytestmark = pytest.mark.cluster

KEYED = """\
sources:
  orders:
    generate: {n: counter, user: {int: [0, 40]}, item: {choice: [apple, pear, plum, fig]}}
    count: 2400
    rate: 400
    slices: 2
    replicas: 2
operators:
  cheap:  {input: orders, filter: user < 30, replicas: 2, routing: random}
  totals: {input: cheap, custom: totals.Total, key: item, fields: [item, seen:int, sum:int], replicas: 2, slices: 4}
  sales:  {input: totals, count: item, replicas: 2}
  buyers: {input: cheap, uniq: user, replicas: 2}
  all:    {input: buyers, count: }
"""

TOTALS = '''\
class Total:
    def process(self, state, n, user, item):
        seen, total = state.get() or [0, 0]
        state.set([seen + 1, total + n])
        return (item, seen + 1, total + n)
'''


def undisturbed(path: Path) -> dict[str, bytes]:
    """What a topology gives when nothing happens to it; nothing of that run is left."""
    files = run("run", path.name, cwd=path.parent).ok().files
    assert files and all(files.values())
    shutil.rmtree(path.parent / "out")
    shutil.rmtree(path.parent / "runs")
    return files


def everybody(path: Path) -> list[str]:
    """Every replica, as commands name it: first all with number 0, then all with number 1. Who dies while its only peer
    is still being recovered takes the last copy of its state along."""
    operators = topology.load(str(path)).operators
    return [f"{one.name} {number}" for number in range(2) for one in operators if number < len(one.replicas)]


STEPS = r"in (\d+) ms \(detected (\d+), spawned (\d+), restored (\d+), replayed (\d+)\), incarnation 1"


def check_log(folder: Path, name: str, crashed: list[str]) -> None:
    log = events(folder, name)
    assert [text for text in commands(log) if text.startswith("Crash")] == [f"Crash {who}" for who in crashed]
    for who in crashed:
        assert any(text.startswith(f"died {who}, ") for _, text in log), f"{who} never died"
        recovered = [re.fullmatch(f"recovered {who} {STEPS}", text) for _, text in log]
        (steps,) = [[int(ms) for ms in found.groups()] for found in recovered if found]
        assert abs(steps[0] - sum(steps[1:5])) <= 4, f"{steps}: the parts are rounded, and make up the whole"


def test_every_replica_of_the_reach_topology_by_a_script(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "reach.yaml"
    expected, crashed = undisturbed(path), everybody(path)
    lines = ["Interval tweets 650", "Start", "Wait 500"]
    lines += [line for who in crashed for line in (f"Crash {who}", "Wait 700")]
    (tmp_path / "script.txt").write_text("".join(f"{line}\n" for line in lines))
    outcome = run("run", path.name, "--script", "script.txt", cwd=tmp_path, within_s=120).ok()
    assert outcome.files == expected
    check_log(tmp_path, "reach", crashed)


def test_every_replica_of_a_keyed_topology_one_after_the_other(tmp_path: Path) -> None:
    """Each as soon as the one before is back."""
    path = tmp_path / "keyed.yaml"
    path.write_text(KEYED)
    (tmp_path / "totals.py").write_text(TOTALS)
    expected, crashed = undisturbed(path), everybody(path)
    with running(path.name, cwd=tmp_path, stdin=subprocess.PIPE, program="puppetmaster") as session:
        assert session.process.stdin is not None
        session.process.stdin.write(b"Start\nWait 500\n")
        for who in crashed:
            session.process.stdin.write(f"Crash {who}\n".encode())
            session.process.stdin.flush()
            session.out.wait_for(f"recovered {who} in ")
        session.process.stdin.close()
        outcome = session.ended(120).ok()
    assert outcome.files == expected
    check_log(tmp_path, "keyed", crashed)


def test_start_and_interval_outlive_a_crash_and_a_freeze_does_not(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "sources: {numbers: {generate: {n: counter}, count: 40}}\n"
        "operators: {slow: {input: numbers, dup: , replicas: 2}, count: {input: slow, count: }}\n"
        "script: [Interval slow 30, Start, Freeze slow 1, Crash slow 1, Wait 200, Status, Crash slow 0]\n"
    )
    outcome = run("run", "t.yaml", cwd=tmp_path).ok()
    assert outcome.files == {"count.csv": b"".join(b"%d\n" % n for n in range(1, 41))}
    log = events(tmp_path, "t")
    begun = next(time for time, text in log if text == "Start")
    ended = next(time for time, text in log if text == "finished count 0")
    assert ended - begun > 10 * 0.03, "an interval should hold for the incarnation after a crash too"
