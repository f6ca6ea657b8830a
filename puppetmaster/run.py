"""``dadstorm run``: a topology from its file to its output, on this machine, unattended.

The front end is the PuppetMaster: it starts a private PCS, deploys, shows progress, and ends everything. Order matters
in two places. The PCS is forked before the user's modules are imported and before there are sockets or threads, so that
replicas come from a clean process. And everything that can be found wrong is found before the first replica is spawned.

However this process ends, the private PCS notices (its lifeline closes) and cleans up: replicas, socket files, folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

import structlog

from dadstorm import logs, topology
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Plan
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.control import Shake
from dadstorm.wire.endpoint import Endpoint
from pcs.private import PrivatePcs, start_private
from puppetmaster.deployment import Deployment, finished_rows
from puppetmaster.preflight import check_ports
from puppetmaster.progress import Progress
from puppetmaster.stdin import StdinPump

LISTEN_MS = 100

log = structlog.get_logger()


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


def run(options: Options) -> int:
    """Run a topology to its end; the exit code. Raises DadstormError for what the user should read."""
    token = secrets.token_bytes(TOKEN_BYTES)
    with Interrupts().installed() as interrupts:
        pcs = start_private(token)
        try:
            with interrupts.at_once():
                plan = topology.load(options.topology, libs=options.libs, sink=options.sink, out=options.out)
                check_ports(plan)
                pcs.wait_ready()
            folder = make_folder(options.runs, plan.name)
            logs.configure(process="puppetmaster", file=os.path.join(folder, "puppetmaster.log"))
            return _run(plan, options, pcs, token, folder, interrupts)
        finally:
            pcs.end()


def _run(
    plan: Plan, options: Options, pcs: PrivatePcs, token: bytes, folder: str, interrupts: Interrupts
) -> int:
    endpoint = Endpoint(token, hears_answers=True)
    progress = Progress(plan, quiet=options.quiet)
    try:
        address = endpoint.bind(f"ipc://{pcs.sockets}/master")
        deployment = Deployment(
            plan, endpoint, pcs.address, folder, progress.say, options.shake, address, lambda: pcs.alive
        )
        deployment.deploy()
        with StdinPump.for_plan(plan, pcs.sockets):
            deployment.start()
            _watch(deployment, progress, interrupts)
            deployment.end()
        progress.finish(finished_rows(deployment), deployment.look(), folder)
        return 0
    finally:
        progress.clear()
        endpoint.close(linger_ms=200)


def _watch(deployment: Deployment, progress: Progress, interrupts: Interrupts) -> None:
    """Listen until all replicas are finished; drain on the first interrupt, give up on the second."""
    draining = False
    while not deployment.finished:
        if interrupts.count and not draining:
            draining = True
            progress.note("draining: what is under way comes out (^C again: stop at once)")
            deployment.drain()
        if interrupts.count > 1:
            raise RunFailed("stopped at once; the output is what was committed by then")
        deployment.listen(LISTEN_MS)
        progress.show(deployment.look())


def make_folder(runs: str, name: str) -> str:
    """A new folder for this run's logs and journals: ``runs/<name>-<number>``."""
    number = 1
    while True:
        folder = os.path.abspath(os.path.join(runs, f"{name}-{number}"))
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UserError(
                f"cannot make the folder {folder} for logs: {error.strerror}. Give another with --runs DIR"
            ) from None
