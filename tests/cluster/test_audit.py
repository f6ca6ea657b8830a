"""The audit on real processes: a deterministic topology passes whatever crashes, one that is not is caught."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster.kit import Outcome, run, running

pytestmark = pytest.mark.cluster

TOPOLOGY = """\
sources: {numbers: {generate: {n: counter, who: {choice: [ana, bob, eve]}}, count: 1500, rate: 1500}}
operators:
  mine:  {input: numbers, custom: functions.mine, fields: [n:int, who, tag:int], replicas: 2, slices: 4}
  sales: {input: mine, count: who, replicas: 2}
span: 256
"""

SAME = "def mine(n, who):\n    return (n, who, n * 7)\n"
RANDOM = "import random\ndef mine(n, who):\n    return (n, who, random.getrandbits(40))\n"


def write(folder: Path, function: str, topology: str = TOPOLOGY) -> None:
    (folder / "t.yaml").write_text(topology)
    (folder / "functions.py").write_text(function)


def audited_with_crashes(folder: Path, *crashed: str) -> Outcome:
    """Run it under audit and crash these, each when the one before is back."""
    with running("t.yaml", "--audit", cwd=folder, stdin=subprocess.PIPE, program="puppetmaster") as session:
        assert session.process.stdin is not None
        session.process.stdin.write(b"Start\nWait 400\n")
        for before, who in zip([None, *crashed], crashed, strict=False):
            if before is not None:
                session.out.wait_for(f"recovered {before} in ")
            session.process.stdin.write(f"Crash {who}\n".encode())
            session.process.stdin.flush()
        session.process.stdin.close()
        return session.ended()


def test_a_deterministic_topology_passes_with_crashes(tmp_path: Path) -> None:
    write(tmp_path, SAME)
    outcome = audited_with_crashes(tmp_path, "mine 0", "sales 0", "numbers 0", "sales.sink 0").ok()
    said = outcome.out + outcome.err
    assert re.search(r"audit: 24 epochs of 4 operators recorded in runs/t-1, all work reproduced", said), said


def test_a_function_that_is_not_deterministic_is_named_with_epoch_and_tuple(tmp_path: Path) -> None:
    write(tmp_path, RANDOM)
    outcome = audited_with_crashes(tmp_path, "mine 0")
    assert outcome.code == 1
    found = re.search(
        r"failed: operator mine did not reproduce what it had emitted before it was recovered.\n"
        r"  epoch (\d+), tuple \((\d+), 0\), slice [0-3] of mine\n"
        r"  first: <(\d+), '(\w+)', (\d+)>\n"
        r"  again: <(\d+), '(\w+)', (\d+)>\n"
        r"The function of mine is not deterministic",
        outcome.err,
    )
    assert found, outcome.err
    epoch, seq, n, who, tag, n_again, who_again, tag_again = found.groups()
    assert int(epoch) == int(seq) // 256
    assert (n, who) == (n_again, who_again)
    assert tag != tag_again
    assert "Traceback" not in outcome.err


def test_diff_finds_runs_with_other_replicas_the_same_and_names_what_makes_a_difference(tmp_path: Path) -> None:
    write(tmp_path, SAME, TOPOLOGY.replace(", rate: 1500", "").replace("count: who", "count: [who, tag]"))
    run("run", "t.yaml", "--audit", "--out", "a", cwd=tmp_path).ok()
    text = (tmp_path / "t.yaml").read_text().replace("replicas: 2, slices: 4", "slices: 7, routing: random")
    (tmp_path / "t.yaml").write_text(text.replace("replicas: 2", "replicas: 3"))
    run("run", "t.yaml", "--audit", "--out", "b", cwd=tmp_path).ok()
    same = run("diff", "runs/t-1", "runs/t-2", cwd=tmp_path).ok()
    assert same.out == "the same: 24 epochs of 4 operators\n"

    (tmp_path / "functions.py").write_text(SAME.replace("n * 7", "n * 7 + (n == 1000)"))
    run("run", "t.yaml", "--audit", "--out", "c", cwd=tmp_path).ok()
    outcome = run("diff", "runs/t-1", "runs/t-3", cwd=tmp_path)
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[0] == "operator mine, epoch 3 (seqs 768 to 1023):"
    assert lines[3] == "  what it was given (numbers) is the same: mine itself makes the difference"
    assert lines[5] == "output sales.csv, line 1001:"
    assert re.fullmatch(r"  a/sales.csv: \w+,7000,1", lines[6])
    assert re.fullmatch(r"  c/sales.csv: \w+,7001,1", lines[7])


@pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once"])
def test_where_work_need_not_be_reproduced_an_audit_is_refused(tmp_path: Path, semantics: str) -> None:
    write(tmp_path, SAME, f"semantics: {semantics}\n{TOPOLOGY}")
    outcome = run("run", "t.yaml", "--audit", cwd=tmp_path)
    assert outcome.code == 2
    assert f"error: --audit needs semantics exactly-once, found {semantics}: " in outcome.err
    assert not (tmp_path / "runs").exists()
