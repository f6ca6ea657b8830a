"""Sources that Spark reads: any table, query or files that it knows.

Spark writes the rows once, in their order, to a folder beside the journals; then it ends, and the rows are read from
there by position. A row's seq is its number. A replay, after whatever crash, reads the same files, without Spark. So
what was in the table when it was staged is what the run sees, whatever happens to the table meanwhile.

A thread owns Spark while it stages. Of several processes with slices of the source one does it, and the others wait.
"""

from __future__ import annotations

import contextlib
import os
import threading

import msgspec

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import UserError
from dadstorm.plan import Operator, Plan
from dadstorm.sources.base import Mark, Records
from dadstorm.sources.parquet import ParquetReader
from dadstorm.sources.seqs import Place
from dadstorm.spark.attempts import CLOSE_WITHIN_S, Attempts
from dadstorm.spark.frames import Reading, write_rows
from dadstorm.spark.session import Session, Settings
from dadstorm.spark.staged import Staged

LOOK_EVERY_S = 0.05


class StagedReader(ParquetReader):
    """Reads staged rows; in messages they are rows of the source, for nobody knows the files."""

    def _place(self, path: str) -> Place:
        first = self._seq + 1
        return lambda i: f"{self._operator.name}:row {first + i}"


class SparkReader:
    """One slice of a Spark source."""

    def __init__(
        self,
        operator: Operator,
        plan: Plan,
        slice_index: int,
        *,
        run_dir: str,
        folder: str,
        mark: Mark | None = None,
        cut: int = START,
    ) -> None:
        params = operator.params
        self._operator = operator
        self._slice = slice_index
        self._mark = mark
        self._cut = cut
        self._drained = False
        self._rows: StagedReader | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._reading = Reading.of(operator)
        fsync = plan.durable is not None or bool(params.get("fsync"))
        kept = os.path.abspath(params.get("journal") or run_dir)
        self._staged = Staged(kept, operator.name, self._reading, fsync=fsync)
        if self._look():
            return
        if cut > START:
            raise self._staged.gone()
        settings = Settings(operator.name, params.get("master", "local[*]"), params.get("conf", {}))
        self._attempts = Attempts(f"source {operator.name!r}: cannot read {self._reading}", settings, folder)
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._live, name=f"spark-{operator.name}", daemon=True)
        self._thread.start()

    def read(self, max_rows: int, max_bytes: int) -> Records:
        if self._rows is None and self._thread is not None and not self._thread.is_alive():
            thread, self._thread = self._thread, None
            self._over(thread)
        if self._rows is not None:
            return self._rows.read(max_rows, max_bytes)
        return Records(Rows.empty(self._operator.schema), END if self._drained else self._cut)

    def mark(self, cut: int) -> Mark:
        if self._rows is not None:
            return self._rows.mark(cut)
        return {"path": 0, "offset": 0, "seq": START, "line": 0}

    def wake_fds(self) -> list[int]:
        return [self._wake] if self._thread is not None else []

    def drain(self) -> None:
        self._drained = True
        if self._rows is not None:
            self._rows.drain()

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        if self._thread is not None:
            self._attempts.closing.set()
            self._thread.join(CLOSE_WITHIN_S)  # If Spark is just starting, it ends with this process.

    def _look(self) -> bool:
        """Whether the rows are there; then they can be read."""
        files = self._staged.files()
        if files is None:
            return False
        operator = msgspec.structs.replace(self._operator, params={**self._operator.params, "paths": files})
        self._rows = StagedReader(operator, self._slice, mark=self._mark, cut=self._cut)
        if self._drained:
            self._rows.drain()
        return True

    def _over(self, thread: threading.Thread) -> None:
        """The thread has ended: with the rows, or with what went wrong."""
        thread.join()
        os.close(self._wake)
        os.close(self._waker)
        if self._error is not None:
            raise self._error
        if not self._drained and not self._look():
            raise self._staged.gone()

    # -- the thread that owns Spark ------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while not self._attempts.closing.is_set():
                with self._staged.lock() as mine:
                    if self._staged.files() is not None:
                        return
                    if mine:
                        self._attempts.run(self._stage)
                        return
                self._attempts.closing.wait(LOOK_EVERY_S)
        except UserError as error:
            self._error = UserError(*(f"source {self._operator.name!r}: {one}" for one in error.mistakes))
        except BaseException as error:  # Told to whoever reads next: nothing may end without a word.
            self._error = error
        finally:
            with contextlib.suppress(OSError):
                os.write(self._waker, b".")

    def _stage(self, session: Session) -> None:
        scratch = self._staged.scratch(session.pid)
        write_rows(session, self._reading, scratch)
        self._staged.keep(scratch)
