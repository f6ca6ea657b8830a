"""A spool for somebody else's stream: rows wait in a folder until they have been read (``dadstorm/spark/spool.py``).

What is in the spool stays as it is, for it may have been read already. A new incarnation goes on where the spool
stands: the rows below that come again, and are dropped. A spool that holds as much as it may is full: its commits wait,
``safe`` stands still, and the topology stops at its window until somebody reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Operator, Plan
from dadstorm.sinks.base import Mark
from dadstorm.sinks.disk import sync_folder, told
from dadstorm.sinks.rows_out import Progress
from dadstorm.spark.spool import Header, Spool, begin, header_in

COMMIT_EVERY_MS = 250.0
KEEP_BYTES = 1 << 30


class SpoolSink:
    """Rows as ranges of a spool. That of an earlier run is replaced."""

    def __init__(self, operator: Operator, plan: Plan, *, mark: Mark | None, cut: int, run: str) -> None:
        params = operator.params
        self._name = operator.name
        self._path: str = params["path"]
        self._every_s = float(params.get("commit_every_ms", COMMIT_EVERY_MS)) / 1000
        self._keep = int(params.get("keep_bytes", KEEP_BYTES))
        self._fsync = bool(params.get("fsync")) or plan.durable is not None
        self._progress = Progress(operator, cut)
        columns = tuple((field.name, field.type) for field in operator.fields)
        self._header = Header(plan.name, operator.name, columns, plan.span, run)
        with told(self._name, self._path):
            self._spool = self._opened(mark)
            self._spool.tidy()
            if self._fsync:  # The one before us may have died between a range's rename and its sync.
                sync_folder(self._spool.folder)
            # Up to where rows are in the spool.
            self._reached = self._spool.stand()
        expected = START if mark is None else int(mark["reached"])
        if self._reached < expected:
            raise self._gone(f"rows up to {expected}", f"rows up to {self._reached}")
        self._committed = self._asked = cut
        self._written: list[Rows] = []
        """Rows above the cut that was asked for."""
        self._waiting: list[Rows] = []
        """Rows below it that are not in the spool yet."""
        self._last = 0.0
        self._mark: Mark = {"reached": self._reached if cut > START else START}

    def _opened(self, mark: Mark | None) -> Spool:
        try:
            header = header_in(self._path)
            if header is not None and (header.topology, header.sink) != (self._header.topology, self._name):
                raise UserError(
                    f"{self._path} is the spool of sink {header.sink} of topology {header.topology}; expected one of "
                    "this sink's, or none: remove it, or give the sink another path"
                )
            if header == self._header:
                return Spool(self._path, header)
            if mark is not None and int(mark["reached"]) > START:
                raise self._gone("the spool of this run", "none" if header is None else "another run's")
            return begin(self._path, self._header)
        except UserError as error:
            raise UserError(f"sink {self._name}: {error}") from None

    def _gone(self, expected: str, found: str) -> RunFailed:
        return RunFailed(
            f"sink {self._name}: cannot go on with {self._path}: expected {expected}, found {found}; put the folder "
            "back as the last run left it, or run from the beginning"
        )

    def write(self, rows: Rows, again: bool = False) -> None:
        if not len(rows):
            return
        self._progress.wrote(rows, again)
        rows = rows.since(self._reached)
        if len(rows) and not again:
            self._written.append(rows)

    def commit(self, cut: int) -> None:
        self._progress.check(cut)
        self._progress.commit(cut)
        self._asked = cut
        self._waiting += self._written
        self._written = []

    @property
    def committed(self) -> int:
        """Also makes the commit that was asked for, as soon as it is due and there is room."""
        if self._committed < self._asked and self._done():
            self._committed = self._asked
            self._mark = {"reached": self._reached}
        return self._committed

    def _done(self) -> bool:
        """Whether all that was asked for is in the spool."""
        if self._asked <= self._reached or not (self._waiting or self._asked == END):
            return True
        now = time.monotonic()
        if self._asked != END and now - self._last < self._every_s:
            return False
        with told(self._name, self._path):
            if self._waiting and self._spool.weight() >= self._keep:
                self._last = now
                return False
            self._spool.add(self._reached, self._asked, self._waiting, self._fsync or self._asked == END)
        self._reached = self._asked
        self._waiting = []
        self._last = now
        return True

    def mark(self) -> Mark:
        return self._mark

    def wake_fds(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        pass
