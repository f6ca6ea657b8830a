"""Files whose records bring their seqs along are merged in the order of the seqs, ties by stream, whatever happens."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kit import run

pytestmark = pytest.mark.cluster

TOPOLOGY = """\
window: 10000
sources:
  left:  {{csv: [left-a.csv, left-b.csv], fields: [id:int, name], seq: id, slices: {slices}, replicas: {replicas}}}
  right: {{csv: right.csv, fields: [id:int, name], seq: id, slices: {slices}, replicas: {replicas}}}
operators:
  all:  {{input: [left, right], dup: , replicas: 2}}
  seen: {{input: all, count: name}}
sinks:
  in-order: {{input: all, csv: all.csv}}
  counts:   {{input: seen, csv: seen.csv}}
"""
RECORDS = 40_000
PADDING = "." * 64


def write(folder: Path) -> dict[str, bytes]:
    """Two streams of some blocks each; every tenth seq is in both, and a long gap in each. What must come of them."""
    draw = random.Random(7)
    ids = [10**15 + n * 1_000_003 + (10**17 if n > RECORDS // 2 else 0) for n in range(RECORDS)]
    left = [one for one in ids if draw.random() < 0.55]
    right = sorted({*ids} - {*left} | {*ids[::10]})
    lines = {
        (one, stream): f"{one},{'lr'[stream]}{one % 7}{PADDING}\n"
        for stream, some in enumerate((left, right))
        for one in some
    }
    half = len(left) // 2
    for name, stream, some in (("left-a", 0, left[:half]), ("left-b", 0, left[half:]), ("right", 1, right)):
        (folder / f"{name}.csv").write_text("".join(lines[one, stream] for one in some))
    merged = [lines[key] for key in sorted(lines)]
    seen: dict[str, int] = {}
    counts = []
    for line in merged:
        name = line.rstrip().partition(",")[2]
        seen[name] = seen.get(name, 0) + 1
        counts.append(f"{name},{seen[name]}\n")
    return {"all.csv": "".join(merged).encode(), "seen.csv": "".join(counts).encode()}


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("killed", [False, True])
def test_a_merge_is_in_the_order_of_the_seqs(tmp_path: Path, slices: int, killed: bool) -> None:
    """Killed: while the window is full, so in the middle of the files."""
    expected = write(tmp_path)
    text = TOPOLOGY.format(slices=slices, replicas=min(slices, 2))
    if killed:
        text += "script: [Freeze all 1, Start, Wait 600, Crash left 0, Crash right 0, Wait 600, Unfreeze all 1]\n"
    (tmp_path / "merge.yaml").write_text(text)
    found = run("run", "merge.yaml", "--quiet", cwd=tmp_path).ok().files
    for name, wanted in expected.items():
        assert found[name] == wanted, f"{name} differs"  # The bytes themselves would explain nothing.
    if killed:
        log = next((tmp_path / "runs").rglob("events.log")).read_text()
        assert all(f"recovered {who}" in log for who in ("left 0", "right 0"))


@pytest.mark.parametrize("slices", [1, 4])
def test_a_seq_that_does_not_ascend_ends_the_run_with_its_place(tmp_path: Path, slices: int) -> None:
    write(tmp_path)
    text = TOPOLOGY.format(slices=slices, replicas=1).replace("[left-a.csv, left-b.csv]", "[left-b.csv, left-a.csv]")
    (tmp_path / "merge.yaml").write_text(text)
    outcome = run("run", "merge.yaml", "--quiet", cwd=tmp_path)
    assert outcome.code == 1 and "Traceback" not in outcome.err
    assert "left-a.csv:" in outcome.err and "the seq: expected more than" in outcome.err
    assert "sort its records by 'id'" in outcome.err
