"""The driver: one step after the other, each committed before the next one is.

While the sinks write a step and the book is turned, Spark already works at the next: it needs the state files of the
step before, and these are there. If Java dies, a new one gets the same step; if everything dies, the run goes on from
its book. What a step is depends on the book alone, so a step that is done again is the same step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

import msgspec

from dadstorm import logs
from dadstorm.audit import DigestFile
from dadstorm.core.audit import Audited
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Plan
from dadstorm.spark.engine.book import Book, Outcome, audited, first, turned
from dadstorm.spark.engine.job import run_step
from dadstorm.spark.engine.outputs import Outputs
from dadstorm.spark.engine.sessions import EXECUTOR_WITHIN_S, Sessions
from dadstorm.spark.engine.stages import Stages, lay_out
from dadstorm.spark.engine.store import Store
from dadstorm.spark.engine.task import Step
from dadstorm.spark.session import SessionLost, reason

READERS_MAX = 8
"""Readers of a source at a time: each goes over the whole input and takes its share."""
FAILURES_MAX = 5
"""Deaths of Java in a row, with no step in between, after which nobody believes in the next attempt."""
LOOK_S = 0.2

log = logs.get_logger()


class Driver:
    def __init__(
        self,
        plan: Plan,
        sessions: Sessions,
        store: Store,
        *,
        run: str,
        life: int,
        folder: str,
        say: Callable[[str], None],
        progress: Callable[[Book], None],
        stopping: Callable[[], bool],
    ) -> None:
        """``stopping``: whether to stop at the next commit."""
        self._sessions = sessions
        self._store = store
        self._run = run
        self._progress = progress
        self._stopping = stopping
        self._width = sessions.width()
        book = store.read()
        readers = book.readers if book else max(1, min(READERS_MAX, self._width))
        self.plan = spread(plan, readers)
        self._encoded = msgspec.msgpack.encode(self.plan)
        self._stages: Stages = lay_out(self.plan, self._width)
        self.book = book or first(self._stages, readers)
        self._sync = plan.durable is not None
        self._outputs = Outputs(
            self.plan, self.book.sinks, self.book.cut, run=run, folder=folder, sessions=sessions, say=say
        )
        self._digests = [DigestFile(store.audit, f"{one.name}.0", life - 1) for one in plan.operators]
        self._failures = 0
        self._spark = ThreadPoolExecutor(1, thread_name_prefix="step")

    def run(self) -> bool:
        """All steps that are left; False if it was stopped before the end."""
        try:
            book = self.book
            under_way = None if book.complete else self._begin(book)
            while under_way is not None:
                found = self._finished(book, under_way)
                after = turned(book, self._stages, book.next, found)
                stopping = self._stopping()
                under_way = None if after.complete or stopping else self._begin(after)
                self._commit(self.book, after, found)
                book = after
                self._progress(self.book)
                if stopping:
                    break
            return self.book.complete
        finally:
            self._spark.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self._outputs.close()

    # -- one step ------------------------------------------------------------------------------------------------

    def _begin(self, book: Book) -> Future[Outcome]:
        step = Step(
            plan=self._encoded,
            width=self._width,
            run=self._run,
            lo=book.cut,
            hi=book.next,
            home=os.getcwd(),
            folder=self._store.state,
            sync=self._sync,
            marks=book.marks,
            ended=book.ended,
            states=book.states,
        )
        return self._spark.submit(lambda: run_step(self._sessions.now(), self._stages, step))

    def _finished(self, book: Book, under_way: Future[Outcome]) -> Outcome:
        """Wait for a step; if Java dies over it, have it done by another."""
        while True:
            try:
                found = self._wait(under_way)
            except (UserError, RunFailed):
                raise
            except Exception as error:
                if not self._lost(error):
                    raise RunFailed(f"Spark could not do the step from ID {book.cut:,} on: {reason(error)}") from error
                under_way = self._begin(book)
                continue
            self._failures = 0
            if found.failures:
                self._store.check()  # Who took the run over has also cleaned up.
                failure = min(found.failures, key=lambda one: (one.stage, one.text))
                raise UserError(failure.text) if failure.user else RunFailed(failure.text)
            return found

    def _wait(self, under_way: Future[Outcome]) -> Outcome:
        """A step's outcome. A cluster that has no executor left gets some time to find another."""
        alone_since: float | None = None
        while True:
            try:
                return under_way.result(LOOK_S)
            except NotYet:
                if under_way.done():
                    raise
            self._stopping()  # Raises if it is to be at once.
            if self._sessions.executors():
                alone_since = None
            elif alone_since is None:
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > EXECUTOR_WITHIN_S:
                raise RunFailed(
                    f"the cluster has had no executor for {EXECUTOR_WITHIN_S:.0f} s. What was committed stays; bring "
                    "its workers back and go on with --resume"
                )

    def _lost(self, error: Exception) -> bool:
        """Whether it was Java's death; gives up if it dies again and again."""
        if not isinstance(error, SessionLost) and not self._sessions.died(error):
            return False
        self._failures += 1
        log.warning("lost Spark", failures=self._failures, error=reason(error))
        if self._failures >= FAILURES_MAX:
            raise RunFailed(f"Spark's Java process died {self._failures} times in a row: {reason(error)}") from error
        return True

    def _commit(self, before: Book, after: Book, found: Outcome) -> None:
        self._store.check()
        written, digests = self._outputs.write(found.tiles, after.cut)
        closed: list[tuple[int, Audited]] = []
        if self.plan.audit:
            after, closed = audited(
                msgspec.structs.replace(after, open=before.open, numbers=before.numbers),
                self.plan,
                [*found.digests, *digests],
            )
        for operator, one in closed:
            self._digests[operator].write(one)
        totals = {
            one.name: before.written.get(one.name, 0) + written.get(one.name, 0)
            for one in self.plan.operators
            if one.kind == "sink"
        }
        after = msgspec.structs.replace(after, sinks=self._outputs.committed(after.cut), written=totals)
        self._store.check()
        self._store.write(before, after)
        self.book = after
        log.info("committed", cut=after.cut, read=after.read, nbytes=found.nbytes, next=after.length)


def spread(plan: Plan, readers: int) -> Plan:
    """The plan with so many readers for each source: the records and their seqs are the same however many there are."""
    operators = tuple(
        msgspec.structs.replace(one, slices=readers) if one.kind == "source" else one for one in plan.operators
    )
    return msgspec.structs.replace(plan, operators=operators)

