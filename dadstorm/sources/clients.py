"""The sockets of a live source: a listener and its clients, none of which can hold up the others.

All sockets are non-blocking; a client's unfinished line waits in its own buffer. ``take`` gives whole lines only. The
limits are there because anybody may connect: so many clients, so many bytes of one line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections import deque
from dataclasses import dataclass, field

from dadstorm import logs
from dadstorm.errors import RunFailed

CLIENTS_MAX = 256
RECORD_BYTES_MAX = 1 << 20
"""Default limit of a line: every client may have one of them in memory."""
RECEIVE_BYTES = 1 << 16
DRAIN_BYTES_MAX = 1 << 20
"""What is taken from each client at the end: a client that never stops sending must not keep the source from ending."""
UNIX_PATH_MAX = 100
"""A unix socket's address holds 107 bytes."""

_log = logs.get_logger()


@dataclass(eq=False)
class Client:
    socket: socket.socket
    partial: bytearray = field(default_factory=bytearray)
    """The beginning of a line whose end has not come yet."""


class Clients:
    def __init__(self, listener: socket.socket, limit: int) -> None:
        listener.setblocking(False)
        self._listener: socket.socket | None = listener
        self._limit = limit
        self._clients: deque[Client] = deque()

    @property
    def over(self) -> bool:
        """There may always be another client."""
        return False

    def fds(self) -> list[int]:
        """What becomes readable when there is news. A full house does not listen: who knocks waits."""
        fds = [client.socket.fileno() for client in self._clients]
        if self._listener is not None and len(self._clients) < CLIENTS_MAX:
            fds.append(self._listener.fileno())
        return fds

    def take(self, max_bytes: int) -> bytes:
        """Whole lines that have arrived, each with its newline; about so many bytes, from every client in turn."""
        self._accept()
        parts: list[bytes] = []
        size = 0
        for _ in range(len(self._clients)):
            if size >= max_bytes:
                break
            client = self._clients.popleft()
            lines, alive = self._receive(client)
            if lines:
                parts.append(lines)
                size += len(lines)
            if alive:
                self._clients.append(client)
            else:
                client.socket.close()
        return b"".join(parts)

    def finish(self) -> bytes:
        """Stop listening, take the whole lines that have already arrived, and let the clients go."""
        if self._listener is not None:
            self._accept()
        self._stop_listening()
        parts: list[bytes] = []
        for client in self._clients:
            alive, size = True, 0
            while alive and size < DRAIN_BYTES_MAX:
                before = len(client.partial)
                lines, alive = self._receive(client)
                if not lines and len(client.partial) == before:
                    break
                size += len(lines) + len(client.partial) - before
                parts.append(lines)
            client.socket.close()
        self._clients.clear()
        return b"".join(parts)

    def close(self) -> None:
        self._stop_listening()
        for client in self._clients:
            client.socket.close()
        self._clients.clear()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        while self._listener is not None and len(self._clients) < CLIENTS_MAX:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors, most likely: those who are connected go on.
                _log.warning("cannot accept a client", error=str(error))
                return
            connection.setblocking(False)
            self._clients.append(Client(connection))

    def _receive(self, client: Client) -> tuple[bytes, bool]:
        """The client's next whole lines, and whether it is still there."""
        try:
            data = client.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return b"", True
        except OSError:
            # The connection broke: half a line is no record.
            return b"", False
        if not data:
            rest = bytes(client.partial)
            return (rest + b"\n" if rest else b""), False
        newline = data.rfind(b"\n") + 1
        if newline:
            lines = bytes(client.partial) + data[:newline]
            client.partial = bytearray(data[newline:])
        else:
            lines = b""
            client.partial += data
        if len(lines) > self._limit:
            lines, overlong = self._up_to_overlong(lines)
            if overlong:
                return lines, False
        if len(client.partial) > self._limit + 1:
            _log.warning("client cut off: line too long", bytes_max=self._limit)
            return lines + bytes(client.partial[: self._limit + 2]) + b"\n", False
        return lines, True

    def _up_to_overlong(self, lines: bytes) -> tuple[bytes, bool]:
        """The lines up to the first that is too long, itself cut to what shows that it is."""
        at = 0
        while at < len(lines):
            end = lines.find(b"\n", at)
            if end - at > self._limit + 1:
                _log.warning("client cut off: line too long", bytes_max=self._limit)
                return lines[: at + self._limit + 2] + b"\n", True
            at = end + 1
        return lines, False


def listen_tcp(address: str, operator: str) -> socket.socket:
    """Listen at "HOST:PORT" or "[IPv6]:PORT"."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        if not host or not 0 <= int(port) < 65536:
            raise ValueError
    except ValueError:
        raise RunFailed(f"source {operator!r}: expected listen: HOST:PORT, found {address!r}") from None
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(CLIENTS_MAX)
    except OSError as error:
        if listener is not None:
            listener.close()
        cure = {
            errno.EADDRINUSE: "choose another port, or stop the program that listens there",
            errno.EACCES: "choose a port above 1023",
            errno.EADDRNOTAVAIL: "choose an address of this machine",
        }.get(error.errno or 0, "check the address")
        raise RunFailed(f"source {operator!r}: cannot listen at {address}: {error.strerror}; {cure}") from None
    return listener


def _with_short_path(path: str, folder: int) -> str:
    """A way to name a unix socket that fits into its address, however deep its folder is."""
    return path if len(os.fsencode(path)) <= UNIX_PATH_MAX else f"/proc/self/fd/{folder}/{os.path.basename(path)}"


def listen_unix(path: str, operator: str) -> socket.socket:
    """Listen at a unix socket that only this user can connect to; one that a dead process left behind is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = -1
    try:
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
        listener.bind(_with_short_path(path, folder))
        os.chmod(path, 0o600)
        listener.listen(1)
    except OSError as error:
        listener.close()
        raise RunFailed(
            f"source {operator!r}: cannot listen at {path}: {error.strerror}; check the run's folder"
        ) from None
    finally:
        if folder >= 0:
            os.close(folder)
    return listener


def connect_unix(path: str) -> socket.socket:
    """Connect to a source's unix socket, as the front end does to send its standard input. ``OSError`` while nobody
    listens."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(_with_short_path(path, folder))
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection
