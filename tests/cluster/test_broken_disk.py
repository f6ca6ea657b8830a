"""Disks that give errors, are full, or give back other bytes than they got, under real processes: the run stops and
says what to do, or another copy is used. There is never another answer."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.deaths_kit import KEYED, beyond, expected, kill_everything, settled
from tests.cluster.kit import Outcome, connected, free_port, run, running, until
from tests.unit.failing_kit import small_files

pytestmark = pytest.mark.cluster

FRAGILE = '''\
"""The user's code, in a process whose disk gives errors as soon as there is a file that says so."""
import errno
import os

SYNC = os.fsync


def sync(file):
    if os.path.exists("BROKEN"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    SYNC(file)


def same(n):
    os.fsync = sync
    yield n
'''
NUMBERS = """\
durable: state
snapshot_every: 100ms
sources: {numbers: {generate: {n: counter}, count: 2000, rate: 800}}
operators: {same: {input: numbers, custom: fragile.same, fields: [n:int], replicas: 2}}
"""


def test_a_sync_that_fails_stops_the_run_and_a_resumed_one_ends_with_the_same_bytes(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (tmp_path / "fragile.py").write_text(FRAGILE.replace("BROKEN", str(broken)))
    (tmp_path / "t.yaml").write_text(NUMBERS)
    with running("run", "t.yaml", cwd=tmp_path) as command:
        until(partial(beyond, tmp_path, 0), "something is settled")
        broken.touch()
        outcome = command.ended()
    assert outcome.code == 1 and "Traceback" not in outcome.err
    assert re.search(r"operator same, slice \d: cannot write \S+: Input/output error\. Nothing that was", outcome.err)
    assert "look after that disk, and go on with --resume" in outcome.err
    assert 0 < outcome.files["same.csv"].count(b"\n") < 2000
    broken.unlink()
    assert run("run", "t.yaml", "--resume", cwd=tmp_path).ok().files == {
        "same.csv": b"".join(b"%d\n" % number for number in range(2000))
    }


def test_files_that_may_not_grow_stop_the_run_and_when_they_may_it_goes_on(tmp_path: Path) -> None:
    """A full disk, without a disk of our own: the state outgrows what a file may have."""
    (tmp_path / "t.yaml").write_text(
        "durable: state\nsnapshot_every: 100ms\nwindow: 5000\n"
        "sources: {numbers: {generate: {n: counter}, count: 40000}}\n"
        "operators:\n  each: {input: numbers, uniq: n, replicas: 2}\n  few: {input: each, filter: n < 9}\n"
    )
    with small_files(100_000), running("run", "t.yaml", cwd=tmp_path) as command:
        full = command.ended()
    assert full.code == 1 and "operator each, slice " in full.err and "Traceback" not in full.err
    assert "File too large. Nothing that was kept before is lost: raise the limit on file sizes" in full.err
    assert settled(tmp_path)
    outcome = run("run", "t.yaml", "--resume", cwd=tmp_path).ok()
    assert outcome.files == {"few.csv": b"".join(b"%d\n" % number for number in range(9))}


# -- damage -----------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    """Change one bit of a file, or change it back."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def pieces(folder: Path, operator: str) -> list[Path]:
    """The files with the state of an operator's first slice; of those, the last is surely needed."""
    return sorted(folder.glob(f"state/run-*/{operator}/0/*.state"), key=lambda path: int(path.stem.split("-")[-1]))


def refused(folder: Path, path: Path) -> Outcome:
    """A resumed run that does not go on, because of this file."""
    before = {name: (folder / "out" / name).read_bytes() for name in os.listdir(folder / "out")}
    outcome = run("run", "t.yaml", "--resume", cwd=folder)
    assert outcome.code == 1 and "Traceback" not in outcome.err
    assert str(path) in outcome.err, outcome.err
    for name, content in outcome.files.items():
        assert before.get(name, b"").startswith(content), "nothing was added to what was there"
    return outcome


def test_a_damaged_file_is_named_and_put_right_the_run_ends_with_the_same_bytes(tmp_path: Path) -> None:
    files = expected(tmp_path)
    (tmp_path / "t.yaml").write_text(KEYED)
    with running("run", "t.yaml", cwd=tmp_path) as command:
        until(lambda: bool(pieces(tmp_path, "sales") and pieces(tmp_path, "all")), "something is settled")
        kill_everything(command)
    for operator in ("sales", "all"):
        path = pieces(tmp_path, operator)[-1]
        flip(path, path.stat().st_size // 2)
        outcome = refused(tmp_path, path)
        assert f"operator {operator}, slice 0: {path} is damaged: the checksum does not fit" in outcome.err
        assert "restore it from a copy of your own, or remove" in outcome.err
        flip(path, path.stat().st_size // 2)
    assert run("run", "t.yaml", "--resume", cwd=tmp_path).ok().files == files


def test_a_damaged_journal_is_named_and_put_right_the_run_goes_on(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "t.yaml").write_text(
        f"durable: state\nsnapshot_every: 100ms\nsources: {{lines: {{tcp: {port}}}}}\n"
        "operators: {same: {input: lines, dup: , replicas: 2}}\n"
    )
    lines = b"".join(b"line %d\n" % number for number in range(20))
    (tmp_path / "hold.txt").write_text("Start lines\nWait 600000\nExit\n")
    out = tmp_path / "out" / "same.csv"
    with running("run", "t.yaml", "--script", "hold.txt", cwd=tmp_path) as command, connected(port) as client:
        client.sendall(lines)
        until(lambda: lines in journal(tmp_path), "all lines are in the journal")
        kill_everything(command)
    (path,) = (tmp_path / "state").glob("run-*/journal/*")
    at = path.read_bytes().index(b"line 7")
    flip(path, at)
    outcome = refused(tmp_path, path)
    assert "source 'lines': journal " in outcome.err and "is damaged at byte " in outcome.err
    assert "restore it from a copy" in outcome.err
    flip(path, at)
    with running("run", "t.yaml", "--resume", cwd=tmp_path) as command:
        until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 20, "all lines have come out")
        command.interrupt()
        assert command.ended().ok().files == {"same.csv": lines}


def journal(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("state/run-*/journal/*"))


UP = re.compile(r" up sales 0 at \S+, process (\d+)")


def test_with_a_peer_alive_a_replica_comes_back_though_its_file_is_damaged(tmp_path: Path) -> None:
    files = expected(tmp_path)
    (tmp_path / "t.yaml").write_text(KEYED + "suspect_after: 60s\n")
    folder = tmp_path / "runs" / "t-1"
    with running("run", "t.yaml", cwd=tmp_path) as command:
        until(lambda: bool(pieces(tmp_path, "sales")), "something is settled")
        (pid,) = map(int, UP.findall((folder / "events.log").read_text()))
        os.kill(pid, signal.SIGSTOP)  # It writes nothing more, so that what is damaged is what its successor reads.
        damaged = pieces(tmp_path, "sales")
        assert damaged
        for path in damaged:
            flip(path, path.stat().st_size - 1)
        os.kill(pid, signal.SIGKILL)
        assert command.ended().ok().files == files
    log = (folder / "sales.0.log").read_text()
    assert "a copy cannot be used" in log and any(f"{path} is damaged" in log for path in damaged)
    assert " recovered sales 0 in " in (folder / "events.log").read_text()
