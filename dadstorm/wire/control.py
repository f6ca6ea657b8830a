"""What the control plane says: PuppetMaster, PCS and replicas.

Plain data, like all messages. The PuppetMaster asks a PCS to ``Spawn`` replicas; each replica says ``Hello`` with the
address it bound; once all are there every replica gets the ``Directory`` of all addresses, attaches to its producers,
and waits for ``Start``. While it runs a replica sends ``Stats``; when everything it hosts is safe to the end of the
line, ``Finished``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dadstorm.core import messages


class Spawn(msgspec.Struct, tag="spawn", frozen=True):
    """PuppetMaster → PCS: start this replica of this plan."""

    plan: bytes
    operator: int
    replica: int
    master: str
    """Where the PuppetMaster listens."""
    folder: str
    """The run's folder: logs and journals."""
    shake: Shake


class Shake(msgspec.Struct, frozen=True):
    """How to shake a run, for those who want to see that its output does not change: messages are held back by a
    random time up to ``delay_ms``, no step takes more than ``batch_max`` rows (0: no limit), and with ``order`` the
    replicas are spawned and told to start in a random order instead of the plan's."""

    delay_ms: float = 0
    batch_max: int = 0
    seed: int = 0
    order: bool = False


class Respawn(msgspec.Struct, tag="respawn", frozen=True):
    """Leader of a ring → PCS: start this replica again, in this incarnation."""

    operator: int
    replica: int
    incarnation: int


class Resume(msgspec.Struct, frozen=True):
    """What a later incarnation is told when it starts."""

    living: dict[int, int]
    """The other replicas of the ring that are not known to be dead, with their incarnations."""
    directory: tuple[tuple[str, ...], ...]
    started: bool
    draining: bool


class Spawned(msgspec.Struct, tag="spawned", frozen=True):
    """PCS → PuppetMaster: the replica has this process."""

    operator: int
    replica: int
    pid: int


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """PCS → PuppetMaster: the replica was not started, and why."""

    operator: int
    replica: int
    reason: str


class Died(msgspec.Struct, tag="died", frozen=True):
    """PCS → PuppetMaster: the process ended; ``status`` is its exit code, negative for a signal. ``recovers``: a new
    incarnation will be started."""

    operator: int
    replica: int
    pid: int
    status: int
    recovers: bool = False


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True):
    """PuppetMaster → PCS: end all replicas of this run."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """Replica → PuppetMaster: here I am."""

    operator: int
    replica: int
    pid: int
    address: str
    incarnation: int = 0


class Directory(msgspec.Struct, tag="directory", frozen=True):
    """PuppetMaster → replica: ``addresses[operator][replica]``, for everybody."""

    addresses: tuple[tuple[str, ...], ...]


class Start(msgspec.Struct, tag="start", frozen=True):
    """PuppetMaster → replica: begin to process."""


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """PuppetMaster → source replica: take in nothing new, end the stream."""


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """PuppetMaster → replica: end yourself."""


class Stats(msgspec.Struct, tag="stats", frozen=True):
    """Replica → PuppetMaster: how far it is."""

    operator: int
    replica: int
    rows_in: int
    rows_out: int
    queued: int
    frontier: int
    safe: int
    dropped: int
    """Messages that were rubbish."""
    memory_kb: int


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """Replica → PuppetMaster: everything I host is safe to the end of the line."""

    operator: int
    replica: int


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Replica → PuppetMaster: I cannot go on; ``fault`` tells whose mistake it is."""

    operator: int
    replica: int
    fault: Literal["user", "run", "defect"]
    text: str


class Said(msgspec.Struct, tag="said", frozen=True):
    """Replica → PuppetMaster: text for the user's terminal (the console sink)."""

    operator: int
    text: str


Message = (
    messages.Message
    | Spawn
    | Respawn
    | Spawned
    | Refused
    | Died
    | Shutdown
    | Hello
    | Directory
    | Start
    | Drain
    | Stop
    | Stats
    | Finished
    | Failed
    | Said
)
"""Everything that may arrive on a socket."""
