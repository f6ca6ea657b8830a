"""Crash: every replica killed in turn by a script, and the output is the same to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dadstorm import topology
from tests.cluster.kit import ROOT, run
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


def crashed_in_turn(path: Path, first: list[str], between_ms: int) -> None:
    """Run a topology undisturbed, and with each of its replicas killed in turn: the same bytes."""
    folder = path.parent
    expected = run("run", path.name, cwd=folder).ok().files
    assert expected and all(expected.values())
    shutil.rmtree(folder / "out")
    shutil.rmtree(folder / "runs")
    plan = topology.load(str(path))
    # First all replicas 0, then all 1: who dies while its only peer is still being recovered takes the last copy along.
    crashes = [
        f"Crash {one.name} {replica}" for replica in range(2) for one in plan.operators if replica < len(one.replicas)
    ]
    lines = first + [line for crash in crashes for line in (crash, f"Wait {between_ms}")]
    (folder / "script.txt").write_text("".join(f"{line}\n" for line in lines))
    outcome = run("run", path.name, "--script", "script.txt", cwd=folder, within_s=120).ok()
    log = events(folder, plan.name)
    assert [text for text in commands(log) if text.startswith("Crash")] == crashes
    for crash in crashes:
        who = crash.removeprefix("Crash ")
        assert any(text.startswith(f"died {who}, ") and "SIGKILL" in text for _, text in log), f"{who} never died"
        assert any(text.startswith(f"recovered {who} in ") for _, text in log), f"{who} was never recovered"
    assert outcome.files == expected


def test_every_replica_of_the_reach_topology(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path, dirs_exist_ok=True)
    crashed_in_turn(tmp_path / "reach.yaml", ["Interval tweets 350", "Start", "Wait 300"], 400)


def test_every_replica_of_a_keyed_topology(tmp_path: Path) -> None:
    (tmp_path / "keyed.yaml").write_text(KEYED)
    (tmp_path / "totals.py").write_text(TOTALS)
    crashed_in_turn(tmp_path / "keyed.yaml", ["Start", "Wait 500"], 400)


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
