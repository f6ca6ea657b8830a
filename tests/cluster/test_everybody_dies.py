"""Durable runs: everything is killed, also again and again, and the resumed run ends with the same bytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.deaths_kit import KEYED, beyond, expected, kill_everything, settled
from tests.cluster.kit import Running, connected, free_port, run, running, until
from tests.cluster.pcs_kit import pcs

pytestmark = pytest.mark.cluster


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


def test_daemons_and_puppetmaster_are_killed_and_on_other_ones_the_run_ends_with_the_same_bytes(tmp_path: Path) -> None:
    files = expected(tmp_path)
    (tmp_path / "t.yaml").write_text(KEYED)
    (tmp_path / "out").mkdir()
    resume: tuple[str, ...] = ()
    for life in range(3):
        with hosts(tmp_path, life) as (first, second, where):
            arguments = ("run", "t.yaml", *where, *resume)
            if life == 2:
                assert run(*arguments, cwd=tmp_path).ok().files == files
                break
            before = max(settled(tmp_path), default=0)
            with running(*arguments, cwd=tmp_path) as command:
                until(partial(beyond, tmp_path, before), "something more is settled")
                kill_everything(command, first, second)
        resume = ("--resume",)


@contextmanager
def hosts(folder: Path, life: int) -> Iterator[tuple[Running, Running, list[str]]]:
    """Two PCSs that share a folder, and the options for who uses them."""
    options = ("--out", folder)
    with pcs(folder / f"a{life}", *options) as (first, a), pcs(folder / f"b{life}", *options) as (second, b):
        yield first, second, ["--pcs", a, "--pcs", b, "--out", str(folder / "out")]


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


def test_what_a_live_source_had_accepted_comes_out_though_nobody_had_seen_it_before(tmp_path: Path) -> None:
    """Everything dies as soon as the lines are in the journal, before anybody takes them up; half a line is none."""
    port = free_port()
    (tmp_path / "t.yaml").write_text(
        f"durable: state\nsnapshot_every: 100ms\nsources: {{lines: {{tcp: {port}}}}}\n"
        "operators: {same: {input: lines, dup: , replicas: 2}, count: {input: lines, count: line}}\n"
    )
    (tmp_path / "hold.txt").write_text("Start lines\nWait 600000\nExit\n")
    lines = b"".join(b"line %d\n" % (number % 7) for number in range(60))
    same, count = (tmp_path / "out" / f"{name}.csv" for name in ("same", "count"))
    for part in range(2):
        with (
            running("run", "t.yaml", "--script", "hold.txt", *["--resume"][:part], cwd=tmp_path) as command,
            connected(port) as client,
        ):
            client.sendall(lines[: len(lines) // 2] if part == 0 else lines[len(lines) // 2 :])
            client.sendall(b"half a li")
            until(partial(journalled, tmp_path, 30 * part + 30), "the lines are in the journal")
            kill_everything(command)
        assert not any(path.exists() and path.read_bytes() for path in (same, count)), "nobody has taken them up"
    with running("run", "t.yaml", "--resume", cwd=tmp_path) as command:
        until(lambda: count.exists() and count.read_bytes().count(b"\n") >= 60, "all lines have come out")
        command.interrupt()
        files = command.ended().ok().files
    counted = b"".join(b"line %d,%d\n" % (number % 7, number // 7 + 1) for number in range(60))
    assert files == {"same.csv": lines, "count.csv": counted}


def journalled(folder: Path, count: int) -> bool:
    """Whether a source's journal has so many lines."""
    return sum(path.read_bytes().count(b"line ") for path in folder.glob("state/run-*/journal/*")) >= count


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
