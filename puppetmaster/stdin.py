"""Standard input for a topology: the front end pumps its own to the source's socket.

A replica has no terminal. A ``stdin`` source therefore listens on a socket file in the run's private folder, and the
front end, whose standard input the user means, pumps it there from a thread, for as long as the run lives: the source
may begin late, and if its replica dies, there is another one to go on with. ``dadstorm/sources/pump.py`` says what the
two say to each other. Only the end of standard input ends the source; a run that fails just hangs up.

What was read is kept until the source's journal has it. It is bounded, and so is what the source holds: while its
window is full it takes nothing, and then nothing is read here.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import threading
from collections.abc import Sequence
from types import TracebackType

from dadstorm.plan import Plan
from dadstorm.sources.clients import RECORD_BYTES_MAX, connect_unix
from dadstorm.sources.pump import ALL, OVER_LIMIT, PIECE_BYTES_MAX, POSITION, TOKEN_BYTES, piece, stdin_path

KEPT_BYTES_MAX = 1 << 22
PAUSE_S, PAUSE_S_MAX = 0.02, 0.1
"""Between two attempts to connect: at first, and after some."""


class Kept:
    """The stream, as far as the journal has it not: whole lines, none much longer than the limit."""

    def __init__(self, limit: int) -> None:
        self.ended = False
        self._longest = limit + OVER_LIMIT
        pattern = rb"^([^\n]{%d})[^\n]+" % min(self._longest, PIECE_BYTES_MAX)  # No longer one comes in a piece.
        self._too_long = re.compile(pattern, re.MULTILINE)
        self._length = 0
        """Of the last line, which has no end yet."""
        self._start = 0
        """The position of the first byte that is kept."""
        self._data = bytearray()

    @property
    def room(self) -> bool:
        """Whether more is wanted. A line that the source waits for the end of is never what there is no room for."""
        return not self.ended and len(self._data) < KEPT_BYTES_MAX + self._longest

    def add(self, data: bytes) -> None:
        """What was read; nothing is the end, and the end of the last line too."""
        if not data:
            self._data += b"\n" if self._length else b""
            self.ended = True
            return
        newline = data.find(b"\n")
        head = len(data) if newline < 0 else newline
        rest = data[head:]
        if len(rest) > self._longest:
            rest = self._too_long.sub(rb"\1", rest)
        added = data[: min(head, self._longest - self._length)] + rest
        self._length = len(added) - added.rfind(b"\n") - 1 + (self._length if newline < 0 else 0)
        self._data += added

    def forget(self, position: int) -> None:
        """The journal has the stream up to there; ``ConnectionError`` if that cannot be."""
        if not self._start <= position <= self._start + len(self._data):
            raise ConnectionError(f"a source at position {position}, which is not of this stream")
        del self._data[: position - self._start]
        self._start = position

    def since(self, position: int) -> bytes:
        """What is sent next, after a position; nothing if there is nothing yet."""
        at = position - self._start
        return bytes(self._data[at : at + PIECE_BYTES_MAX])


def _ready(
    reading: Sequence[int], writing: Sequence[int] = (), within_s: float | None = None
) -> tuple[set[int], set[int]]:
    """Which of these can be read from (or have ended, or are none), and which written to, once there are some; after so
    long, none. A front end may have more files open than ``select`` can name."""
    poll = select.poll()
    for fd in {*reading, *writing}:
        poll.register(fd, (select.POLLIN if fd in reading else 0) | (select.POLLOUT if fd in writing else 0))
    found = poll.poll(None if within_s is None else within_s * 1000)
    writable = {fd for fd, events in found if events & select.POLLOUT}
    return {fd for fd, events in found if fd in reading and events & ~select.POLLOUT}, writable


class StdinPump:
    """Copies standard input (or what else is said to be it) to a source, as long as the block lasts."""

    def __init__(self, path: str | None, limit: int = RECORD_BYTES_MAX, stdin: int = 0) -> None:
        self._path = path
        self._stdin = stdin
        self._token = os.urandom(TOKEN_BYTES)
        self._kept = Kept(limit)
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._pump, daemon=True) if path else None

    @staticmethod
    def for_plan(plan: Plan, sockets: str) -> StdinPump:
        """A pump for the plan's ``stdin`` source; one that does nothing if there is none."""
        for operator in plan.operators:
            if operator.kind == "source" and operator.params["type"] == "stdin":
                limit = operator.head.params.get("record_bytes_max") or RECORD_BYTES_MAX
                return StdinPump(stdin_path(sockets, operator.head.name), int(limit))
        return StdinPump(None)

    def __enter__(self) -> StdinPump:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._stop_write)
        if self._thread:
            self._thread.join()
        os.close(self._stop_read)

    def _pump(self) -> None:
        """Until the source is complete, or the run is over."""
        wanted = True
        while wanted and (connection := self._connect()) is not None:
            with connection, contextlib.suppress(OSError):
                wanted = self._serve(connection)

    def _connect(self) -> socket.socket | None:
        """The source's socket, once it listens; None if the run is over before."""
        assert self._path is not None
        pause = PAUSE_S
        while not _ready([self._stop_read], within_s=pause)[0]:
            with contextlib.suppress(OSError):
                return connect_unix(self._path)
            pause = min(2 * pause, PAUSE_S_MAX)
        return None

    def _serve(self, connection: socket.socket) -> bool:
        """Send and hear until the connection breaks (an ``OSError``, or True) or there is no need of it (False)."""
        connection.setblocking(False)
        unsent = memoryview(self._token)
        heard = b""
        sent: int | None = None
        end_sent = False
        while True:
            if sent is not None and not unsent and not end_sent:
                data = self._kept.since(sent)
                sent += len(data)
                end_sent = self._kept.ended and not data
                unsent = memoryview(piece(data) if data or end_sent else b"")
            wanted = [self._stop_read, connection.fileno()]
            if sent is not None and self._kept.room:
                wanted.append(self._stdin)
            ready, writable = _ready(wanted, [connection.fileno()] if unsent else ())
            if self._stop_read in ready:
                return False
            if connection.fileno() in ready:
                data = connection.recv(PIECE_BYTES_MAX)
                if not data:
                    return True
                heard += data
                whole = len(heard) - len(heard) % POSITION.size
                if whole:
                    (position,) = POSITION.unpack_from(heard, whole - POSITION.size)
                    heard = heard[whole:]
                    if position == ALL:
                        return False
                    self._kept.forget(position)
                    sent = position if sent is None else sent
            if writable:
                with contextlib.suppress(BlockingIOError):
                    unsent = unsent[connection.send(unsent) :]
            if self._stdin in ready:
                self._read()

    def _read(self) -> None:
        """Some of standard input. One that cannot be read has ended."""
        try:
            self._kept.add(os.read(self._stdin, PIECE_BYTES_MAX))
        except BlockingIOError:
            return
        except OSError:
            self._kept.add(b"")
