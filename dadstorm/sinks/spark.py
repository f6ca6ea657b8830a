"""Spark: a table that only ever holds whole commits, each row once.

A thread of its own owns Spark: it starts it, which takes some seconds, and makes one commit after the other. The rows
that come meanwhile wait; how many there can be is the window's business, and the topology stands still when that is
full. ``committed`` moves when a commit is in the table, not before.

When the Java process dies, another is started, after a while that doubles, and the open commit is made again: its rows
are still here. When this process dies, the next incarnation finds the table with whole commits and goes on from its
mark (``dadstorm/spark/commits.py``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from dadstorm import logs
from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import DadstormError, RunFailed, UserError
from dadstorm.plan import Operator, Plan
from dadstorm.sinks.base import Mark
from dadstorm.sinks.disk import told
from dadstorm.sinks.rows_out import Progress
from dadstorm.spark.attempts import CLOSE_WITHIN_S, FAILURES_MAX, FIRST_WAIT_S, LAST_WAIT_S
from dadstorm.spark.catalog import CatalogTable
from dadstorm.spark.catalog import settings as catalog_settings
from dadstorm.spark.commits import Chain, Commit, Line, Task, chain, commit_name, due, summed
from dadstorm.spark.reading import SHOWN_ROWS, Reader, shown
from dadstorm.spark.session import Session, SessionLost, Settings, open_session, reason, shown_file
from dadstorm.spark.table import Header, Table, gone
from dadstorm.spark.writer import Writer

FAILURES_UNBEGUN_MAX = 2
"""Failures in a row after which nobody believes in the next attempt, as long as nothing was ever written."""

log = logs.get_logger()


class SparkSink:
    """Rows as a table that Spark writes. One of an earlier run is replaced, or added to with ``mode: append``."""

    def __init__(
        self,
        operator: Operator,
        plan: Plan,
        *,
        mark: Mark | None,
        cut: int,
        run: str,
        folder: str,
        stride: Callable[[], int] | None = None,
    ) -> None:
        """``stride`` tells how far apart commits may be; by default half the window."""
        params = operator.params
        self._name = operator.name
        self._path: str = params["path"]
        self._folder = folder
        self._mode: str = params.get("mode", "overwrite")
        self._fsync = bool(params.get("fsync")) or plan.durable is not None
        self._every_ms = float(params.get("commit_every_ms", 2000))
        self._stride = stride or (lambda: max(1, plan.window_rows // 2))
        self._window_bytes = plan.window_bytes
        self._span = plan.span
        self._with_id = bool(params.get("with_id"))
        self._run = run
        self._mark_found = mark
        self._cut = cut
        conf = params.get("conf", {})
        if (name := params.get("table")) is not None:
            conf = catalog_settings(conf, params["catalog"])
        self._settings = Settings(operator.name, params.get("master", "local[*]"), conf)
        form, by, options = params["writes"], tuple(params.get("partition_by", ())), dict(params.get("options", {}))
        self._header = Header(
            plan.name, operator.name, form, tuple((f.name, f.type) for f in operator.fields), self._with_id, plan.span,
            by, options,
        )  # fmt: skip
        self._writer = Writer(
            operator.fields, form=form, with_id=self._with_id, span=plan.span, partition_by=by, options=options
        )
        self._table = Table(self._path)
        self._catalog = None if name is None else CatalogTable(name, self._path, self._header)
        self._written: str | None = None
        """The last commit that is in the table, and perhaps not in the catalog yet."""
        self._ordinal = 0
        self._session: Session | None = None
        self._progress = Progress(operator, cut)
        self._guard = threading.Condition()
        self._line = Line(cut, START)
        self._early: list[Rows | int] = []
        """Rows and cuts that came before the table was looked at."""
        self._settled = False
        self._closing = False
        self._error: BaseException | None = None
        self._committed = cut
        self._mark: Mark = {"reached": START} if mark is None else mark
        """How to go on from ``committed`` as it was last told: it may have moved since."""
        self._folders = 0
        """How many commits of this run have rows in the table."""
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._thread = threading.Thread(target=self._live, name=f"spark-{self._name}", daemon=True)
        self._thread.start()

    # -- what the replica's loop calls ---------------------------------------------------------------------------

    def write(self, rows: Rows, again: bool = False) -> None:
        if not len(rows):
            return
        self._progress.wrote(rows, again)
        with self._guard:
            if self._settled:
                self._line.write(rows)
            else:
                self._early.append(rows)

    def commit(self, cut: int) -> None:
        self._progress.check(cut)
        self._progress.commit(cut)
        with self._guard:
            if self._settled:
                self._line.cut(cut)
                self._moved()
            else:
                self._early.append(cut)
            self._guard.notify_all()

    @property
    def committed(self) -> int:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        with self._guard:
            if self._error is not None:
                raise self._error
            if self._settled:
                self._mark = {"reached": self._line.reached}
            return self._committed

    def mark(self) -> Mark:
        return self._mark

    def wake_fds(self) -> Sequence[int]:
        return (self._wake_read,)

    def close(self) -> None:
        with self._guard:
            self._closing = True
            self._guard.notify_all()
        self._thread.join(CLOSE_WITHIN_S)
        if not self._thread.is_alive():
            # Else Spark is just starting: it ends with this process.
            os.close(self._wake_read)
            os.close(self._wake_write)

    # -- the thread that owns Spark ------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._serve()
        except _Closed:
            pass
        except BaseException as error:  # Told to whoever asks next: nothing may end without a word.
            with self._guard:
                self._error = error
        finally:
            if self._session is not None:
                self._leave(self._session)
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b"!")

    def _begin(self) -> Session:
        """The session to write through; a sink has one of its own."""
        try:
            return open_session(self._settings, self._folder)
        except UserError as error:
            raise UserError(f"sink {self._name}: {error}") from None

    def _leave(self, session: Session) -> None:
        session.close()

    def _serve(self) -> None:
        """Make commits until closed; begin anew with Spark when that fails."""
        failures, last = 0, time.monotonic()
        while True:
            try:
                if self._session is None:
                    self._session = self._begin()
                    log.info("spark is there", sink=self._name, pid=self._session.pid)
                if not self._settled:
                    self._settle(self._session)
                task = self._wait(last)
                last = time.monotonic()
                self._do(task, self._session)
                failures = 0
            except (DadstormError, _Closed):
                raise
            except Exception as error:
                failures += 1
                self._failed(error, failures)

    def _failed(self, error: Exception, failures: int) -> None:
        """Spark did not do it. Take another session; give up when that is of no use."""
        why = str(error) if isinstance(error, SessionLost) else reason(error)
        log.warning("spark failed", sink=self._name, failures=failures, error=why)
        begun = self._settled
        if self._session is not None:
            self._leave(self._session)
            self._session = None
        if failures >= (FAILURES_MAX if begun else FAILURES_UNBEGUN_MAX):
            message = f"sink {self._name}: cannot write {self._path}: Spark failed {failures} times in a row: {why}"
            raise RunFailed(message) if begun else UserError(message)
        until = time.monotonic() + min(LAST_WAIT_S, FIRST_WAIT_S * 2 ** (failures - 1))
        with self._guard:
            while not self._closing and (left := until - time.monotonic()) > 0:
                self._guard.wait(left)
            if self._closing:
                raise _Closed

    def _wait(self, last: float) -> Task:
        """The next task, when it is due."""
        with self._guard:
            while True:
                if self._closing:
                    raise _Closed
                waited_ms = (time.monotonic() - last) * 1000
                if due(self._line, waited_ms, self._every_ms, self._stride(), self._window_bytes):
                    task = self._line.task()
                    assert task is not None
                    return task
                self._guard.wait(max(0.01, (self._every_ms - waited_ms) / 1000) if self._line.has_work else None)

    def _settle(self, session: Session) -> None:
        """Look at the table for the first time: may we write it, and where does it stand?"""
        with told(self._name, self._path):
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            header = self._table.header()
            ours = header is not None and self._run in header.runs and header.alike(self._header)
            problem = None if ours else self._table.problem(self._header.topology, self._name, self._mode, self._header)
            if problem:
                raise UserError(f"sink {self._name}: {problem}")
            os.makedirs(self._table.staging, exist_ok=True)
        try:
            if self._catalog is not None:
                self._catalog.check(session)
            self._writer.probe(session, os.path.join(self._table.staging, "probe"))
        except UserError as error:
            self._leave_nothing()
            raise UserError(f"sink {self._name}: {error}") from None
        with told(self._name, self._path):
            found = self._resumed(header) if ours and header is not None else self._begun(header)
        if self._catalog is not None:
            anew = not ours and self._mode != "append"
            self._catalog.agree(session, self._table.commits(), anew=anew)
        with self._guard:
            self._line = Line(self._cut, found.reaches, found.ahead)
            self._folders = sum(commit.folder is not None for commit in found.kept)
            for item in self._early:
                if isinstance(item, int):
                    self._line.cut(item)
                else:
                    self._line.write(item)
            self._early = []
            self._settled = True
            self._moved()

    def _resumed(self, header: Header) -> Chain:
        """Our run has written here: go on from the mark's cut."""
        self._ordinal = header.runs.index(self._run)
        commits = self._table.commits()
        mine = [commit for commit in commits if commit.run == self._ordinal]
        found = chain(mine, self._cut)
        if self._mark_found is not None and found.reaches != self._mark_found.get("reached", START):
            expected = f"commits up to {self._mark_found.get('reached', START)}"
            raise gone(self._path, self._name, expected, f"commits up to {found.reaches}")
        if (missing := self._table.missing((*found.kept, *found.ahead))) is not None:
            raise gone(self._path, self._name, f"the folder {missing}", "none")
        self._table.drop(found.stray)
        self._table.tidy([commit for commit in commits if commit not in found.stray])
        return found

    def _begun(self, header: Header | None) -> Chain:
        """The first incarnation: replace what an earlier run has left, or add to it."""
        if self._mark_found is not None and self._mark_found.get("reached", START) > START:
            raise gone(self._path, self._name, "the table of this run", "none" if header is None else "another run's")
        commits = self._table.commits()
        runs: tuple[str, ...] = ()
        if self._mode == "append" and header is not None:
            runs = header.runs
        else:
            self._table.drop(commits)
            commits = []
        self._ordinal = len(runs)
        self._table.tidy(commits)
        self._table.write_header(_with_run(self._header, (*runs, self._run)))
        return Chain((), (), ())

    def _leave_nothing(self) -> None:
        """No table was there, and none comes: take away the folders that were made to try it."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._table.staging, ignore_errors=True)
            os.rmdir(self._table.meta)
            os.rmdir(self._path)

    def _do(self, task: Task, session: Session) -> None:
        count, digest, epochs = summed(task.parts, self._span, self._with_id)
        name = commit_name(self._ordinal, task.lo, task.hi)
        # A table without a single row still tells its columns.
        folder = f"commit={name}" if count or (task.hi == END and not self._folders) else None
        commit = Commit(task.lo, task.hi, count, digest, epochs, folder, self._ordinal)
        if task.found is not None:
            if task.found.same_rows(commit):
                self._show(task, session)
                self._done(task.found)
                return
            log.warning("other rows than before: written again", sink=self._name, commit=name)
            with self._guard:
                refused = self._line.refused()
            if self._catalog is not None:
                self._catalog.drop(session, refused)
            with told(self._name, self._path):
                self._table.drop(refused)
        if self._written != commit.name:
            self._write(commit, task, session)
            self._written = commit.name
        if self._catalog is not None:
            self._catalog.add(session, commit)
        self._show(task, session)
        self._done(commit)

    def _show(self, task: Task, session: Session) -> None:
        """The table is complete: how it begins, read back through Spark, for whoever started the run."""
        if task.hi != END:
            return
        try:
            reader = Reader(self._header, session)
            mine = [commit for commit in self._table.commits() if commit.run == self._ordinal]
            text = shown(reader.head(self._path, mine, SHOWN_ROWS), reader.schema)
            with open(shown_file(self._name, self._folder), "w", encoding="utf-8") as file:
                file.write(text)
        except Exception as error:  # It is in the table, whether it can be shown or not.
            log.warning("cannot be shown", sink=self._name, error=reason(error))

    def _write(self, commit: Commit, task: Task, session: Session) -> None:
        out: str | None = None
        begun = time.monotonic()
        if commit.folder is not None:
            out = os.path.join(self._table.staging, "out")
            rows = os.path.join(self._table.staging, "rows")
            with told(self._name, self._path):
                shutil.rmtree(rows, ignore_errors=True)
                staged = self._writer.stage(task.parts, rows)
            staged_at = time.monotonic()
            self._writer.write(session, staged, out)
            log.info(
                "committed", sink=self._name, commit=commit.name, rows=commit.rows,
                staged_ms=round((staged_at - begun) * 1000), spark_ms=round((time.monotonic() - staged_at) * 1000),
            )  # fmt: skip
            shutil.rmtree(rows, ignore_errors=True)
        with told(self._name, self._path):
            self._table.add(commit, out, self._fsync or commit.hi == END)
            if commit.hi == END:
                shutil.rmtree(self._table.staging, ignore_errors=True)

    def _done(self, commit: Commit) -> None:
        with self._guard:
            self._line.done()
            self._folders += commit.folder is not None
            self._moved()
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b".")

    def _moved(self) -> None:
        """What holds now. Called with the guard held."""
        self._committed = self._line.committed


class _Closed(Exception):
    """Nobody wants further commits."""


def _with_run(header: Header, runs: tuple[str, ...]) -> Header:
    return msgspec.structs.replace(header, runs=runs)
