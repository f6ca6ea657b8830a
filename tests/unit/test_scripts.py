"""scripts/run: which topology runs, and that arguments arrive as they were typed.

The script is copied beside a set-up that does nothing and a Python that prints its arguments.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a clone to scripts/run; its path has a blank in it."""
    folder = tmp_path / "a clone"
    for name, text in [("scripts/setup", "exit 0"), (".venv/bin/python", 'printf "%s\\n" "$@"')]:
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "run", folder / "scripts" / "run")
    return folder


def run(clone: Path, *arguments: str) -> list[str]:
    """The arguments of ``python -m dadstorm run`` that come of ``scripts/run ARGUMENTS``."""
    done = subprocess.run([str(clone / "scripts" / "run"), *arguments], capture_output=True, text=True, check=True)
    first, second, third, *rest = done.stdout.splitlines()
    assert (first, second, third) == ("-m", "dadstorm", "run")
    return rest


def test_a_given_topology_runs(clone: Path) -> None:
    assert run(clone, "my topology.yaml", "--sink", "csv") == ["my topology.yaml", "--sink", "csv"]
    assert run(clone, "--sink", "csv", "mine.yaml") == ["--sink", "csv", "mine.yaml"]
    assert run(clone, "--quiet", "--out=o p", "mine.yaml") == ["--quiet", "--out=o p", "mine.yaml"]


def test_without_one_the_reach_topology_runs(clone: Path) -> None:
    reach = str(clone / "configs" / "reach.yaml")
    assert run(clone) == [reach]
    assert run(clone, "--quiet") == [reach, "--quiet"]
    assert run(clone, "--out=elsewhere", "--sink", "csv") == [reach, "--out=elsewhere", "--sink", "csv"]


def test_every_option_with_a_value_is_known(clone: Path) -> None:
    """The value of an option is not a topology: scripts/run must know all options of ``dadstorm run`` that take one."""
    shown = subprocess.run(
        [sys.executable, "-m", "dadstorm", "run", "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with_value = re.findall(r"^  (--[\w-]+) (?=\S)", shown, re.MULTILINE)
    assert "--out" in with_value and "--quiet" not in with_value
    for option in with_value:
        assert run(clone, option, "value")[0].endswith("reach.yaml"), f"{option} VALUE: taken for a topology"


def test_a_failed_set_up_runs_nothing(clone: Path) -> None:
    (clone / "scripts" / "setup").write_text("#!/bin/sh\nexit 1\n")
    done = subprocess.run([str(clone / "scripts" / "run")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
