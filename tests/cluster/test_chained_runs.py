"""Chained operators: the output of a run without chains, to the byte, also when every process is killed in turn."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest
from kit import Running, files_in, run, running, until

pytestmark = pytest.mark.cluster

TOPOLOGY = """
chain: {chain}
recovery: {recovery}
snapshot_every: 200ms
sources:
  made: {{generate: {{n: counter, k: {{int: [0, 99]}}, w: {{words: {{count: 3}}}}}}, count: {count}{rate}}}
operators:
  some:   {{input: made, filter: k < 90}}
  before: {{input: some, filter: k > 3, replicas: 2}}
  counts: {{input: before, count: k, replicas: 2}}
  after:  {{input: counts, filter: count > 2, replicas: 2}}
"""


def expected(folder: Path, count: int) -> dict[str, bytes]:
    text = TOPOLOGY.format(chain="false", recovery="respawn", count=count, rate="")
    (folder / "plain.yaml").write_text(text)
    run("run", "plain.yaml", "--out", "plain", cwd=folder).ok()
    return files_in(folder / "plain")


def replicas(command: Running) -> dict[str, int]:
    """The processes of a run, by their names."""
    found = {}
    for process in psutil.Process(command.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            for file in process.open_files():
                if file.path.endswith(".log") and "+" in os.path.basename(file.path):
                    found[os.path.basename(file.path).removesuffix(".log")] = process.pid
    return found


def test_chains_do_not_change_a_byte(tmp_path: Path) -> None:
    wanted = expected(tmp_path, 50_000)
    (tmp_path / "t.yaml").write_text(TOPOLOGY.format(chain="true", recovery="respawn", count=50_000, rate=""))
    run("run", "t.yaml", "--out", "out", cwd=tmp_path).ok()
    assert files_in(tmp_path / "out") == wanted
    logs = sorted(path.name for path in (tmp_path / "runs" / "t-1").glob("*+*.log"))
    assert logs == ["before+counts+after.0.log", "before+counts+after.1.log", "made+some.0.log"]


def test_the_console_shows_the_names_of_the_topology(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY.format(chain="true", recovery="respawn", count=100, rate=""))
    lines = run("run", "t.yaml", "--sink", "console", cwd=tmp_path).ok().out.splitlines()
    assert lines and all(line.startswith("after: ") for line in lines)
    text = "sources: {lines: {generate: {n: counter}, count: 3}}\noperators: {f: {input: lines, filter: n != 1}}"
    (tmp_path / "t.yaml").write_text(text)
    assert run("run", "t.yaml", "--sink", "console", cwd=tmp_path).ok().out == "f: 0\nf: 2\n"


def test_standard_input_reaches_a_source_that_is_chained(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "sources: {lines: {stdin: csv, fields: [a, b]}}\noperators: {f: {input: lines, filter: a != 2}}"
    )
    run("run", "t.yaml", cwd=tmp_path, stdin=b"1,x\n2,y\n3,z\n").ok()
    assert (tmp_path / "out" / "f.csv").read_text().split() == ["1,x", "3,z"]


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
def test_every_process_of_a_chain_may_be_killed(tmp_path: Path, recovery: str) -> None:
    wanted = expected(tmp_path, 30_000)
    text = TOPOLOGY.format(chain="true", recovery=recovery, count=30_000, rate=", rate: 6000")
    (tmp_path / "t.yaml").write_text(text)
    output = tmp_path / "out" / "after.csv"
    with running("run", "t.yaml", "--out", "out", cwd=tmp_path) as command:
        for name in ("before+counts+after.0", "made+some.0", "before+counts+after.1"):
            size = output.stat().st_size if output.exists() else 0
            until(lambda than=size: output.exists() and output.stat().st_size > than, "output")  # type: ignore[misc]
            until(lambda which=name: which in replicas(command), name)  # type: ignore[misc]
            os.kill(replicas(command)[name], signal.SIGKILL)
        command.ended(60).ok()
    assert files_in(tmp_path / "out") == wanted
