"""A deployment: one run of one plan, from the first spawn to the last goodbye.

The PuppetMaster's half of the control plane. It asks the PCSs for replicas, waits until all have said where they
listen, hands everybody the directory and says Start. From then on it only listens: data flows between the replicas
without it. The deployment is over when every replica has said that it is finished, when one has failed, or when one
has died that should not have.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dadstorm import logs
from dadstorm.core.messages import Peer
from dadstorm.durable import kept
from dadstorm.errors import DadstormError, RunFailed, UserError
from dadstorm.plan import Plan
from dadstorm.whereabouts import Whereabouts
from dadstorm.wire import control
from dadstorm.wire.endpoint import Endpoint, is_address
from puppetmaster import views
from puppetmaster.hosts import Hosts
from puppetmaster.losses import Losses
from puppetmaster.partitions import Partitions
from puppetmaster.replicas import Replica, recovery, signal_name

SPAWN_PATIENCE_S = 30.0
"""How long replicas may take to appear; a fork takes milliseconds, an overloaded machine longer."""
GOODBYE_PATIENCE_S = 2.0
"""How long replicas may take to leave when all is done and committed: who does not is killed, and no harm is done."""
LAST_WORDS_PATIENCE_S = 1.0
"""A replica that fails says why and exits with 1. Its death may be heard of before its words; they come this soon."""

CLAIM_S = 1.0

log = logs.get_logger()


@dataclass(slots=True)
class Snapshot:
    """The state of a run at a glance."""

    alive: int
    replicas: int
    rows_read: int
    rows_written: int
    frontier: int
    memory_mb: float


@dataclass(slots=True)
class Deployment:
    plan: Plan
    endpoint: Endpoint
    hosts: Hosts
    folder: str
    say: Callable[[str], None]
    shake: control.Shake
    pcs_alive: Callable[[], bool] = lambda: True
    """Whether the PCS is there, as far as the front end can know."""
    observe: Callable[[str], None] = lambda text: None
    """Hears of all that happens, in words."""
    log_tuples: Callable[[list[str]], None] = lambda lines: None
    """Hears of the tuples that were emitted, a line each; only with ``logging: full``."""
    on_stats: Callable[[Peer, control.Stats], None] = lambda peer, stats: None
    replicas: dict[Peer, Replica] = field(default_factory=dict)
    _finished: set[Peer] = field(default_factory=set)
    """The slices, by (operator, slice), that are safe to the end of the line."""
    _ending: bool = False
    _started: set[int] = field(default_factory=set)
    _intervals: dict[int, int] = field(default_factory=dict)
    _looks: int = 0
    _draining: bool = False
    _slow: dict[Peer, int] = field(default_factory=dict)
    partitions: Partitions = field(init=False)
    _losses: Losses = field(init=False)
    _directory: control.Directory | None = None
    _master: control.Master | None = None
    """For a PuppetMaster that has taken over: what the replicas have to know."""
    _next_claim: float = 0.0

    def __post_init__(self) -> None:
        self.partitions, self._losses = Partitions(self.plan), Losses(self.plan)
        self.hosts.on_loss = self._on_loss

    def deploy(self) -> None:
        """Bring every replica up and introduce them to each other; they wait for ``start``."""
        for peer in self._start_order():
            self.replicas[peer] = Replica()
            self.endpoint.send(self.hosts.address_of(self.host_of(peer)), control.Spawn(*peer))
        deadline = time.monotonic() + SPAWN_PATIENCE_S
        while any(replica.address is None for replica in self.replicas.values()):
            if time.monotonic() > deadline:
                missing = [self.name(peer) for peer, replica in self.replicas.items() if replica.address is None]
                raise RunFailed(
                    f"{', '.join(missing)} did not come up within {SPAWN_PATIENCE_S:.0f} s; see {self.folder}"
                )
            self.listen(100)
        addresses = tuple(
            tuple(self.replicas[Peer(index, number)].address or "" for number in range(len(operator.replicas)))
            for index, operator in enumerate(self.plan.operators)
        )
        self._directory = control.Directory(addresses)
        self.hosts.tell(control.Directory(addresses, self.hosts.directory()))
        self.tell_all(self._directory)

    def attach(self, shown: Sequence[control.Shown], master: str) -> None:
        """Go on with a run that is deployed, as its PCSs have shown it; we listen on ``master``."""
        for view in shown:
            self._started.update(view.news.started)
            self._intervals.update(view.news.intervals)
            self._finished.update(Peer(*what) for what in view.news.finished)
            self._draining = self._draining or view.news.draining
        addresses = views.addresses(shown)
        self._directory = control.Directory(addresses) if addresses else None
        self.replicas = {
            Peer(index, number): Replica(address=address, alive=True)
            for index, ring in enumerate(addresses)
            for number, address in enumerate(ring)
        }
        for peer, (view, one) in views.owners(shown).items():
            replica = self.replicas[peer]
            replica.pid, replica.incarnation, replica.host = one.pid, one.incarnation, view.host
            replica.alive, replica.recovering = one.pid is not None, one.pid is None
            self.hosts.has_moved(view.host, self._log_file(peer))
        self._master = control.Master(self.hosts.reign, master)
        self._claim()  # Before they are asked anything: they answer whom they take for their PuppetMaster.

    def _claim(self) -> None:
        """Tell every replica that we are its PuppetMaster; again and again, for a new one may not have heard it."""
        if self._master is not None and time.monotonic() >= self._next_claim:
            self._next_claim = time.monotonic() + CLAIM_S
            self.tell_all(self._master)

    def _introduce(self, peer: Peer, address: str) -> None:
        """Tell a replica that comes late (the first one died while it was being set up) what the others were told."""
        if self._directory is not None:
            self.endpoint.send(address, self._directory)
            if peer.operator in self._started:
                self.endpoint.send(address, control.Start((peer.operator,)))
            if peer.operator in self._intervals:
                self.endpoint.send(address, control.Interval(peer.operator, self._intervals[peer.operator]))
            if peer in self._slow:
                self.endpoint.send(address, control.Slow(*peer, self._slow[peer]))
            if self.partitions.between:
                self.tell_cuts()
            if self._draining:
                self.endpoint.send(address, control.Drain())

    def _start_order(self) -> list[Peer]:
        """Everybody, in the order in which they are spawned and told things: the plan's, unless it is shaken."""
        peers = [Peer(index, n) for index, op in enumerate(self.plan.operators) for n in range(len(op.replicas))]
        if self.shake.order:
            random.Random(self.shake.seed).shuffle(peers)
        return peers

    def tell_all(self, message: control.Message) -> None:
        for replica in self.replicas.values():
            if replica.address is not None:
                self.endpoint.send(replica.address, message)

    def start(self, operators: Iterable[int] | None = None) -> None:
        """Let these operators begin to process; without any, all."""
        indices = tuple(range(len(self.plan.operators)) if operators is None else operators)
        log.info("start", operators=[self.plan.operators[index].name for index in indices])
        self._started.update(indices)
        self.hosts.tell(control.Start(indices))
        self.tell_all(control.Start(indices))

    def is_started(self, operator: int) -> bool:
        return operator in self._started

    def set_interval(self, operator: int, ms: int) -> None:
        """Let each replica of an operator sleep so long between two tuples."""
        self._intervals[operator] = ms
        self.hosts.tell(control.Interval(operator, ms))
        self.tell_all(control.Interval(operator, ms))

    def freeze(self, peer: Peer, frozen: bool) -> None:
        """Stop a replica from processing, or let it go on."""
        replica = self.replicas[peer]
        if replica.address is not None:
            self.endpoint.send(replica.address, control.Freeze(frozen, replica.incarnation))

    def crash(self, peer: Peer) -> None:
        """Have a replica killed by its PCS."""
        self.endpoint.send(self.hosts.address_of(self.host_of(peer)), control.Crash(*peer))

    def host_of(self, peer: Peer) -> str:
        """Where a replica is, as the plan names hosts."""
        return self.replicas[peer].host or self.plan.operators[peer.operator].replicas[peer.replica].host

    def _on_loss(self, host: str, silent_s: float) -> None:
        """Nothing was heard of a host for long."""
        where = {peer: self.host_of(peer) for peer in self.replicas}
        over = [peer for peer, replica in self.replicas.items() if replica.finished or replica.spread]
        if self._losses.lost(host, where, over, time.monotonic(), silent_s):
            self.observe(f"lost host {host}")

    def _on_moved(self, peer: Peer, replica: Replica, moved: control.Moved) -> None:
        """A replica was taken over by another host. If we know that, we may not have known where it listens."""
        known = self.host_of(peer), replica.address
        if moved.incarnation < replica.incarnation or known == (moved.host, moved.address):
            return
        if not self.hosts.has_moved(moved.host, self._log_file(peer)) or not is_address(moved.address):
            self.endpoint.drop(f"{self.name(peer)} moved to {moved.host!r}, which is no host of ours")
            return
        if self.host_of(peer) != moved.host:
            if not replica.recovering:
                self._note_death(peer, replica, f"its host {self.host_of(peer)} is silent")
            replica.host, replica.alive = moved.host, False
            replica.pid = replica.silent_since = None  # The end of who was replaced is no news.
            self.observe(f"moved {self.script_name(peer)} to {moved.host}")
        replica.address = moved.address
        if self._directory is not None:
            where = Whereabouts(self._directory.addresses)
            where.move(moved)
            self._directory = control.Directory(where.addresses)
        if self.partitions.between:
            self.tell_cuts()

    def slow(self, peer: Peer, ms: int) -> None:
        """Have what others send to a replica taken up so late."""
        self._slow[peer] = ms
        message = control.Slow(*peer, ms)
        self.hosts.tell(message)
        address = self.replicas[peer].address
        if address is not None:
            self.endpoint.send(address, message)

    def tell_cuts(self) -> None:
        """Tell everybody which partitions there are."""
        addresses = {peer: replica.address for peer, replica in self.replicas.items() if replica.address is not None}
        hosts = {peer: self.host_of(peer) for peer in self.replicas}
        message = control.Partition(self.partitions.cuts(addresses, hosts, self.hosts.addresses_of))
        self.hosts.tell(message)
        self.tell_all(message)

    def kill_host(self, host: str) -> None:
        """Have a PCS and all its replicas killed."""
        self.endpoint.send(self.hosts.address_of(host), control.Perish())

    def ask(self) -> int:
        """Ask every replica how it is: their ``Stats`` will carry this number."""
        self._looks += 1
        self.tell_all(control.Look(self._looks))
        return self._looks

    def drain(self) -> None:
        """Ask the sources to end their streams; everything that is under way comes out."""
        log.info("drain")
        self._draining = True
        self.hosts.tell(control.Drain())
        self.tell_all(control.Drain())

    def listen(self, timeout_ms: float) -> None:
        """Take in what has been reported; raises what a replica could not cope with."""
        received, _ = self.endpoint.receive(timeout_ms)
        failure: DadstormError | None = None
        # What a PCS says and what replicas say comes by different ways: who died did so before his successor spoke.
        for item in sorted(received, key=lambda item: not isinstance(item.message, control.Died | control.Spawned)):
            try:
                self._on_message(item.message)
            except DadstormError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        if not self._ending:
            self.hosts.keep_in_touch()
            self._claim()
            self._look_for_silent_deaths()

    def _look_for_silent_deaths(self) -> None:
        """Who is gone and cannot tell: raises for it."""
        if not self.pcs_alive():
            raise RunFailed(f"the PCS, the parent of the replicas, died; see the logs in {self.folder}")
        for peer, replica in self.replicas.items():
            if replica.silent_since is not None and time.monotonic() > replica.silent_since + LAST_WORDS_PATIENCE_S:
                raise self._death(peer, replica, "exit code 1")

    def _death(self, peer: Peer, replica: Replica, how: str) -> RunFailed:
        return RunFailed(f"{self.name(peer)} (process {replica.pid}) died: {how}; see the logs in {self.folder}")

    def _on_message(self, message: control.Message) -> None:
        if isinstance(message, control.Said):
            self.say(message.text)
            return
        if isinstance(message, control.Emitted):
            self.log_tuples(message.text.split("\n"))
            return
        if isinstance(message, control.Spared):
            self.observe(f"spared {message.host}: {message.reason}")
            return
        if self.hosts.on_message(message):
            return
        if not isinstance(
            message,
            control.Hello
            | control.Stats
            | control.Finished
            | control.Failed
            | control.Spawned
            | control.Spread
            | control.Refused
            | control.Moved
            | control.Recovered
            | control.Died,
        ):
            self.endpoint.drop(f"a {type(message).__name__} is not for the PuppetMaster")
            return
        peer = Peer(message.operator, message.replica)
        replica = self.replicas.get(peer)
        if replica is None:
            self.endpoint.drop(f"a {type(message).__name__} of a replica that is not ours")
            return
        self._on_replica(peer, replica, message)

    def _on_replica(self, peer: Peer, replica: Replica, message: control.Message) -> None:
        if isinstance(message, control.Hello | control.Stats) and message.incarnation >= replica.incarnation:
            self.hosts.heard_replica(self.host_of(peer))
        if isinstance(message, control.Hello) and not is_address(message.address):
            self.endpoint.drop(f"{self.name(peer)} listens on {message.address!r}, which is no address")
        elif isinstance(message, control.Hello):
            if message.incarnation < replica.incarnation:
                return
            if message.incarnation > replica.incarnation and not replica.recovering:
                self._note_death(peer, replica, "its successor is there")
            replica.address, replica.pid, replica.alive = message.address, message.pid, True
            replica.incarnation, replica.silent_since = message.incarnation, None
            self.observe(f"up {self.script_name(peer)} at {message.address}, process {message.pid}")
            replica.finished = replica.spread = False
            self._introduce(peer, message.address)
            log.info("replica up", replica=self.name(peer), pid=message.pid, address=message.address)
        elif isinstance(message, control.Stats):
            self._on_stats(peer, replica, message)
        elif isinstance(message, control.Finished):
            slices = {Peer(peer.operator, index) for index in message.slices}
            if not replica.finished or not slices <= self._finished:  # It is told again and again.
                replica.finished = True
                self._finished |= slices
                log.info("replica finished", replica=self.name(peer))
                if slices:
                    self.observe(f"finished {self.script_name(peer)}")
        elif isinstance(message, control.Spawned):
            replica.pid, replica.alive = message.pid, True
        elif isinstance(message, control.Refused):
            raise UserError(f"the PCS {self.host_of(peer)} refused {self.name(peer)}: {message.reason}")
        elif isinstance(message, control.Failed):
            if message.incarnation is not None and message.incarnation < replica.incarnation:
                log.warning("one that was replaced has failed", replica=self.name(peer), text=message.text)
                return
            log.error("replica failed", replica=self.name(peer), fault=message.fault, text=message.text)
            self.observe(f"failed {self.script_name(peer)}: {message.text}")
            raise self._failure(peer, message)
        elif isinstance(message, control.Recovered):
            self.observe(f"recovered {self.script_name(peer)} {recovery(message)}")
        elif isinstance(message, control.Spread):
            self._on_spread(peer, replica, message)
        elif isinstance(message, control.Moved):
            self._on_moved(peer, replica, message)
        elif isinstance(message, control.Died):
            self._on_death(peer, replica, message)

    def _on_death(self, peer: Peer, replica: Replica, message: control.Died) -> None:
        if message.pid != replica.pid or message.incarnation < replica.incarnation:
            self.endpoint.drop(f"the death of process {message.pid}, which is not {self.name(peer)}")
            return
        replica.alive = False
        if self._ending:
            return
        how = f"exit code {message.status}"
        if message.status < 0:
            how = f"killed by signal {-message.status} ({signal_name(-message.status)})"
        if message.recovers:
            self._note_death(peer, replica, how)
            log.warning("replica died, it is being recovered", replica=self.name(peer), status=message.status)
            return
        if message.status == 1:  # It has said why, or will not have been able to.
            replica.silent_since = time.monotonic()
            return
        self.observe(f"died {self.script_name(peer)}, process {message.pid}: {how}")
        raise self._death(peer, replica, how)

    def _note_death(self, peer: Peer, replica: Replica, how: str) -> None:
        """A replica died and is being brought back; what is still to come from it is old news."""
        self.observe(f"died {self.script_name(peer)}, process {replica.pid}: {how}")
        replica.finished, replica.recovering, replica.died = False, True, time.monotonic()
        replica.incarnation += 1

    def _on_spread(self, peer: Peer, replica: Replica, message: control.Spread) -> None:
        """A replica's peers have its slices now: it is over."""
        took_ms = (time.monotonic() - (replica.died or time.monotonic())) * 1000
        over = " and ".join(str(number) for number in message.over)
        self.observe(f"spread {self.script_name(peer)} over {over} after {took_ms:.0f} ms")
        replica.recovering, replica.spread, replica.stats = False, True, None

    def _on_stats(self, peer: Peer, replica: Replica, stats: control.Stats) -> None:
        if stats.incarnation < replica.incarnation:
            return
        for other in replica.newly_suspects(stats):
            suspect = self.script_name(Peer(peer.operator, other))
            self.observe(f"suspected {suspect} by {self.script_name(peer)}")
        replica.stats = stats
        self.on_stats(peer, stats)
        replica.rates.add(time.monotonic(), stats.rows_in, stats.rows_out)
        if replica.recovering and replica.alive and stats.state != "recovering":
            replica.recovering = False

    def _failure(self, peer: Peer, message: control.Failed) -> DadstormError:
        if message.fault == "user":
            return UserError(message.text)
        if message.fault == "run":
            return RunFailed(message.text)
        return RunFailed(
            f"{self.name(peer)} stopped because of a defect in DADSTORM; please report it with this:\n{message.text}"
        )

    def name(self, peer: Peer) -> str:
        return f"{self.plan.operators[peer.operator].name} replica {peer.replica}"

    def _log_file(self, peer: Peer) -> str:
        return f"{self.plan.operators[peer.operator].name}.{peer.replica}.log"

    def script_name(self, peer: Peer) -> str:
        """A replica as commands name it."""
        return f"{self.plan.operators[peer.operator].name} {peer.replica}"

    @property
    def finished(self) -> bool:
        """Whether all slices of all operators are: what is finished stays so, whoever has it."""
        return all(
            Peer(number, index) in self._finished
            for number, operator in enumerate(self.plan.operators)
            for index in range(operator.slices)
        )

    def end(self) -> None:
        """Stop every replica and the PCS. If all is done and committed there is nothing to resume, and that is made
        known first."""
        self._ending = True
        self.tell_all(control.Stop(self.finished and kept.ended(self.plan)))
        deadline = time.monotonic() + GOODBYE_PATIENCE_S
        while any(replica.alive for replica in self.replicas.values()) and time.monotonic() < deadline:
            try:
                self.listen(50)
            except DadstormError as error:
                log.warning("while ending", error=str(error))
        self.hosts.close()

    def look(self) -> Snapshot:
        """Where the run stands."""
        operators = self.plan.operators
        stats = [replica.stats for replica in self.replicas.values() if replica.stats is not None]
        return Snapshot(
            alive=sum(replica.alive for replica in self.replicas.values()),
            replicas=len(self.replicas),
            rows_read=sum(s.rows_in for s in stats if operators[s.operator].kind == "source"),
            rows_written=sum(s.rows_out for s in stats if operators[s.operator].kind == "sink"),
            frontier=min((s.frontier for s in stats if operators[s.operator].kind == "sink"), default=0),
            memory_mb=sum(s.memory_kb for s in stats) / 1024,
        )


def finished_rows(deployment: Deployment) -> dict[str, int]:
    """Rows per sink, by name."""
    rows: dict[str, int] = {}
    for peer, replica in deployment.replicas.items():
        operator = deployment.plan.operators[peer.operator]
        if operator.kind == "sink":
            rows[operator.name] = rows.get(operator.name, 0) + (replica.stats.rows_out if replica.stats else 0)
    return rows


