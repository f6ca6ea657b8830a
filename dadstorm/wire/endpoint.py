"""The sockets of a process: one inbox, and an outbox to everyone it talks to.

The inbox is a ROUTER that the process binds; an outbox is a DEALER that connects to somebody's inbox. Sending never
blocks: ZeroMQ queues without limit, and what bounds the queues is the window (see ``core.window``), not a high-water
mark that could drop tiles or stop a process in the middle of a step. A message that is no message is counted, logged
now and then, and dropped; so is a connection by somebody who does not speak our protocol. A frame that is too large is
not even read: ZeroMQ closes the connection that it comes by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import structlog
import zmq
from zmq.utils.monitor import recv_monitor_message

from dadstorm.wire.codec import Content, Frame, Rubbish, decode, encode
from dadstorm.wire.control import Directory, Message

MESSAGE_BYTES_MAX = 1 << 30
"""Nothing legitimate is larger: tiles are cut at 32 MiB unless one record alone makes more. More is refused unread."""

RECONNECT_MS = 5
"""How soon to try again to reach somebody who died: the new incarnation is there in milliseconds."""

RECEIVE_MAX = 256
"""Messages taken in one go, so that a flood of them does not keep a replica from working."""

_STRANGERS = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_TCP = re.compile(r"tcp://[\w.:\[\]-]+:\d{1,5}", re.ASCII)
_IPC_BYTES_MAX = len("ipc://") + 107
"""What the system allows for the path of a socket file."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Received:
    message: Message
    body: Frame | None
    reply_to: bytes
    """The sender's routing ID on the inbox; empty for an answer that came back through an outbox."""


class Endpoint:
    def __init__(self, token: bytes, *, hears_answers: bool = False) -> None:
        self._token = token
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4096)
        self._inbox = self._socket(zmq.ROUTER)
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}
        self._hears_answers = hears_answers
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        self._strangers = self._inbox.get_monitor_socket(_STRANGERS)
        self._poller.register(self._strangers, zmq.POLLIN)
        self._extra: frozenset[int] = frozenset()
        self.dropped = 0

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 20 * RECONNECT_MS)
        return socket

    def bind(self, address: str) -> str:
        """Listen here; a tcp address with port 0 takes a free one. The address as others can connect to it."""
        self._inbox.bind(address)
        return self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)

    def send(self, address: str, message: Message, content: Content = None) -> None:
        self._outbox(address).send_multipart(encode(self._token, message, content), copy=False)

    def reply(self, reply_to: bytes, message: Message) -> None:
        """Answer on the connection that a message came by; to someone who has gone, nothing happens."""
        self._inbox.send_multipart([reply_to, *encode(self._token, message)])

    def _outbox(self, address: str) -> zmq.Socket[bytes]:
        socket = self._outboxes.get(address)
        if socket is None:
            socket = self._outboxes[address] = self._socket(zmq.DEALER)
            socket.connect(address)
            if self._hears_answers:
                self._poller.register(socket, zmq.POLLIN)
        return socket

    def also_wake_for(self, fds: Iterable[int]) -> None:
        """Let ``receive`` return early when one of these file descriptors becomes readable."""
        wanted = frozenset(fds)
        if wanted == self._extra:
            return
        for fd in self._extra - wanted:
            self._poller.unregister(fd)
        for fd in wanted - self._extra:
            self._poller.register(fd, zmq.POLLIN)
        self._extra = wanted

    def receive(self, timeout_ms: float) -> tuple[list[Received], set[int]]:
        """Wait for something, at most so long: the messages that are there, and the extra fds that woke us."""
        ready = dict(self._poller.poll(math.ceil(timeout_ms)))
        messages: list[Received] = []
        for source in ready:
            if source is self._strangers:
                self._count_strangers()
            elif isinstance(source, zmq.Socket):
                messages.extend(self._drain(source))
        return messages, {fd for fd in ready if isinstance(fd, int)}

    def _drain(self, socket: zmq.Socket[bytes]) -> Iterator[Received]:
        for _ in range(RECEIVE_MAX):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            reply_to = b""
            if socket is self._inbox:
                reply_to, frames = frames[0].bytes, frames[1:]
            try:
                message, body = decode(self._token, [frame.buffer for frame in frames])
            except Rubbish as reason:
                self.drop(str(reason))
            else:
                yield Received(message, body, reply_to)

    def _count_strangers(self) -> None:
        for _ in range(RECEIVE_MAX):
            try:
                recv_monitor_message(self._strangers, zmq.NOBLOCK)
            except zmq.Again:
                return
            self.drop("a connection by somebody who does not speak our protocol")

    def drop(self, reason: str) -> None:
        """Count a message that could not be used; the first ones and then ever fewer are logged."""
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:
            log.warning("message dropped", reason=reason, dropped=self.dropped)

    def close(self, linger_ms: int = 0) -> None:
        """Close all sockets; what was sent gets so long to leave."""
        self._inbox.disable_monitor()
        self._strangers.close(linger=0)
        for socket in [*self._outboxes.values(), self._inbox]:
            socket.close(linger=linger_ms)
        self._context.term()


def is_address(text: str) -> bool:
    """Whether this could be somebody's address: who gives another one is not taken seriously."""
    if text.startswith("ipc://"):
        return "\0" not in text and len("ipc://") < len(text.encode()) <= _IPC_BYTES_MAX
    return _TCP.fullmatch(text) is not None


def directory_problem(directory: Directory, sizes: Sequence[int]) -> str | None:
    """Why this cannot be the directory of a plan whose operators have so many replicas; None if it can."""
    if [len(replicas) for replicas in directory.addresses] != list(sizes):
        return "the directory of another plan"
    if not all(is_address(address) for replicas in directory.addresses for address in replicas):
        return "a directory with addresses that are none"
    return None
