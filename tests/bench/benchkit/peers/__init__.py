"""The others: what a Python user would take instead. Each is a module of this folder, with an environment of its own.

A peer's module says in ``PEER`` what it is: its packages, what it promises, and the command that runs a workload. The
command is run as it is, from the outside; what it needs to have ready (an empty recovery store, say) is made by
``before``, which is not measured. The peer's program is ``programs/NAME_program.py``, which only the peer's own
Python reads, so this one needs none of the packages.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    name: str
    promise: str
    """What is left after a crash, in a few words."""
    command: Callable[[str, str, Path, Path], Sequence[str]]
    """(python, workload, data, folder for the output) → what to run."""
    packages: tuple[str, ...] = ()
    """For pip; none: this Python will do."""
    before: Callable[[str, str, Path, Path], Sequence[str]] | None = None
    """The same arguments → what to run first, unmeasured."""
    outputs: str = "out.csv"
    """Glob of the files it writes, in the folder."""
    reading: Callable[[bytes], bytes] | None = None
    """What makes lines of ours of its output, for the check."""
    workloads: tuple[str, ...] = ("W1", "W2", "W3")
    environment: Mapping[str, str] = field(default_factory=dict)


def names() -> list[str]:
    """All peers there are."""
    return [module.name for module in pkgutil.iter_modules([str(HERE)]) if not module.ispkg]


def load(name: str) -> Peer:
    peer = importlib.import_module(f"{__name__}.{name}").PEER
    assert isinstance(peer, Peer) and peer.name == name
    return peer


def program(name: str) -> str:
    """Path of a peer's program."""
    return str(HERE / "programs" / f"{name}_program.py")


def python_of(peer: Peer, cache: Path) -> str:
    """The Python that has the peer's packages; the first use makes its environment."""
    if not peer.packages:
        return sys.executable
    wanted = hashlib.sha256(repr((peer.packages, sys.version_info[:2])).encode()).hexdigest()[:8]
    place = cache / "peers" / f"{peer.name}-{wanted}"
    python = place / "bin" / "python"
    if (place / ".ready").exists():
        return str(python)
    print(f"{peer.name}: making its environment in {place}", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    base = getattr(sys, "_base_executable", sys.executable)
    for step in ([base, "-m", "venv", str(place)], [str(python), "-m", "pip", "install", "--quiet", *peer.packages]):
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-15:])
            raise SystemExit(
                f"{peer.name}: {' '.join(step)} did not work:\n{tail}\nCheck the network and run this again."
            )
    (place / ".ready").touch()
    return str(python)
