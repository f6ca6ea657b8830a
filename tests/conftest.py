"""What all tests share: Hypothesis settings, and the check that a test on real processes leaves nothing behind.

A test marked ``cluster`` runs with a temporary folder of its own and a mark in the environment. Every process that
descends from it inherits the mark, also one that was adopted by init after its parent died, so none can hide. When
the test is over they must all be gone, and the folder empty: socket files and temporary folders live there.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

MARK = "DADSTORM_TEST"
LEAVE_WITHIN_S = 5.0
"""How long processes may take to end after the test body is done: it asked them to, and a loaded machine is slow."""

pytest_plugins = ["pytester"]

# Who was started in the background, or with nohup, ignores these, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)

# Commands that tests start are compiled once, as they are for a user, not each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A temporary folder with a short path: a socket file's path may have little more than a hundred bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ds"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests marked ``cluster``: no process, socket file or temporary file is left."""
    if request.node.get_closest_marker("cluster") is None:
        yield
        return
    # pytest makes its own temporary folder at its first use: that must not be within the one that has to be empty.
    request.getfixturevalue("tmp_path_factory").getbasetemp()
    folder: Path = request.getfixturevalue("short_tmp")
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    left = processes_left(mark, LEAVE_WITHIN_S)
    told = [describe(process) for process in left]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert not told, "processes left after the test:\n" + "\n".join(told)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert not files, "files left in the temporary folder after the test:\n" + "\n".join(files)


def processes_left(mark: str, within_s: float) -> list[psutil.Process]:
    """Living processes that carry the mark once there are none, or the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        left = [process for process in psutil.process_iter() if _carries(process, mark)]
        if not left or time.monotonic() > deadline:
            return left
        psutil.wait_procs(left, timeout=0.05)


def _carries(process: psutil.Process, mark: str) -> bool:
    if process.pid == os.getpid():
        return False
    with suppress(psutil.Error, OSError):
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.environ().get(MARK) == mark
        # A zombie is a child that its parent has not collected: ours if it is a child of this process.
        return process.ppid() == os.getpid()
    return False


def describe(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"  {process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    return f"  {process.pid} (just gone)"
