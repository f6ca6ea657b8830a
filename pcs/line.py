"""What a PCS and its zygote say to each other, and the line they say it over.

Messages are msgpack behind a length, over one stream socket. A replica process is known by the serial number of its
fork. The zygote remembers, for a PCS that takes the place of one that was killed, what the PCS has given it to
``Keep`` and every replica it has forked (``Kin``): the two live and die together, so nothing of it needs a file.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator

import msgspec

from dadstorm.wire import control

_LENGTH = struct.Struct("<I")
MESSAGE_BYTES_MAX = 1 << 30


class Fork(msgspec.Struct, tag="fork", frozen=True):
    """PCS → zygote: fork a replica."""

    serial: int
    token: bytes
    plan: bytes
    operator: int
    replica: int
    master: str
    bind: str
    folder: str
    sockets: str
    shake: control.Shake
    pcs: str
    incarnation: int
    resume: control.Resume | None
    keys: str | None
    """The folder of the cluster's keys: the PCS's own, never one that a message named."""
    confined: bool
    """CUSTOM functions may come from the plan's folders only."""
    message_bytes_max: int
    """What the PCS takes."""


class Kill(msgspec.Struct, tag="kill", frozen=True):
    """PCS → zygote: end this process at once."""

    serial: int


class Keep(msgspec.Struct, tag="keep", frozen=True):
    """PCS → zygote: remember this about a run; nothing: forget the run and its replicas."""

    token: bytes
    state: bytes


class Farewell(msgspec.Struct, tag="farewell", frozen=True):
    """PCS → zygote: end all replicas and yourself. A line that breaks without it is that of a PCS that was killed."""


class Forked(msgspec.Struct, tag="forked", frozen=True):
    serial: int
    pid: int


class NotForked(msgspec.Struct, tag="not-forked", frozen=True):
    """Zygote → PCS: the system would not have another process."""

    serial: int
    reason: str


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """Zygote → PCS: a replica has ended; a negative status is the signal that ended it."""

    serial: int
    pid: int
    status: int


class Kin(msgspec.Struct, frozen=True):
    """The latest process of a replica; ``status`` None: it lives."""

    serial: int
    pid: int
    token: bytes
    operator: int
    replica: int
    incarnation: int
    bind: str
    status: int | None = None


class Census(msgspec.Struct, tag="census", frozen=True):
    """Zygote → a PCS that has taken the place of another: all that is to be known of what it has left."""

    version: str
    pid: int
    """The zygote's."""
    serial: int
    """The highest that was used."""
    kept: tuple[tuple[bytes, bytes], ...]
    """Token and state of each run."""
    kin: tuple[Kin, ...]


class Bye(msgspec.Struct, tag="bye", frozen=True):
    """Zygote → PCS: all replicas are gone, and so am I."""


Request = Fork | Kill | Keep | Farewell
Report = Forked | NotForked | Ended | Bye


class Line:
    """Messages over one end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pending = bytearray()

    def send(self, message: Request | Report | Census) -> None:
        payload = msgspec.msgpack.encode(message)
        self.sock.sendall(_LENGTH.pack(len(payload)) + payload)

    def receive(self) -> Iterator[bytes]:
        """The whole messages that have arrived; EOFError when the other end is closed."""
        chunk = self.sock.recv(1 << 20)
        if not chunk:
            raise EOFError
        self._pending += chunk
        while len(self._pending) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending)
            if length > MESSAGE_BYTES_MAX:
                raise ConnectionError(f"a message of {length} bytes")
            if len(self._pending) < _LENGTH.size + length:
                return
            payload = bytes(self._pending[_LENGTH.size : _LENGTH.size + length])
            del self._pending[: _LENGTH.size + length]
            yield payload

    def farewell(self, within_s: float) -> bool | None:
        """Tell the zygote to end, and wait for it: whether it went well; None: it is still there."""
        deadline = time.monotonic() + within_s
        try:
            with contextlib.suppress(OSError):
                self.send(Farewell())
            while (left := deadline - time.monotonic()) > 0:
                if select.select([self.sock], [], [], left)[0]:
                    for payload in self.receive():
                        if isinstance(msgspec.msgpack.decode(payload, type=Report), Bye):
                            return True
        except (EOFError, OSError, msgspec.DecodeError):
            return False
        return None
