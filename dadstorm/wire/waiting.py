"""Messages for somebody who may be gone for good.

ZeroMQ keeps what is sent to a peer that it cannot reach, without limit, for it may come back. For most that is right:
they come back, or are replaced, and then hung up on. A PuppetMaster may die and never be missed, while replicas go on
telling it how far they are for weeks. So once the connection to such a one is lost, messages wait here until there is
another one, and from some size on the oldest go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import zmq
from zmq.utils.monitor import recv_monitor_message

from dadstorm.wire.codec import Frame

WAITING_BYTES_MAX = 16 << 20
_CONNECTED, _LOST = int(zmq.EVENT_CONNECTED), int(zmq.EVENT_DISCONNECTED)
_REFUSED = (int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL), int(zmq.EVENT_HANDSHAKE_FAILED_AUTH))


class Waiting:
    """The outbox to one peer, which has just been made, and what waits for it, in order."""

    def __init__(self, socket: zmq.Socket[bytes], bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._socket = socket
        self._events = socket.get_monitor_socket(_CONNECTED | _LOST | sum(_REFUSED))
        self._room = bytes_max
        """How much ZeroMQ may keep until there is a connection for the first time."""
        self._there: bool | None = None
        self._bytes_max = bytes_max
        self._messages: deque[Sequence[Frame]] = deque()
        self._bytes = 0
        self.dropped = 0
        """Messages that nobody will get."""

    def __len__(self) -> int:
        return len(self._messages)

    def send(self, frames: Sequence[Frame]) -> None:
        """Send this after what waits already, or let it wait too; zmq.Again if whoever is there has refused us."""
        self._messages.append(frames)
        self._bytes += sum(map(len, frames))
        self.flush()
        while self._bytes > self._bytes_max:
            self._take()
            self.dropped += 1

    def flush(self) -> None:
        """Send what waits, unless the connection is lost; zmq.Again if whoever is there has refused us."""
        self._look()
        while self._messages and (self._there or (self._there is None and self._room > 0)):
            frames = self._take()
            self._room -= sum(map(len, frames))
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def close(self) -> None:
        """Give up the watch, and give ZeroMQ what waits: it may still reach somebody who comes soon."""
        self._socket.disable_monitor()
        self._events.close(linger=0)
        with suppress(zmq.Again):  # Who has refused the connection gets nothing.
            while self._messages:
                self._socket.send_multipart(self._take(), zmq.NOBLOCK, copy=False)

    def _look(self) -> None:
        """Whether the connection was made, lost or refused since we last looked."""
        while self._events.poll(0):
            event = recv_monitor_message(self._events)["event"]
            if event in _REFUSED:
                raise zmq.Again
            if event in (_CONNECTED, _LOST):
                self._there = event == _CONNECTED

    def _take(self) -> Sequence[Frame]:
        frames = self._messages.popleft()
        self._bytes -= sum(map(len, frames))
        return frames
