"""``dadstorm run --engine spark``: a topology from its file to its output, as a chain of Spark jobs.

There are no replicas here and no PCS: this process is Spark's driver. Everything that can be found wrong is found
before Spark is started; what was committed stays, however the run ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from dadstorm import audit, logs
from dadstorm.core.line import END
from dadstorm.durable import remote
from dadstorm.durable.kept import Kept, ended
from dadstorm.durable.kept import kept as durable_run
from dadstorm.errors import DadstormError, RunFailed, UserError
from dadstorm.loading import load
from dadstorm.plan import LOCAL, Durable, Plan, Replica
from dadstorm.spark import java
from dadstorm.spark.engine import refused
from dadstorm.spark.engine.book import Book
from dadstorm.spark.engine.drive import Driver
from dadstorm.spark.engine.sessions import Sessions, check_master
from dadstorm.spark.engine.store import Store
from dadstorm.spark.session import SessionLost
from pcs.folders import make_folder
from puppetmaster.progress import show_output
from puppetmaster.run import Interrupts

SHOW_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the user asked for."""

    topology: str
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    out: str | None = None
    sink: str | None = None
    libs: tuple[str, ...] = ()
    runs: str = "runs"
    quiet: bool = False
    audit: bool = False
    resume: bool = False
    refused: Mapping[str, bool] = field(default_factory=dict)
    """Options that only the native engine knows, and whether they were given."""


def run(options: EngineOptions, sessions: Sessions | None = None) -> int:
    """Run a topology to its end; the exit code. Raises DadstormError for what the user should read.

    Who runs several, one after the other, may give them a Spark to share; it is left open."""
    with Interrupts().installed() as interrupts:
        with interrupts.at_once():
            plan = _planned(options)
        with durable_run(plan, resume=options.resume) as kept:
            folder = make_folder(options.runs, plan.name)
            audit.note_run(folder, _noted(kept.plan), options.out)
            logs.configure(process="driver", file=os.path.join(folder, "driver.log"))
            logging.getLogger().addHandler(logging.NullHandler())  # PySpark's words about a dead Java are no output.
            for warning in () if options.quiet else plan.warnings:
                print(f"warning: {warning}", file=sys.stderr)
            if sessions is not None:
                return _run(options, kept, folder, interrupts, sessions)
            with contextlib.closing(Sessions(options.master, options.conf, folder)) as own:
                return _run(options, kept, folder, interrupts, own)


def _planned(options: EngineOptions) -> Plan:
    """Everything that can be wrong before Spark is there."""
    check_master(options.master)
    plan = load(options.topology, libs=options.libs, sink=options.sink, out=options.out)
    refused.check(plan, dict(options.refused))
    if options.audit:
        plan = audit.audited(plan)
    if (problem := java.problem()) is not None:
        raise UserError(problem)
    durable = plan.durable
    if options.checkpoint is not None:
        durable = Durable(_checkpoint(options.checkpoint, options.audit))
    elif durable is not None:
        durable = Durable(os.path.join(durable.folder, "spark"))
    return msgspec.structs.replace(plan, durable=durable)


def _checkpoint(place: str, audit: bool) -> str:
    """Where to keep a run."""
    if not remote.is_remote(place):
        return os.path.abspath(place)
    found = remote.normal(place)
    if found is None:
        schemes = ", ".join(f"{one}://" for one in remote.SCHEMES)
        raise UserError(f"--checkpoint: found {place}; expected a folder that every executor sees, or one of {schemes}")
    if audit:
        raise UserError(f"--audit: found --checkpoint {place}; expected a folder of a disk: the digests go there too")
    return found


def _run(options: EngineOptions, kept: Kept, folder: str, interrupts: Interrupts, sessions: Sessions) -> int:
    plan = kept.plan
    durable = plan.durable
    place = os.path.join(folder, "checkpoint") if durable is None else durable.place
    store = Store(place, sync=durable is not None, check=kept.check)
    progress = _Progress(plan, options.quiet)
    try:
        with _begun(kept), interrupts.at_once():
            driver = Driver(
                plan, sessions, store, run=secrets.token_hex(8) if durable is None else durable.run,
                life=1 if durable is None else durable.life, folder=folder, say=progress.say, progress=progress.show,
                stopping=lambda: _stopping(interrupts),
            )  # fmt: skip
        with contextlib.closing(driver):
            complete = driver.run()
        _end(plan, driver.book, complete, store, folder)
        progress.finish(driver.book, folder)
        if options.audit and not options.quiet:
            progress.note(audit.conclude(folder, _noted(plan)))
        return 0
    finally:
        if plan.audit:
            shutil.copytree(store.audit, folder, dirs_exist_ok=True)
        if durable is None:
            shutil.rmtree(os.path.join(folder, "checkpoint"), ignore_errors=True)


@contextlib.contextmanager
def _begun(kept: Kept) -> Iterator[None]:
    """From here on there is something to resume, if it comes to a start."""
    kept.started()
    try:
        yield
    except SessionLost as error:
        kept.never_began()
        raise UserError(str(error)) from None
    except DadstormError:
        kept.never_began()
        raise


def _stopping(interrupts: Interrupts) -> bool:
    if interrupts.count > 1:
        raise RunFailed("stopped at once; the output is what was committed by then")
    return interrupts.count > 0


def _end(plan: Plan, book: Book, complete: bool, store: Store, folder: str) -> None:
    if not complete:
        how = "go on with --resume" if plan.durable else "with --checkpoint DIR it could go on from there"
        raise RunFailed(f"stopped at ID {book.cut:,}, {book.read:,} tuples read; {how}")
    if plan.audit:
        shutil.copytree(store.audit, folder, dirs_exist_ok=True)
    if plan.durable is not None:
        ended(plan)


def _noted(plan: Plan) -> Plan:
    """The plan as its audit is recorded: digests are added up over slices, so each operator counts as one."""
    operators = tuple(
        msgspec.structs.replace(one, slices=1, replicas=(Replica(LOCAL),)) for one in plan.operators
    )
    return msgspec.structs.replace(plan, operators=operators)


class _Progress:
    """Lines about a run, on standard error; results of console sinks, on standard output."""

    def __init__(self, plan: Plan, quiet: bool) -> None:
        self._plan = plan
        self._quiet = quiet
        self._begun = time.monotonic()
        self._next = self._begun + SHOW_EVERY_S

    def show(self, book: Book) -> None:
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + SHOW_EVERY_S
        place = "the end" if book.cut == END else f"ID {book.cut:,}"
        self.note(
            f"{self._plan.name}: {book.read:,} tuples read, {sum(book.written.values()):,} written, up to {place}"
        )

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def finish(self, book: Book, folder: str) -> None:
        if self._quiet:
            return
        seconds = time.monotonic() - self._begun
        for operator in self._plan.operators:
            path = operator.params.get("path")
            if operator.kind == "sink" and path:
                show_output(os.path.relpath(path), path, book.written.get(operator.name, 0))
        self.note(
            f"{self._plan.name}: {book.read:,} tuples in {seconds:.2f} s ({book.read / seconds:,.0f}/s) with Spark, "
            f"logs in {os.path.relpath(folder)}"
        )
