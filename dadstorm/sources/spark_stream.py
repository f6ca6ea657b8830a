"""Streams that Spark reads: its micro-batches, journalled.

A query of Spark's stages each micro-batch as files, once (``dadstorm/spark/batches.py``); the reader takes the batches
in one after the other, gives their rows seqs by the clock, and journals which rows got which before it emits any. So a
replay is exact, by the same argument as for lines (``live``): the files do not change, and the journal says how their
rows were numbered. Between Spark's checkpoint and the journal nothing can get lost or come twice: a batch is staged
before Spark notes it as done, it is staged once, and what is staged and not in the journal is taken in.

The query runs in a thread, which waits when several batches are there that nobody has taken in.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

import msgspec
import numpy as np

from dadstorm.core.line import START
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Operator, Plan
from dadstorm.sources.base import Mark
from dadstorm.sources.journal import BATCH, Frame, Reference
from dadstorm.sources.live import TAKE_BYTES, Intake, LiveReader
from dadstorm.sources.parquet import typed_rows
from dadstorm.sources.seqs import Numbers
from dadstorm.spark.attempts import CLOSE_WITHIN_S, Attempts
from dadstorm.spark.batches import Batches, number_of
from dadstorm.spark.frames import Reading, put, sorted_batch, stream_of
from dadstorm.spark.session import Session, Settings, reason

AHEAD = 4
"""Batches that may be staged and not taken in."""
LOOK_EVERY_S = 0.05


class SparkStreamReader(LiveReader):
    """The one slice of a stream that Spark reads."""

    kind = BATCH

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
        self._logs = folder
        self._kept = os.path.abspath(operator.params.get("journal") or run_dir)
        fsync = plan.durable is not None or bool(operator.params.get("fsync"))
        self._batches = Batches(os.path.join(self._kept, f"{operator.name}.batches"), fsync=fsync)
        self._query: StreamIntake | None = None
        super().__init__(operator, slice_index, run_dir=run_dir, mark=mark, cut=cut, fsync=fsync)

    def _prepare(self) -> dict[str, Any]:
        return {"spark": msgspec.to_builtins(Reading.of(self._operator))}

    def _listen(self, sockets: str) -> Intake:
        checkpoint = os.path.join(self._kept, f"{self._operator.name}.checkpoint")
        self._query = StreamIntake(self._operator, self._batches, checkpoint, self._logs)
        return self._query

    def _weight(self, frame: Frame) -> int:
        return TAKE_BYTES

    def _parse(self, frames: list[Frame]) -> None:
        rows: list[Rows] = []
        dead: list[Rows] = []
        for frame in frames:
            some, letters = self._rows_of(frame)
            rows.append(some)
            dead += [letters] if letters is not None else []
            if self._query is not None:
                self._query.taken(frame.reference)
        self._pending.put(Rows.concat(rows), Rows.concat(dead) if dead else None, max(self._floor, self._cut))

    def _rows_of(self, frame: Frame) -> tuple[Rows, Rows | None]:
        name, reference = self._operator.name, frame.reference
        try:
            batch = self._batches.read(reference)
        except OSError as error:
            place = f"{self._batches.folder}/{reference.file}"
            raise RunFailed(f"source {name!r}: {place} cannot be read: {error}; restore it") from None
        seqs = np.arange(frame.seq, frame.next_seq, dtype=np.int64)
        return typed_rows(self._operator, batch, Numbers(seqs), lambda i: f"{name}:seq {seqs[i]}", self._cut)


class StreamIntake:
    """What a query of Spark's has staged, piece by piece, as references to be journalled."""

    def __init__(self, operator: Operator, batches: Batches, checkpoint: str, logs: str) -> None:
        params = operator.params
        self._operator = operator
        self._batches = batches
        self._checkpoint = checkpoint
        self._reading = Reading.of(operator)
        self._last: Reference | None = None
        """What was taken in last."""
        self._pieces: list[Reference] = []
        self._error: BaseException | None = None
        self._ended = False
        if batches.numbers() and not os.path.isdir(checkpoint):
            raise RunFailed(f"source {operator.name!r}: {checkpoint} is gone; restore it, or run from the beginning")
        settings = Settings(operator.name, params.get("master", "local[*]"), params.get("conf", {}))
        self._attempts = Attempts(f"source {operator.name!r}: cannot read {self._reading}", settings, logs)
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._live, name=f"spark-{operator.name}", daemon=True)
        self._thread.start()

    # -- what the reader calls -----------------------------------------------------------------------------------

    def taken(self, reference: Reference) -> None:
        """A piece is in the journal."""
        self._last = reference

    def take(self, max_bytes: int) -> bytes:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        if self._error is not None:
            raise self._error
        if not self._pieces:
            self._pieces = self._next()
        if not self._pieces:
            return b""
        if len(self._pieces) > 1:
            self._say()
        return msgspec.json.encode(self._pieces.pop(0))

    def _next(self) -> list[Reference]:
        """The pieces of the first batch that has some after what was taken in."""
        reached = -1 if self._last is None else number_of(self._last)
        for number in self._batches.numbers():
            if number >= reached:
                pieces = list(self._batches.pieces(number, self._last if number == reached else None))
                if pieces:
                    return pieces
        return []

    def finish(self) -> bytes:
        return b""

    @property
    def over(self) -> bool:
        return self._ended and not self._pieces and not self._next()

    def fds(self) -> list[int]:
        return [self._wake]

    def close(self) -> None:
        if not self._attempts.closing.is_set():
            self._attempts.closing.set()
            self._thread.join(CLOSE_WITHIN_S)  # If Spark is just starting, it ends with this process.

    # -- the thread that owns Spark ------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._attempts.run(self._stream)
            self._ended = True
        except UserError as error:
            self._error = UserError(*(f"source {self._operator.name!r}: {one}" for one in error.mistakes))
        except BaseException as error:  # Told to whoever reads next: nothing may end without a word.
            self._error = error
        self._say()

    def _say(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._waker, b".")

    def _stream(self, session: Session) -> None:
        """Run the query until it ends, or nobody wants it any more."""
        frame = stream_of(session, self._reading)
        writer = frame.writeStream.foreachBatch(self._stage).option("checkpointLocation", f"file://{self._checkpoint}")
        if self._operator.params.get("stream") == "available-now":
            writer = writer.trigger(availableNow=True)
        try:
            query = writer.start()
        except Exception as error:
            if session.lost(error):
                raise
            raise UserError(f"Spark cannot read {self._reading} as a stream: {reason(error)}") from None
        while not self._attempts.closing.is_set():
            if query.awaitTermination(LOOK_EVERY_S):
                return
        with contextlib.suppress(Exception):
            query.stop()

    def _stage(self, frame: Any, number: int) -> None:
        """Called by Spark for each micro-batch, perhaps again after a crash."""
        if not self._batches.has(number):
            while self._behind(number) > AHEAD and not self._attempts.closing.is_set():
                time.sleep(LOOK_EVERY_S)
            if self._attempts.closing.is_set():
                raise InterruptedError("the source is closed")
            scratch = self._batches.scratch(number)
            put(sorted_batch(frame, self._reading), scratch)
            self._batches.keep(number, scratch)
        self._attempts.progress()
        self._say()

    def _behind(self, number: int) -> int:
        """How many batches there are that the reader has not begun to take in."""
        reached = -1 if self._last is None else number_of(self._last)
        return sum(reached < one < number for one in self._batches.numbers())
