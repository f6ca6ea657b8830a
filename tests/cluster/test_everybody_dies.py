"""Durable runs: everything is killed, also again and again, and the resumed run ends with the same bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.kit import Running, connected, free_port, run, running, until

pytestmark = pytest.mark.cluster

KEYED = """\
durable: state
snapshot_every: 200ms
sources:
  orders:
    generate: {n: counter, user: {int: [0, 40]}, item: {choice: [apple, pear, plum, fig]}}
    count: 1200
    rate: 400
    slices: 2
operators:
  cheap:  {input: orders, filter: user < 30, slices: 2, routing: random}
  sales:  {input: cheap, count: item, replicas: 2}
  buyers: {input: cheap, uniq: user, replicas: 2}
  all:    {input: buyers, count: }
"""


def expected(folder: Path) -> dict[str, bytes]:
    """What the topology gives when nothing happens to it; how fast it is and what is kept does not matter."""
    calm = folder / "calm"
    calm.mkdir()
    (calm / "t.yaml").write_text(KEYED.replace("durable: state\n", "").replace("    rate: 400\n", ""))
    files = run("run", "t.yaml", cwd=calm).ok().files
    assert files and all(files.values())
    return files


def family(pid: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def kill_everything(command: Running) -> None:
    """kill -9, at once: PuppetMaster, PCS, zygote and all replicas; returns when they are gone."""
    everybody = family(command.process.pid)
    for pid in sorted(everybody):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    command.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everybody), "all are gone", 20)
    for sockets in Path(tempfile.gettempdir()).glob("dadstorm-*"):
        shutil.rmtree(sockets)  # There is nobody left who could.


def settled(folder: Path) -> list[int]:
    """Up to where each slice is on the disk."""
    return sorted(int(path.stem.split("-")[-1]) for path in folder.glob("state/run-*/*/*/*.state"))


def beyond(folder: Path, cut: int) -> bool:
    """Whether every slice that is on the disk stands above a cut, and there is one."""
    return min(settled(folder), default=-1) > cut


def test_killed_at_once_and_later_and_again_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    files = expected(tmp_path)
    (tmp_path / "t.yaml").write_text(KEYED)
    manifest = tmp_path / "state" / "run.state"
    with running("run", "t.yaml", cwd=tmp_path) as first:
        until(manifest.exists, "the run has begun")
        kill_everything(first)
    before = -1
    for _ in range(2):
        with running("run", "t.yaml", "--resume", cwd=tmp_path) as again:
            until(partial(beyond, tmp_path, before), "something more is settled")
            kill_everything(again)
        before = settled(tmp_path)[-1]
    refused = run("run", "t.yaml", cwd=tmp_path)
    assert refused.code == 2 and "has not ended. Go on with it: --resume" in refused.err
    last = run("run", "t.yaml", "--resume", cwd=tmp_path).ok()
    assert last.files == files
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["lock", "run.state"]
    nothing = run("run", "t.yaml", "--resume", cwd=tmp_path)
    assert nothing.code == 2 and "the last run is complete" in nothing.err


def test_after_a_drained_run_there_is_nothing_to_resume_and_the_next_one_begins(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(KEYED)
    with running("run", "t.yaml", cwd=tmp_path) as command:
        until(lambda: bool(settled(tmp_path)), "something is settled")
        command.interrupt()
        command.ended().ok()
    nothing = run("run", "t.yaml", "--resume", cwd=tmp_path)
    assert nothing.code == 2 and "the last run is complete" in nothing.err
    with running("run", "t.yaml", cwd=tmp_path) as command:
        until(lambda: bool(settled(tmp_path)), "something is settled")


def test_a_live_source_goes_on_with_its_journal(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "t.yaml").write_text(
        f"durable: state\nsnapshot_every: 100ms\nsources: {{lines: {{tcp: {port}}}}}\n"
        "operators: {same: {input: lines, dup: , replicas: 2}}\n"
    )
    out = tmp_path / "out" / "same.csv"
    lines = [b"line %d\n" % number for number in range(60)]

    def written(count: int) -> bool:
        return out.exists() and out.read_bytes().count(b"\n") >= count

    for part in range(3):
        with running("run", "t.yaml", *["--resume"][: part and 1], cwd=tmp_path) as command:
            with connected(port) as client:
                client.sendall(b"".join(lines[20 * part : 20 * part + 20]))
                until(partial(written, 20 * part + 20), "all lines have come out")
            if part < 2:
                kill_everything(command)
            else:
                command.interrupt()
                command.ended().ok()
    assert out.read_bytes() == b"".join(lines)


LOSS = KEYED + "script: [Start, Wait 1200, Crash sales 0, Crash sales 1, Crash buyers 1, Crash buyers 0]\n"


def test_all_replicas_of_an_operator_at_once_are_recovered_from_the_disk(tmp_path: Path) -> None:
    files = expected(tmp_path)
    (tmp_path / "t.yaml").write_text(LOSS)
    assert run("run", "t.yaml", cwd=tmp_path).ok().files == files


def test_without_a_disk_that_is_a_loss_which_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(LOSS.replace("durable: state\n", ""))
    outcome = run("run", "t.yaml", cwd=tmp_path)
    assert outcome.code == 1
    for words in (
        "the state of operator ", ", slice ", "is lost", "its 2 replicas have died together",
        "begin again at the beginning", "has been let go", "durable: DIR", "more replicas",
    ):  # fmt: skip
        assert words in outcome.err


def test_a_full_disk_is_told_and_with_more_room_it_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", state]).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        (tmp_path / "t.yaml").write_text(
            "durable: state\nsnapshot_every: 100ms\nwindow: 5000\n"
            "sources: {numbers: {generate: {n: counter}, count: 40000}}\n"
            "operators: {each: {input: numbers, uniq: n, replicas: 2}}\n"
        )
        full = run("run", "t.yaml", cwd=tmp_path)
        assert full.code == 1 and "operator each, slice " in full.err
        assert "No space left on device. Nothing that was kept before is lost: free some space" in full.err
        subprocess.run(["mount", "-o", "remount,size=20m", state], check=True)
        outcome = run("run", "t.yaml", "--resume", cwd=tmp_path).ok()
        assert outcome.files == {"each.csv": b"".join(b"%d\n" % number for number in range(40000))}
    finally:
        subprocess.run(["umount", "-l", state], check=True)
