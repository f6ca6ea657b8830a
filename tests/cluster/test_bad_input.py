"""Mistakes in the user's files and arguments, through the real command: exit code 2, soon, and nothing was started.

What exactly is told about each broken topology stands in ``tests/broken/expected.txt``, and all of them are tested
without processes. Here it is the whole way, from the command line to its exit: the messages with file, line and column,
no traceback, no folder for results or logs, no process, no socket file.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import MARK, processes_left
from kit import Outcome, run

pytestmark = pytest.mark.cluster

BROKEN = Path(__file__).parents[1] / "broken"
SECONDS_MAX = 2.0
"""On a machine that has more to do than it has processors, everything takes as many times longer."""
TRIES = 2
AT_ONCE = 2
ALWAYS = {
    "bad-field-type.yaml",
    "binary.yaml",
    "custom-raises.yaml",
    "cycle.yaml",
    "duplicate-name.yaml",
    "field-out-of-range.yaml",
    "missing-file.yaml",
    "not-yaml.yaml",
    "port-taken.yaml",
    "several-mistakes.yaml",
    "unknown-kind.yaml",
    "wrong-arity.yaml",
}
"""Those that are tried in any case; of the others every second one, to save time."""

FINE = "sources: {g: {generate: {n: counter}, count: 3}}\noperators: {a: {input: g, dup: }}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a right topology; when the test is over, nothing has been started from it."""
    (tmp_path / "fine.yaml").write_text(FINE)
    yield tmp_path
    assert not (tmp_path / "runs").exists(), "nothing was started"
    assert not (tmp_path / "out").exists(), "no results"
    assert processes_left(os.environ[MARK], 0) == []
    assert os.listdir(tempfile.gettempdir()) == []


def refused(*arguments: str | Path, cwd: Path) -> Outcome:
    """Run a command that must be refused, and check what holds for all of those."""
    for _ in range(TRIES):
        outcome = run("run", *arguments, cwd=cwd)
        said = f"{arguments}: {outcome.code} after {outcome.seconds:.1f} s\n{outcome.err}"
        assert outcome.code == 2, said
        assert "Traceback" not in outcome.err, said
        assert outcome.out == "", said
        limit = SECONDS_MAX * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        if outcome.seconds < limit:
            return outcome
    raise AssertionError(f"it takes more than {limit:.1f} s: {said}")


def expectations(folder: Path) -> dict[str, list[str]]:
    """Topology → the beginnings of the messages it must be refused with."""
    expected: dict[str, list[str]] = {}
    name = ""
    for line in (BROKEN / "expected.txt").read_text().splitlines():
        if line.startswith("  "):
            expected[name].append(f"{name}:{line.strip()}".replace("FOLDER", str(folder)))
        elif line and not line.startswith("#"):
            name = line
            expected[name] = []
    return expected


def test_broken_topologies_are_refused_with_all_their_mistakes(folder: Path) -> None:
    copy = folder / "broken"
    shutil.copytree(BROKEN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    expected = expectations(copy)
    names = sorted(ALWAYS | set(sorted(expected)[::2]))
    assert len(names) >= 30

    def problems(name: str) -> list[str]:
        """What is not as it should be with one of them."""
        try:
            said = refused(name, cwd=copy).err.removeprefix("error: ")
        except AssertionError as problem:
            return [f"{name}: {problem}"]
        told = [line for line in said.splitlines() if line.startswith(f"{name}:")]
        wrong = [f"{name}: not told:\n  {one}" for one in expected[name] if not any(t.startswith(one) for t in told)]
        if len(told) != len(expected[name]):
            wrong.append(f"{name}: {len(told)} mistakes told instead of {len(expected[name])}:\n{said}")
        return wrong

    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [problem for found in pool.map(problems, names) for problem in found]
    assert not wrong, "\n".join(wrong)
    assert not (copy / "runs").exists(), "nothing was started"
    assert not (copy / "out").exists(), "no results"


def test_a_port_that_somebody_else_has(folder: Path) -> None:
    """All that are taken are told at once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (folder / "live.yaml").write_text(
            f"sources: {{t: {{tcp: 127.0.0.1:{port}}}}}\noperators: {{a: {{input: t, dup: }}}}\n"
        )
        (folder / "fixed.yaml").write_text(
            "sources: {g: {generate: {n: counter}, count: 3}}\n"
            f"operators: {{a: {{input: g, dup: , address: tcp://127.0.0.1:{port}}}}}\n"
        )
        live, fixed = refused("live.yaml", cwd=folder), refused("fixed.yaml", cwd=folder)
    assert f"source t: cannot listen on 127.0.0.1:{port}: Address already in use" in live.err
    assert "choose another port" in live.err
    assert f"operator a, replica 0: cannot listen on 127.0.0.1:{port}: Address already in use" in fixed.err


def test_an_address_that_others_can_reach_needs_keys(folder: Path) -> None:
    (folder / "live.yaml").write_text("sources: {t: {tcp: 192.0.2.1:7000}}\noperators: {a: {input: t, dup: }}\n")
    said = refused("live.yaml", cwd=folder).err
    assert "source t: 192.0.2.1:7000 can be reached by others, and there are no keys" in said
    assert "or use 127.0.0.1" in said


ARGUMENTS = {
    "no file": ([], "required: FILE"),
    "an unknown option": (["fine.yaml", "--fast"], "unrecognized arguments: --fast"),
    "two files": (["fine.yaml", "fine.yaml"], "unrecognized arguments: fine.yaml"),
    "an unknown sink": (["fine.yaml", "--sink", "cvs"], "invalid choice: 'cvs'"),
    "an option without its value": (["fine.yaml", "--out"], "argument --out: expected one argument"),
    "no number": (["fine.yaml", "--shake-batch", "few"], "expected a whole number from 0 on, found 'few'"),
    "a file for a folder": (["fine.yaml", "--out", "fine.yaml"], "fine.yaml is not a folder"),
    "a folder that cannot be": (["fine.yaml", "--out", "/dev/null/x"], "--out: /dev/null is not a folder"),
    "no folder for logs": (["fine.yaml", "--runs", "fine.yaml"], "cannot make the folder"),
    "a library that is not there": (["fine.yaml", "--lib", "nowhere"], "--lib: no such folder: nowhere"),
    "a file that is not there": (["fin.yaml"], 'error: fin.yaml: no such file; did you mean "fine.yaml"?'),
    "a folder as the topology": (["."], "error: .: cannot be read: Is a directory"),
    "a device that never ends": (["/dev/zero"], "larger than 256 KB"),
    "no text": (["binary"], "error: binary:1:1: not text"),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_wrong_arguments(folder: Path, what: str) -> None:
    (folder / "binary").write_bytes(bytes(reversed(range(256))))
    arguments, expected = ARGUMENTS[what]
    assert expected in refused(*arguments, cwd=folder).err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_may_not_be_read_or_written(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o500)
    (folder / "secret.yaml").touch(mode=0)
    assert "Permission denied" in refused("secret.yaml", cwd=folder).err
    assert "--out" in refused("fine.yaml", "--out", "closed/out", cwd=folder).err


def test_a_place_for_temporary_files_that_does_not_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Socket files have a limit on the length of their paths; it is told before anything is started."""
    long = folder / ("long" * 30)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    assert "Set TMPDIR to a shorter folder" in refused("fine.yaml", cwd=folder).err
    assert list(long.iterdir()) == []
