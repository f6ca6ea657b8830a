"""The source's side of a pumped standard input: one connection at a time, and always a listener for the next one.

The listener stays, because the front end connects again if it loses the connection. ``pump`` says what passes between
the two and why it is exact. The reader's part: it writes what ``take`` gave to its journal together with ``taken``, and
then calls ``journalled``; what it replays from its journal it passes to ``journalled`` too, before its first ``take``.
"""

from __future__ import annotations

import contextlib
import socket

from dadstorm import logs
from dadstorm.sources.clients import DRAIN_BYTES_MAX, RECEIVE_BYTES
from dadstorm.sources.pump import ALL, LENGTH, PIECE_BYTES_MAX, POSITION, TOKEN_BYTES, Taken

_log = logs.get_logger()


class Pumped:
    """Lines from whoever pumps, and how far they are in the journal."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener: socket.socket | None = listener
        self._connection: socket.socket | None = None
        self._greeted = False
        self._raw = bytearray()
        """What was received and is not a whole piece yet."""
        self._lines = bytearray()
        """Whole lines that nobody has taken yet."""
        self._partial = bytearray()
        """The beginning of a line whose end has not come yet."""
        self._taken = Taken(b"", 0)
        self._unsaid: bytes | None = None
        self._over = False

    @property
    def over(self) -> bool:
        """The end of input has come, and was said to be it."""
        return self._over

    @property
    def taken(self) -> Taken:
        """How far the stream is, with the lines that ``take`` or ``finish`` gave last."""
        return self._taken

    def fds(self) -> list[int]:
        return [one.fileno() for one in (self._connection, self._listener) if one is not None]

    def take(self, max_bytes: int) -> bytes:
        """Whole lines that have arrived, each with its newline; about so many bytes."""
        self._accept()
        self._say_unsaid()
        self._receive(max_bytes)
        return self._give()

    def finish(self) -> bytes:
        """Stop listening and take the whole lines that have already arrived."""
        self._accept()
        self._stop_listening()
        self._receive(DRAIN_BYTES_MAX)
        return self._give()

    def journalled(self, taken: Taken) -> None:
        """The journal has the stream up to there."""
        self._taken = taken
        self._say(taken.position)

    def complete(self) -> None:
        """The journal has the end: whoever pumps need not stay."""
        self._say(ALL)

    def close(self) -> None:
        self._stop_listening()
        self._hang_up()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _hang_up(self) -> None:
        """Half a line is not in the journal: it comes again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._greeted = False
        self._unsaid = None
        self._raw.clear()
        self._partial.clear()

    def _accept(self) -> None:
        """Who connected last is the one who pumps: it does so when it has given up what it had."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("cannot accept the front end", error=str(error))
                return
            self._hang_up()
            connection.setblocking(False)
            self._connection = connection

    def _receive(self, max_bytes: int) -> None:
        size = 0
        while self._connection is not None and not self._over and size < max_bytes:
            try:
                data = self._connection.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._hang_up()
                return
            size += len(data)
            self._raw += data
            self._unpack()

    def _unpack(self) -> None:
        """What has come, up to the last whole piece."""
        at = 0
        if not self._greeted:
            if len(self._raw) < TOKEN_BYTES:
                return
            self._greet(bytes(self._raw[:TOKEN_BYTES]))
            at = TOKEN_BYTES
        while not self._over and at + LENGTH.size <= len(self._raw):
            (length,) = LENGTH.unpack_from(self._raw, at)
            end = at + LENGTH.size + length
            if length > PIECE_BYTES_MAX or (not length and self._partial):
                _log.warning("cut off: not what a front end says")
                self._hang_up()
                return
            if end > len(self._raw):
                break
            self._add(bytes(self._raw[at + LENGTH.size : end]))
            self._over = not length
            at = end
        del self._raw[:at]

    def _greet(self, session: bytes) -> None:
        self._greeted = True
        if session != self._taken.session:
            self._taken = Taken(session, 0)
        self._say(self._taken.position)

    def _add(self, data: bytes) -> None:
        newline = data.rfind(b"\n") + 1
        if newline:
            self._lines += self._partial
            self._lines += data[:newline]
            self._partial.clear()
        self._partial += data[newline:]

    def _give(self) -> bytes:
        lines = bytes(self._lines)
        self._lines.clear()
        self._taken = Taken(self._taken.session, self._taken.position + len(lines))
        return lines

    def _say(self, position: int) -> None:
        if self._greeted:
            self._unsaid = POSITION.pack(position)
            self._say_unsaid()

    def _say_unsaid(self) -> None:
        """If it cannot be said now because the front end does not listen, then later: the last position is enough."""
        if self._connection is not None and self._unsaid is not None:
            with contextlib.suppress(OSError):  # That it is broken is found out by who receives.
                self._connection.send(self._unsaid)
                self._unsaid = None
