"""Standard input outlives its source's replica, and nothing but its end ends the source."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.kit import Running, run, running, until

pytestmark = pytest.mark.cluster

TOPOLOGY = """\
name: piped
snapshot_every: 100ms
recovery: {recovery}
sources: {{typed: {{stdin: text}}}}
operators: {{same: {{input: typed, dup: , replicas: 2}}}}
"""
UP = re.compile(r" up typed(?:\+same)? 0 at \S+, process (\d+)")


def write(folder: Path, text: str) -> None:
    (folder / "piped.yaml").write_text(text)


def feed(command: Running, text: bytes) -> None:
    assert command.process.stdin is not None
    command.process.stdin.write(text)
    command.process.stdin.flush()


def close(command: Running) -> None:
    assert command.process.stdin is not None
    command.process.stdin.close()


def written(folder: Path) -> list[bytes]:
    path = folder / "out" / "same.csv"
    return path.read_bytes().splitlines() if path.exists() else []


def source(folder: Path) -> int:
    """The process of the source's replica that was started last; 0 if there is none yet."""
    log = folder / "runs" / "piped-1" / "events.log"
    return int((UP.findall(log.read_text()) if log.exists() else ["0"])[-1])


def kill_source(folder: Path) -> None:
    """kill -9 the source's replica; returns when it has a successor."""
    before = source(folder)
    os.kill(before, signal.SIGKILL)
    until(lambda: source(folder) != before, "the source is brought back", 60)


@pytest.mark.parametrize("how", ["respawn", "spread", "chained"])
def test_what_comes_after_a_kill_comes_out_and_the_run_ends_by_itself(tmp_path: Path, how: str) -> None:
    """Also if the source shares its process with the operator behind it."""
    text = TOPOLOGY.format(recovery="spread" if how == "spread" else "respawn")
    write(tmp_path, text.replace(", replicas: 2", "") if how == "chained" else text)
    lines = [b"line %d" % number for number in range(300)]
    with running("run", "piped.yaml", cwd=tmp_path, stdin=subprocess.PIPE) as command:
        feed(command, b"".join(line + b"\n" for line in lines[:100]) + lines[100][:3])
        until(lambda: written(tmp_path) == lines[:100], "a hundred lines have come out")
        os.kill(source(tmp_path), signal.SIGKILL)
        feed(command, lines[100][3:] + b"\n" + b"\n".join(lines[101:]))
        close(command)
        command.ended(60).ok()
    assert written(tmp_path) == lines


def test_killed_again_and_again_while_lines_stream_in(tmp_path: Path) -> None:
    """They are fed in bits of any length, many at a time, and more of them than the window lets in at once."""
    write(tmp_path, "window: 2000\n" + TOPOLOGY.format(recovery="respawn"))
    fed = bytearray()
    enough = threading.Event()

    def stream() -> None:
        number = 0
        while not enough.is_set():
            some = b"".join(b"%d and what stands in line %d\n" % (n, n) for n in range(number, number + 100))
            number += 100
            cut = number % 997
            for bit in (some[:cut], some[cut:]):
                with suppress(OSError):  # A run that has failed.
                    feed(command, bit)
                fed.extend(bit)
                time.sleep(0.002)

    with running("run", "piped.yaml", cwd=tmp_path, stdin=subprocess.PIPE) as command:
        feeder = threading.Thread(target=stream, daemon=True)
        feeder.start()
        try:
            for _ in range(5):
                before = len(written(tmp_path))
                until(lambda before=before: len(written(tmp_path)) > before, "more lines have come out")
                kill_source(tmp_path)
        finally:
            enough.set()
        feeder.join(60)
        feed(command, b"the last one without an end")
        close(command)
        command.ended().ok()
    expected = [*bytes(fed).splitlines(), b"the last one without an end"]
    got = written(tmp_path)
    assert len(got) == len(expected) and got == expected


def test_killed_when_standard_input_has_ended_already(tmp_path: Path) -> None:
    """The end may be in the journal or not when the replica dies; the operator behind it takes its time."""
    write(tmp_path, "window: 200\n" + TOPOLOGY.format(recovery="respawn") + "script: [Interval same 1, Start]\n")
    lines = [b"%d" % number for number in range(1000)]
    with running("run", "piped.yaml", cwd=tmp_path, stdin=subprocess.PIPE) as command:
        feed(command, b"\n".join(lines))
        close(command)
        for _ in range(2):
            before = len(written(tmp_path))
            until(lambda before=before: len(written(tmp_path)) > before, "more lines have come out")
            kill_source(tmp_path)
        command.ended().ok()
    assert written(tmp_path) == lines


FRAGILE = """\
name: piped
durable: state
snapshot_every: 100ms
sources: {typed: {stdin: text}}
operators: {same: {input: typed, custom: fragile.same, fields: [line], replicas: 2}}
"""


@pytest.mark.parametrize("way", ["an operator fails", "the front end is killed"])
def test_a_run_that_stops_in_mid_line_is_resumed_with_more_of_standard_input(tmp_path: Path, way: str) -> None:
    broken = tmp_path / "broken"
    (tmp_path / "fragile.py").write_text(
        f"import os\n\n\ndef same(line):\n    assert not os.path.exists({str(broken)!r})\n    return (line,)\n"
    )
    write(tmp_path, FRAGILE)
    with running("run", "piped.yaml", cwd=tmp_path, stdin=subprocess.PIPE) as command:
        feed(command, b"one\ntwo\nthr")
        until(lambda: written(tmp_path) == [b"one", b"two"], "two lines have come out")
        if way == "an operator fails":
            broken.touch()
            feed(command, b"ee\nhalf a li")
            assert command.ended().code == 1
            broken.unlink()
        else:
            feed(command, b"ee\n")
            until(lambda: written(tmp_path) == [b"one", b"two", b"three"], "three lines have come out")
            feed(command, b"half a li")
            time.sleep(0.3)  # For it to get where it could do harm.
            processes = [int(pid) for pid in re.findall(r"process (\d+)", events(tmp_path))]
            command.process.kill()
            until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), "nobody is left", 60)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("state/run-*/journal/*"))
    assert b"three\n" in kept and b"half" not in kept
    run("run", "piped.yaml", "--resume", cwd=tmp_path, stdin=b"four\nfive").ok()
    assert written(tmp_path) == [b"one", b"two", b"three", b"four", b"five"]


def events(folder: Path) -> str:
    return (folder / "runs" / "piped-1" / "events.log").read_text()
