"""What the tests of durable runs share: a topology with keyed state, the death of everybody, how far the disk is."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.cluster.kit import Running, run, until

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


def kill_everything(*commands: Running) -> None:
    """kill -9, at once: PuppetMaster, PCSs, zygotes and all replicas; returns when they are gone."""
    everybody = {pid for command in commands for pid in family(command.process.pid)}
    for pid in sorted(everybody):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for command in commands:
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
