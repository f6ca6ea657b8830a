"""The sockets of a process: one inbox, and an outbox to everyone it talks to.

The inbox is a ROUTER that the process binds; an outbox is a DEALER that connects to somebody's inbox. Sending never
blocks: ZeroMQ queues without limit, and what bounds the queues is the window (see ``core.window``), not a high-water
mark that could drop tiles or stop a process in the middle of a step. (Of those who may be gone for good, see
``waiting``.) A message that is no message is counted, logged
now and then, and dropped; so is a connection by somebody who does not speak our protocol. A frame that is too large is
not even read: ZeroMQ closes the connection that it comes by.

With keys every socket, also one on a file, is encrypted and talks to members of the cluster only (``wire.keys``).
Without keys nothing but the loopback is listened on or connected to.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

from dadstorm import logs
from dadstorm.errors import RunFailed, UserError
from dadstorm.wire.address import host_of, is_address, is_loopback, joined, numeric, port_of
from dadstorm.wire.codec import Content, Frame, OtherVersion, Rubbish, decode, encode, token_of
from dadstorm.wire.control import Directory, Message
from dadstorm.wire.keys import CURE, Gate, Keys
from dadstorm.wire.waiting import WAITING_BYTES_MAX, Waiting

__all__ = ["Endpoint", "Received", "directory_problem", "is_address"]

MESSAGE_BYTES_MAX = 1 << 30
"""Nothing legitimate is larger: tiles are cut at 32 MiB unless one record alone makes more. More is refused unread."""

COPY_BYTES_MAX = 3 << 17
"""Frames up to this size are copied when they are sent. A larger one is lent to ZeroMQ, and given back through a thread
of pyzmq's that needs the interpreter: with 256 KiB that takes a third more CPU than copying, with a megabyte less."""

RECONNECT_MS = 5
"""How soon to try again to reach somebody who died: the new incarnation is there in milliseconds."""

HANDSHAKE_MS_MAX = 5000
"""Who has not introduced himself after so long is hung up on: nobody can hold connections by doing nothing."""

RECEIVE_MAX = 256
"""Messages taken in one go, so that a flood of them does not keep a replica from working."""

_STRANGERS = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Received:
    message: Message
    body: Frame | None
    reply_to: bytes
    """The sender's routing ID on the inbox; empty for an answer that came back through an outbox."""
    token: bytes = b""


_forks = 0
"""How often the process was forked on the way to this one."""


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Endpoint:
    def __init__(
        self,
        token: bytes,
        *,
        hears_answers: bool = False,
        fleeting: bool = False,
        keys: Keys | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        backlog: int = 0,
    ) -> None:
        """``backlog``: how many messages of one sender may wait before its connection is no longer read; 0: all.
        ``fleeting``: what is sent is for now or for nobody, so nothing waits for who is not there."""
        self._fleeting = fleeting
        self._token = token
        self._tokens = {token}
        self._keys = keys
        self._message_bytes_max = message_bytes_max
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4096)
        self._poller = zmq.Poller()
        self._gate = None if keys is None else Gate(self._context, keys)
        if self._gate is not None:
            self._poller.register(self._gate.socket, zmq.POLLIN)
        self._inbox = self._socket(zmq.ROUTER)
        self._inbox.setsockopt(zmq.RCVHWM, backlog)
        if keys is not None:
            keys.guard(self._inbox)
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}
        self._may_be_gone: dict[str, int] = {}
        """Who may be gone for good, and how many bytes may wait for him."""
        self._waiting: dict[str, Waiting] = {}
        self._limits: dict[str, int] = {}
        self.barred: frozenset[str] = frozenset()
        """Where nothing may be sent to: the network is to look cut."""
        self.withheld = 0
        """How many messages were not sent because of that."""
        self._hears_answers = hears_answers
        self._poller.register(self._inbox, zmq.POLLIN)
        self._strangers = self._inbox.get_monitor_socket(_STRANGERS)
        self._poller.register(self._strangers, zmq.POLLIN)
        self._extra: frozenset[int] = frozenset()
        self._forks = _forks
        self.dropped = 0
        self.foreign: list[tuple[bytes, int]] = []
        """Who has spoken another version of the wire (his routing ID, or the address we connected to), and which: the
        latest few."""

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.copy_threshold = COPY_BYTES_MAX
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, self._message_bytes_max)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 20 * RECONNECT_MS)
        return socket

    def accept(self, token: bytes) -> None:
        """Take messages with this token, too."""
        self._tokens.add(token)

    def refuse(self, token: bytes) -> None:
        """Take no messages with this token any more."""
        self._tokens.discard(token)

    def bind(self, address: str) -> str:
        """Listen here; a tcp address with port 0 takes a free one. The address as others can connect to it.

        A process may listen on several. Without keys one that others could reach is a UserError."""
        if address.startswith("tcp://"):
            host = host_of(address)
            if self._keys is None and not is_loopback(host):
                raise UserError(f"without keys nothing listens on {address}, which others can reach: {CURE}")
            address = joined(numeric(host), port_of(address))
            self._inbox.setsockopt(zmq.IPV6, int("[" in address))
        self._inbox.bind(address)
        return self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)

    def send(self, address: str, message: Message, content: Content = None, *, token: bytes | None = None) -> None:
        if address in self.barred:
            self.withheld += 1
            return
        self._leave_if_forked()
        frames = encode(token or self._token, message, content)
        most = self._limits.get(address, MESSAGE_BYTES_MAX)
        if (size := max(len(frame) for frame in frames)) > most:
            # It would be refused there, unread, and asked for again for ever.
            raise RunFailed(
                f"a {type(message).__name__} of {size >> 20} MB is more than {address} takes ({most >> 20} MB). "
                "State that is so large is better spread over several replicas; a PCS takes more with --message-mb"
            )
        with contextlib.suppress(_NotAllowed):
            try:
                self._give(address, frames)
            except zmq.Again:
                if not self._fleeting:
                    self._refused(address)
                    with contextlib.suppress(zmq.Again):  # Who is there now may be another.
                        self._give(address, frames)

    def _give(self, address: str, frames: Sequence[Frame]) -> None:
        outbox = self._outbox(address)
        if address in self._waiting:
            self._waiting[address].send(frames)
        else:
            outbox.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def _refused(self, address: str) -> None:
        """Whoever is there has refused to talk to us: ZeroMQ has given the connection up for good, and would wait for
        ever. What was given to it is lost; what is sent next tries it anew."""
        self.drop(f"{address} refuses to talk to us: it has other keys, or is none of ours")
        bytes_max = self._may_be_gone.get(address)
        self.hang_up(address, linger_ms=0)
        if bytes_max is not None:
            self.may_be_gone(address, bytes_max)

    def may_be_gone(self, address: str, bytes_max: int = WAITING_BYTES_MAX) -> None:
        """Know, before anything is sent there, that somebody may go and never come back."""
        self._may_be_gone[address] = bytes_max

    def limit(self, address: str, message_bytes_max: int) -> None:
        """Know that somebody takes no messages larger than this."""
        self._limits[address] = message_bytes_max

    def reply(self, reply_to: bytes, message: Message, *, token: bytes | None = None) -> None:
        """Answer on the connection that a message came by; to someone who has gone, nothing happens."""
        self._inbox.send_multipart([reply_to, *encode(token or self._token, message)])

    def _outbox(self, address: str) -> zmq.Socket[bytes]:
        socket = self._outboxes.get(address)
        if socket is None:
            if self._keys is None and not address.startswith("ipc://") and not is_loopback(host_of(address)):
                self.drop(f"{address} is not on this machine; without keys nothing is sent there")
                raise _NotAllowed
            socket = self._socket(zmq.DEALER)
            if self._keys is not None:
                self._keys.introduce(socket)
            socket.setsockopt(zmq.IPV6, int("[" in address))
            socket.setsockopt(zmq.IMMEDIATE, int(self._fleeting))
            if address in self._may_be_gone:
                self._waiting[address] = Waiting(socket, self._may_be_gone[address])
            try:
                socket.connect(address)
            except zmq.ZMQError as error:
                self._stop_waiting(address)
                socket.close(linger=0)
                self.drop(f"nothing can be sent to {address}: {error.strerror}")
                raise _NotAllowed from None
            self._outboxes[address] = socket
            if self._hears_answers:
                self._poller.register(socket, zmq.POLLIN)
        return socket

    def hang_up(self, address: str, linger_ms: int = HANDSHAKE_MS_MAX) -> None:
        """Nothing more is to be said to this address; what was is still sent, if it can be soon."""
        socket = self._outboxes.pop(address, None)
        self._stop_waiting(address)
        self._may_be_gone.pop(address, None)
        if socket is not None:
            if self._hears_answers:
                self._poller.unregister(socket)
            socket.close(linger=linger_ms)

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
        self._leave_if_forked()
        for address, waiting in list(self._waiting.items()):
            if waiting:
                try:
                    waiting.flush()
                except zmq.Again:
                    self._refused(address)
        ready = dict(self._poller.poll(math.ceil(timeout_ms)))
        messages: list[Received] = []
        for source in ready:
            if source is self._strangers:
                self._count_strangers()
            elif self._gate is not None and source is self._gate.socket:
                self._gate.answer()
            elif isinstance(source, zmq.Socket):
                messages.extend(self._drain(source))
        return messages, {fd for fd in ready if isinstance(fd, int)}

    def _stop_waiting(self, address: str) -> None:
        if address in self._waiting:
            self._waiting.pop(address).close()

    def _leave_if_forked(self) -> None:
        """A user's function may fork, and come back twice. The sockets are the first one's; the copy goes."""
        if self._forks != _forks:
            os._exit(1)

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
                buffers = [frame.buffer for frame in frames]
                token = token_of(buffers)
                if token not in self._tokens:
                    raise Rubbish("the token of another run")
                message, body = decode(token, buffers)
            except Rubbish as reason:
                if isinstance(reason, OtherVersion):
                    self.foreign = [*self.foreign[-15:], (reply_to or self._address_of(socket), reason.version)]
                self.drop(str(reason))
            else:
                yield Received(message, body, reply_to, token)

    def _address_of(self, socket: zmq.Socket[bytes]) -> bytes:
        return next((address.encode() for address, outbox in self._outboxes.items() if outbox is socket), b"")

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
        for address in list(self._waiting):
            self._stop_waiting(address)
        self._inbox.disable_monitor()
        self._strangers.close(linger=0)
        for socket in [*self._outboxes.values(), self._inbox]:
            socket.close(linger=linger_ms)
        if self._gate is not None:
            self._gate.socket.close(linger=0)
        self._context.term()


class _NotAllowed(Exception):
    """An address that is not connected to."""


def directory_problem(directory: Directory, sizes: Sequence[int]) -> str | None:
    """Why this cannot be the directory of a plan whose operators have so many replicas; None if it can."""
    if [len(replicas) for replicas in directory.addresses] != list(sizes):
        return "the directory of another plan"
    if not all(is_address(address) for replicas in directory.addresses for address in replicas):
        return "a directory with addresses that are none"
    if directory.pcs and [len(replicas) for replicas in directory.pcs] != list(sizes):
        return "the directory of the PCSs of another plan"
    if not all(is_address(address) for replicas in directory.pcs for address in replicas):
        return "a directory with PCSs whose addresses are none"
    return None
