"""What the control plane says: PuppetMaster, PCS and replicas.

Plain data, like all messages. The PuppetMaster asks a PCS to ``Open`` a run and then to ``Spawn`` replicas of it; each
replica says ``Hello`` with the address it bound; once all are there every replica gets the ``Directory`` of all
addresses, attaches to its producers, and waits for ``Start``. While it runs a replica sends ``Stats``; when everything
it hosts is safe to the end of the line, ``Finished``.

None of this needs the PuppetMaster once the run is started. PCSs that miss it tell each other ``News``; a new one asks
for ``Runs``, has one of them ``Show``n, and takes over by its ``Pulse``: each PuppetMaster of a run has a *reign*, and
the higher one wins.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dadstorm.core import messages
from dadstorm.wire.cuts import Cuts
from dadstorm.wire.experiments import Partition as Partition
from dadstorm.wire.experiments import Perish as Perish
from dadstorm.wire.experiments import Slow as Slow
from dadstorm.wire.experiments import Spared as Spared

PUBLIC = bytes(16)
"""The token of those who have no run yet: with it a PCS that serves everybody takes ``Open``, and nothing else."""


class Open(msgspec.Struct, tag="open", frozen=True):
    """PuppetMaster → PCS: can this plan run here, and if so, make ready for it. From then on everything about the run
    is said with its token."""

    run: bytes
    """The token of the run."""
    host: str
    """Which of the plan's hosts this PCS is."""
    plan: bytes
    master: str
    """Where the PuppetMaster listens."""
    folder: str
    """The run's folder: logs and journals. Only a PCS that belongs to the PuppetMaster takes it."""
    reach: str
    """Where the replicas of a PCS that belongs to the PuppetMaster listen: a host, or nothing for files."""
    shake: Shake
    look_only: bool = False
    """Tell what is wrong, and nothing more."""


class Opened(msgspec.Struct, tag="opened", frozen=True):
    """PCS → PuppetMaster: what I am, and all that keeps the plan from running here."""

    host: str
    version: str
    python: str
    address: str
    """Where other PCSs of the run reach me."""
    replicas: int
    replicas_max: int
    problems: tuple[str, ...] = ()


class Pulse(msgspec.Struct, tag="pulse", frozen=True):
    """PuppetMaster → PCS, every second, and back: still there. One of a higher reign takes over the run."""

    host: str
    reign: int = 0
    """Which PuppetMaster of the run this is; the first has reign 0."""
    master: str = ""
    """Where it listens."""
    silent: tuple[str, ...] = ()
    """Hosts of which the PuppetMaster has heard nothing for too long, neither of the PCS nor of a replica."""


class Superseded(msgspec.Struct, tag="superseded", frozen=True):
    """PCS → PuppetMaster: another one has taken over the run, and listens there."""

    host: str
    master: str


class Master(msgspec.Struct, tag="master", frozen=True):
    """PuppetMaster → replica: report to me from now on."""

    reign: int
    address: str


class Runs(msgspec.Struct, tag="runs", frozen=True):
    """PuppetMaster → PCS, with the token of those who have no run: what runs here?"""


class RunHere(msgspec.Struct, frozen=True):
    """One run at a PCS, for people to choose from."""

    run: bytes
    name: str
    host: str
    """Which of the plan's hosts the PCS is."""
    hosts: tuple[str, ...]
    folder: str
    since_s: float
    silent_s: float
    """How long its PuppetMaster has not been heard of."""


class Running(msgspec.Struct, tag="running", frozen=True):
    """PCS → PuppetMaster: what runs here."""

    version: str
    runs: tuple[RunHere, ...]


class Show(msgspec.Struct, tag="show", frozen=True):
    """PuppetMaster → PCS, with the token of those who have no run: all that one needs to take over this one."""

    run: bytes


class ReplicaHere(msgspec.Struct, frozen=True):
    operator: int
    replica: int
    incarnation: int
    pid: int | None
    """None: it is dead just now, and is being brought back."""


class News(msgspec.Struct, tag="news", frozen=True):
    """PCS → PCS, while the PuppetMaster is silent: what I know of the run. Who knows less learns it."""

    address: str
    """Where the sender listens: if the run is over here, it is told so."""
    directory: tuple[tuple[str, ...], ...]
    pcs: tuple[tuple[str, ...], ...]
    started: tuple[int, ...]
    intervals: tuple[tuple[int, int], ...]
    """Per operator that has one: its milliseconds."""
    draining: bool
    finished: tuple[tuple[int, int], ...]
    """Operator and slice, on whichever host."""


class Shown(msgspec.Struct, tag="shown", frozen=True):
    """PCS → PuppetMaster: a run, as far as this PCS knows it."""

    host: str
    reign: int
    plan: bytes
    shake: Shake
    news: News
    replicas: tuple[ReplicaHere, ...]
    """Those of this host."""


class Log(msgspec.Struct, tag="log", frozen=True):
    """PCS → PuppetMaster: what was appended to a log of the run."""

    host: str
    file: str
    data: bytes
    offset: int = 0
    """Where in the file it stands: a PCS that was started again sends what was sent before."""


class Closed(msgspec.Struct, tag="closed", frozen=True):
    """PCS → PuppetMaster: no replica of the run is left here, and all logs were sent. ``reason``: why, if nobody had
    asked for it."""

    host: str
    reason: str = ""


class Spawn(msgspec.Struct, tag="spawn", frozen=True):
    """PuppetMaster → PCS: start this replica of the run's plan."""

    operator: int
    replica: int


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


class Moved(msgspec.Struct, tag="moved", frozen=True):
    """To everybody, from a PCS that has taken over a replica of a lost host: it lives here now, in this incarnation."""

    operator: int
    replica: int
    incarnation: int
    address: str
    pcs: str
    """Where the PCS listens that is its parent now."""
    host: str
    """Of that PCS, as the plan names it."""


class Resume(msgspec.Struct, frozen=True):
    """What a later incarnation is told when it starts."""

    living: dict[int, int]
    """The other replicas of the ring that are not known to be dead, with their incarnations."""
    directory: tuple[tuple[str, ...], ...]
    started: bool
    draining: bool
    interval_ms: int = 0
    slow_ms: int = 0
    cuts: Cuts = ()
    slices: dict[int, int] | None = None
    """The slices it is to resume, each in its incarnation; None: those that the plan gives it."""
    moved: tuple[Moved, ...] = ()
    """Who lives elsewhere than the plan says; the directory has their addresses."""
    detected_ms: float = 0
    """How long its predecessor had been dead or silent when it was to be brought back."""
    asked_ms: float = 0
    """When that was, by the clock of the host."""


class Adopted(msgspec.Struct, tag="adopted", frozen=True):
    """Replica → its PCS → the other PCSs: it has these slices of a lost peer, each in its incarnation."""

    operator: int
    replica: int
    slices: tuple[tuple[int, int], ...]


class Spread(msgspec.Struct, tag="spread", frozen=True):
    """PCS → PuppetMaster: a lost replica is not started again; these others of its ring adopt its slices."""

    operator: int
    replica: int
    over: tuple[int, ...]


class Present(msgspec.Struct, tag="present", frozen=True):
    """PCS → PCS, several times a second: I am there, have not heard of these hosts for too long, and these replicas
    have moved."""

    host: str
    silent: tuple[str, ...] = ()
    moved: tuple[Moved, ...] = ()
    lives: tuple[tuple[int, int, int], ...] = ()
    """Operator, replica and incarnation of those that were brought back here: who takes one over makes a higher one."""


class TakeOver(msgspec.Struct, tag="take-over", frozen=True):
    """PCS → PCS: you should take over this replica of a lost host, which was last known in this incarnation; those
    who were asked before have refused, each with its reason."""

    operator: int
    replica: int
    incarnation: int
    refused: tuple[tuple[str, str], ...] = ()


class Recovered(msgspec.Struct, tag="recovered", frozen=True):
    """Replica → PuppetMaster: who was lost is back, or these slices of it are, at another replica of its operator, and
    stand where they stood; how long each step took."""

    operator: int
    replica: int
    incarnation: int
    at: int
    slices: tuple[int, ...]
    detected_ms: float
    spawned_ms: float
    restored_ms: float = 0.0
    replayed_ms: float = 0.0


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
    incarnation: int
    """Of who died: other hosts may have the same process numbers, and a PCS that was started again says it again."""
    recovers: bool = False


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True):
    """PuppetMaster → PCS: end all replicas of this run. PCS → PCS: the same, with the reason."""

    reason: str = ""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """Replica → PuppetMaster: here I am."""

    operator: int
    replica: int
    pid: int
    address: str
    incarnation: int = 0


class Directory(msgspec.Struct, tag="directory", frozen=True):
    """PuppetMaster → replica: ``addresses[operator][replica]``, for everybody. To a PCS also, in the same way, where
    the PCS of each replica listens."""

    addresses: tuple[tuple[str, ...], ...]
    pcs: tuple[tuple[str, ...], ...] = ()


class Start(msgspec.Struct, tag="start", frozen=True):
    """PuppetMaster → replica and PCS: begin to process; ``operators``: only theirs, nobody: all."""

    operators: tuple[int, ...] = ()


class Interval(msgspec.Struct, tag="interval", frozen=True):
    """PuppetMaster → replica and PCS: sleep so long between two consecutive tuples; 0: do not."""

    operator: int
    ms: int


class Freeze(msgspec.Struct, tag="freeze", frozen=True):
    """PuppetMaster → replica: stop to process, and go on to receive; or (not ``frozen``) process what is pending."""

    frozen: bool
    incarnation: int
    """Only this one: who takes the place of a replica that died may get what was sent to it, and is not frozen."""


class Crash(msgspec.Struct, tag="crash", frozen=True):
    """PuppetMaster → PCS: kill this replica, as a failure would."""

    operator: int
    replica: int


class Look(msgspec.Struct, tag="look", frozen=True):
    """PuppetMaster → replica: answer at once with your ``Stats``, which carry this number."""

    number: int


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """PuppetMaster → source replica: take in nothing new, end the stream."""


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """PuppetMaster → replica: end yourself. ``complete``: the run is over, and nothing of it need be kept."""

    complete: bool = False


State = Literal["waiting", "running", "frozen", "finished", "recovering"]


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
    state: State = "running"
    incarnation: int = 0
    slices: int = 0
    snapshot_age_ms: int | None = None
    """How old the oldest of its slices' newest snapshots is; None if one of them has none."""
    suspects: tuple[int, ...] = ()
    """Which others of its ring it has not heard of for too long."""
    look: int = 0
    """The number of the ``Look`` that this answers."""


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """Replica → PuppetMaster and PCS: everything I host, these slices, is safe to the end of the line."""

    operator: int
    replica: int
    slices: tuple[int, ...] = ()


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Replica → PuppetMaster and PCS: I cannot go on; ``fault`` tells whose mistake it is."""

    operator: int
    replica: int
    fault: Literal["user", "run", "defect"]
    text: str
    incarnation: int | None
    """Of who failed: the failure of one that has been replaced stops nobody. None: a PCS says that nobody can take the
    replica's place."""


class Said(msgspec.Struct, tag="said", frozen=True):
    """Replica → PuppetMaster: text for the user's terminal (the console sink)."""

    operator: int
    text: str


class Emitted(msgspec.Struct, tag="emitted", frozen=True):
    """Replica → PuppetMaster: tuples that it has emitted, a line of text each; only with ``logging: full``."""

    operator: int
    replica: int
    text: str


Message = (
    messages.Message
    | Open
    | Opened
    | Pulse
    | Superseded
    | Master
    | Runs
    | Running
    | Show
    | Shown
    | News
    | Log
    | Closed
    | Spawn
    | Respawn
    | Adopted
    | Spread
    | Recovered
    | Moved
    | Present
    | TakeOver
    | Spawned
    | Refused
    | Died
    | Shutdown
    | Hello
    | Directory
    | Start
    | Interval
    | Freeze
    | Crash
    | Slow
    | Partition
    | Perish
    | Spared
    | Look
    | Drain
    | Stop
    | Stats
    | Finished
    | Failed
    | Said
    | Emitted
)
"""Everything that may arrive on a socket."""
