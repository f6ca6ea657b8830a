"""Live sources: lines that arrive by TCP or by the front end's standard input.

A record's seq is the wall clock in microseconds at which it was taken in, forced to grow: max(now, floor), where the
floor is above every seq given and every ``hi`` announced so far. Lines are journalled before they are emitted, so a
replay gives the same records with the same seqs. An idle source announces the clock as its ``hi``, so that it never
holds others back.

Why a replay after any crash is exact, also when the clock has stepped back in between:

- what was emitted is in the journal, because it was written there before;
- what is in the journal but was not emitted is emitted now: the seqs are those in the journal, and no ``hi`` above
  them was announced before they were parsed, since one reader does both, in order;
- a ``hi`` without rows was announced only up to the *lease*, a seq that the journal holds and that is renewed about
  once a second, ahead of the clock. After a restart the floor is above the last journalled seq and the last lease, so
  new records are above everything that was announced.

A source ends when it is drained, or (stdin) when it is told that the input has ended: the journal then gets an END
frame. A journal with an END frame is replayed up to END without listening. With lines from standard input the journal
has how far they go (``Taken``), so that a new incarnation can tell the front end what to go on with.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from dadstorm.core.line import END, START
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator
from dadstorm.sources.base import Mark, Records
from dadstorm.sources.clients import RECORD_BYTES_MAX, Clients, listen_tcp, listen_unix
from dadstorm.sources.files import make_format
from dadstorm.sources.journal import END_OF_SOURCE, LEASE, RECORDS, Frame, Journal
from dadstorm.sources.marks import Marks
from dadstorm.sources.pending import Pending
from dadstorm.sources.pump import Taken, stdin_path
from dadstorm.sources.pumped import Pumped
from dadstorm.sources.records import parse
from dadstorm.sources.seqs import Numbers

LEASE_US = 1_000_000
TAKE_BYTES = 1 << 20
"""The most that is taken in, journalled and parsed at once."""

Clock = Callable[[], int]


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class Intake(Protocol):
    """From where a live source takes in what it journals."""

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        ...

    def take(self, max_bytes: int) -> bytes:
        """What has arrived, whole records, about so much of it; nothing if there is nothing."""
        ...

    def finish(self) -> bytes:
        """All that has arrived; nothing more is wanted."""
        ...

    def fds(self) -> list[int]:
        """Readable when something arrives."""
        ...

    def close(self) -> None: ...


class _Nudge:
    """A file descriptor that is readable while there is work that no socket tells about."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._set = False

    def set(self, wanted: bool) -> None:
        if wanted and not self._set:
            os.write(self._write, b"!")
        elif self._set and not wanted:
            os.read(self.fd, 1)
        self._set = wanted

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write)


class LiveReader:
    """The one slice of a live source: replays its journal, then goes on with its sockets."""

    def __init__(
        self,
        operator: Operator,
        slice_index: int,
        *,
        run_dir: str,
        sockets: str | None = None,
        mark: Mark | None = None,
        cut: int = START,
        clock: Clock = wall_clock_us,
        fsync: bool = False,
    ) -> None:
        if operator.slices != 1:
            raise RunFailed(f"source {operator.name!r}: a live source has one slice, found slices: {operator.slices}")
        self._operator = operator
        self._cut = cut
        self._clock = clock
        self._pending = Pending(operator.schema, cut)
        self._marks = Marks()
        self._ended = False
        self._draining = False
        self._closed = False
        self._clients: Intake | None = None
        meta = self._prepare()
        where = operator.params.get("journal") or run_dir
        path = where if os.path.isfile(where) else os.path.join(os.path.abspath(where), f"{operator.name}.journal")
        self._journal = Journal(path, operator.name, meta, fsync=fsync or bool(operator.params.get("fsync")))
        try:
            start = mark or {"offset": self._journal.start, "lease": START}
            self._lease = int(start["lease"])
            self._floor = self._lease
            self._marks.add(START, {"offset": start["offset"], "lease": self._lease})
            self._replay: Iterator[Frame] | None = self._journal.frames(int(start["offset"]))
            self._next: Frame | None = next(self._replay, None)
            if not self._journal.finished:
                self._clients = self._listen(sockets or run_dir)
        except BaseException:
            self._journal.close()
            raise
        self._nudge = _Nudge()
        self._nudge.set(True)

    def read(self, max_rows: int, max_bytes: int) -> Records:
        if self._pending.empty and not self._ended:
            if self._replay is not None:
                self._replay_some()
            else:
                self._take_in(min(TAKE_BYTES, max(1, max_bytes)))
        if self._ended and self._pending.empty:
            self._pending.reach(END)
        records = self._pending.take(max_rows, max_bytes)
        self._nudge.set(self._replay is not None or self._ended or self._draining or not self._pending.empty)
        return records

    def mark(self, cut: int) -> Mark:
        return self._marks.at(cut)

    def wake_fds(self) -> list[int]:
        return [self._nudge.fd, *(self._clients.fds() if self._clients and self._replay is None else [])]

    def drain(self) -> None:
        self._draining = True
        self._nudge.set(True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._let_go()
            self._journal.close()
            self._nudge.close()

    kind = RECORDS
    """Of the frames that hold what was accepted."""

    def _prepare(self) -> dict[str, Any]:
        """What has to be known of the format before the journal is opened; what the journal keeps of it."""
        params = self._operator.params
        self._format = make_format(self._operator, RECORD_BYTES_MAX)
        self._limit = self._format.rules.limit
        return {"format": params["format"], "delimiter": params.get("delimiter") or ","}

    def _listen(self, sockets: str) -> Intake:
        raise NotImplementedError

    def _let_go(self) -> None:
        """Of whoever gives us something: nothing more is taken in."""
        if self._clients:
            self._clients.close()

    def _taken(self) -> Taken | None:
        """What else the journal keeps of the lines that were just taken in."""
        return None

    # ------------------------------------------------------------------------------------------------- replay

    def _replay_some(self) -> None:
        """About ``TAKE_BYTES`` of the journal's records; at its end, go over to the sockets."""
        frames: list[Frame] = []
        size = 0
        while self._next is not None and size < TAKE_BYTES:
            frame = self._next
            if frame.kind == self.kind:
                frames.append(frame)
                size += self._weight(frame)
                self._marks.add(frame.seq, {"offset": frame.offset, "lease": self._lease})
                self._floor = max(self._floor, frame.next_seq)
            elif frame.kind == LEASE:
                self._lease = max(self._lease, frame.seq)
            elif frame.kind == END_OF_SOURCE:
                self._ended = True
            assert self._replay is not None
            self._next = next(self._replay, None)
        if frames:
            self._parse(frames)
        if self._next is None:
            self._replay = None
            self._floor = max(self._floor, self._lease)
            if not self._ended and self._floor < self._cut:
                raise RunFailed(
                    f"source {self._operator.name!r}: the journal ends at seq {self._floor}, "
                    f"but the run had got to {self._cut}: records were lost; restore the journal"
                )

    # --------------------------------------------------------------------------------------------------- live

    def _take_in(self, max_bytes: int) -> None:
        """What has arrived, if anything; else the clock."""
        assert self._clients is not None
        if self._draining:
            self._accepted(self._clients.finish())
            self._end()
            return
        lines = self._clients.take(max_bytes)
        self._accepted(lines)
        if self._clients.over:
            self._end()
        elif not lines:
            self._idle()

    def _accepted(self, lines: bytes) -> None:
        """Give lines their seqs, journal them, and only then parse them."""
        if not lines:
            return
        seq = max(self._clock(), self._floor)
        offset = self._journal.offset
        taken = self._taken()
        self._journal.append(self.kind, seq, lines, taken)
        frame = Frame(offset, self.kind, seq, lines, taken)
        self._marks.add(seq, {"offset": offset, "lease": self._lease})
        self._floor = frame.next_seq
        self._parse([frame])

    def _idle(self) -> None:
        """Nothing came: announce the clock, within a lease that the journal holds."""
        now = max(self._clock(), self._floor)
        if now > self._lease and now > self._floor:
            lease = now + LEASE_US
            self._journal.append(LEASE, lease)
            self._lease = lease
        self._floor = now
        self._pending.reach(max(now, self._cut))

    def _end(self) -> None:
        self._journal.append(END_OF_SOURCE, 0)
        self._ended = True
        self._let_go()

    def _weight(self, frame: Frame) -> int:
        """About how many bytes a frame's records have."""
        return len(frame.lines)

    def _parse(self, frames: list[Frame]) -> None:
        data = b"".join(frame.lines for frame in frames)
        by_line = np.concatenate([np.arange(frame.seq, frame.next_seq, dtype=np.int64) for frame in frames])
        split = self._format.rules.lines(data)
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        seqs = by_line[np.searchsorted(newlines, split.starts)]
        name = self._operator.name
        rows, dead = parse(
            self._format, self._operator, data, split, Numbers(seqs), lambda i: f"{name}:seq {seqs[i]}", self._cut
        )
        self._pending.put(rows, dead, max(self._floor, self._cut))


class TcpReader(LiveReader):
    """Lines from any number of TCP clients."""

    def _listen(self, sockets: str) -> Intake:
        listener = listen_tcp(self._operator.params["listen"], self._operator.name)
        self.address: tuple[str, int] = listener.getsockname()[:2]
        return Clients(listener, self._limit)


class StdinReader(LiveReader):
    """Lines from the front end's standard input, which it pumps into a socket of the run."""

    _path: str | None = None
    _pumped: Pumped | None = None

    def _listen(self, sockets: str) -> Intake:
        path = stdin_path(sockets, self._operator.name)
        self._pumped = Pumped(listen_unix(path, self._operator.name))
        self._path = path
        return self._pumped

    def _let_go(self) -> None:
        if self._pumped is not None and self._ended:
            self._pumped.complete()
        super()._let_go()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._path = None

    def _taken(self) -> Taken | None:
        return None if self._pumped is None else self._pumped.taken

    def _parse(self, frames: list[Frame]) -> None:
        super()._parse(frames)
        taken = frames[-1].taken
        if self._pumped is not None and taken is not None:
            self._pumped.journalled(taken)
