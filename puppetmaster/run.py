"""``dadstorm run``: a topology from its file to its output, unattended.

The front end is the PuppetMaster: it has a private PCS for this machine, deploys over it and the PCSs of the other
hosts that the topology names, shows progress, and ends everything. Order matters in two places. The PCS was forked
before the user's modules are imported and before there are sockets or threads, so that replicas come from a clean
process. And everything that can be found wrong is found before the first replica is spawned.

However this process ends, the private PCS notices (its lifeline closes) and cleans up: replicas, socket files, folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType

from dadstorm import audit, logs
from dadstorm.chains import chained
from dadstorm.durable.kept import Kept
from dadstorm.durable.kept import kept as durable_run
from dadstorm.errors import DadstormError, RunFailed
from dadstorm.loading import load
from dadstorm.plan import Plan
from dadstorm.wire.control import Shake
from dadstorm.wire.endpoint import Endpoint
from pcs.folders import make_folder
from pcs.private import PrivatePcs
from puppetmaster.commands import Start
from puppetmaster.deployment import Deployment, finished_rows
from puppetmaster.eventlog import EventLog
from puppetmaster.hosts import Hosts, place
from puppetmaster.preflight import bind_master, check_files, check_ports, check_spark, opened
from puppetmaster.progress import Progress
from puppetmaster.script import Script, check_ends
from puppetmaster.script import load as script_of
from puppetmaster.session import Session
from puppetmaster.stdin import StdinPump

LISTEN_MS = 100
NOTED = ("suspected ", "died ", "recovered ", "spread ", "moved ", "lost ", "spared ", "PCS ")
"""How events begin that the user is shown."""

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked ``dadstorm run`` for."""

    topology: str
    out: str | None = None
    sink: str | None = None
    libs: tuple[str, ...] = ()
    runs: str = "runs"
    shake: Shake = field(default_factory=Shake)
    quiet: bool = False
    script: str | None = None
    """A file of commands, in place of the topology's own."""
    pcs: tuple[str, ...] = ()
    """PCSs that take the place of this machine's private one."""
    keys: str | None = None
    """The folder of the cluster's keys."""
    listen: str | None = None
    """Where the PuppetMaster listens, if the topology has other hosts."""
    audit: bool = False
    """Record digests, and compare what is done again with what was done before."""
    resume: bool = False
    """Go on with the durable run that the topology has begun."""


class Interrupts:
    """^C and ``kill``: the first asks for a drain, the second for an end at once.

    A signal that was ignored when we were started (``nohup``, a shell's background job) stays ignored."""

    def __init__(self) -> None:
        self.count = 0
        self._at_once = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._at_once:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        numbers = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        before = [signal.signal(number, self) for number in numbers]
        try:
            yield self
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """While nothing runs that could be drained: the first one ends it, with KeyboardInterrupt."""
        self._at_once = True
        try:
            if self.count:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a run needs, checked; nothing of it was started but the private PCS."""

    plan: Plan
    script: Script | None
    pcs: PrivatePcs
    folder: str
    options: Options
    kept: Kept


@contextlib.contextmanager
def prepared(options: Options, pcs: PrivatePcs, interrupts: Interrupts, *, unattended: bool) -> Iterator[Prepared]:
    """Find everything that is wrong before anything starts. ``unattended``: nobody can go on where the script ends."""
    try:
        with interrupts.at_once():
            plan = load(options.topology, libs=options.libs, sink=options.sink, out=options.out)
            plan = place(plan, options.pcs)
            if options.audit:
                plan = audit.audited(plan)
            script = script_of(plan, options.script)
            if script is not None and unattended:
                check_ends(script, plan)
            check_ports(plan, pcs.keys)
            check_files(plan)
            check_spark(plan)
            pcs.wait_ready()
        with durable_run(plan, resume=options.resume) as kept:
            folder = make_folder(options.runs, plan.name)
            audit.note_run(folder, plan, options.out)
            logs.configure(process="puppetmaster", file=os.path.join(folder, "puppetmaster.log"))
            for warning in () if options.quiet else (*plan.warnings, *(script.warnings if script else ())):
                print(f"warning: {warning}", file=sys.stderr)
            watched = script is not None or not unattended
            yield Prepared(kept.plan if watched else chained(kept.plan), script, pcs, folder, options, kept)
    finally:
        pcs.end()


def run(options: Options, pcs: PrivatePcs) -> int:
    """Run a topology to its end; the exit code. Raises DadstormError for what the user should read."""
    with Interrupts().installed() as interrupts, prepared(options, pcs, interrupts, unattended=True) as ready:
        progress = Progress(ready.plan, quiet=options.quiet)
        try:
            note = (lambda text: None) if options.quiet else progress.note
            with opened_session(ready, progress.say, note) as session, StdinPump.for_plan(
                ready.plan, ready.pcs.sockets
            ):
                session.play(ready.script.commands if ready.script else [Start()], echo=ready.script is not None)
                _watch(session, progress, interrupts)
                session.deployment.end()
            progress.finish(finished_rows(session.deployment), session.deployment.look(), ready.folder)
            if options.audit:
                note(audit.conclude(ready.folder, ready.plan))
            return 0
        finally:
            progress.clear()


@contextlib.contextmanager
def opened_session(
    ready: Prepared, say: Callable[[str], None], note: Callable[[str], None]
) -> Iterator[Session]:
    """A session with a deployment that waits for its first command; its events are logged. ``say`` takes output,
    ``note`` lines about what happens."""

    def begin() -> None:
        ready.kept.started()
        try:
            deployment.deploy()
        except DadstormError:
            ready.kept.never_began()
            raise

    options = ready.options
    with deployed(
        ready.plan, ready.pcs, listen=options.listen, folder=ready.folder, say=say, shake=options.shake
    ) as deployment, session_of(deployment, ready.folder, say, note, begin) as session:  # fmt: skip
        yield session


@contextlib.contextmanager
def session_of(
    deployment: Deployment,
    folder: str,
    say: Callable[[str], None],
    note: Callable[[str], None],
    begin: Callable[[], None] = lambda: None,
) -> Iterator[Session]:
    """A session with a deployment; what happens, from ``begin`` on, is logged in ``folder``."""

    def observe(event: str) -> None:
        events.add(event)
        if event.startswith(NOTED):
            note(event)

    with EventLog(folder) as events:
        deployment.observe = deployment.hosts.observe = observe
        deployment.log_tuples = events.add_all
        try:
            begin()
            yield Session(deployment, events, lambda text: say(f"{text}\n"), note)
            events.add("ended")
        except DadstormError as error:
            events.add(f"failed: {error}")
            raise


@contextlib.contextmanager
def deployed(
    plan: Plan,
    pcs: PrivatePcs,
    *,
    listen: str | None,
    folder: str,
    say: Callable[[str], None],
    shake: Shake,
) -> Iterator[Deployment]:
    """A deployment whose hosts are all ready for it; when the block is left, the run is over everywhere."""
    endpoint = Endpoint(pcs.token, hears_answers=True, keys=pcs.keys)
    try:
        hosts = Hosts(plan, endpoint, pcs.token, pcs.address, keys=pcs.keys is not None)
        master, reach = bind_master(endpoint, hosts, pcs.sockets, listen)
        with opened(hosts, master, folder, reach, shake):
            yield Deployment(plan, endpoint, hosts, folder, say, shake, lambda: pcs.alive)
    finally:
        endpoint.close(linger_ms=200)


def _watch(session: Session, progress: Progress, interrupts: Interrupts) -> None:
    """Go on until the script is over and all replicas are finished; drain on the first interrupt, give up on the
    second."""
    deployment, draining = session.deployment, False
    while not session.exiting and not (session.idle and deployment.finished):
        if interrupts.count and not draining:
            draining = True
            progress.note("draining: what is under way comes out (^C again: stop at once)")
            session.end_early()
        if interrupts.count > 1:
            raise RunFailed("stopped at once; the output is what was committed by then")
        session.turn(LISTEN_MS)
        progress.show(deployment.look())
