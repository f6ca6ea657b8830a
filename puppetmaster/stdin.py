"""Standard input for a topology: the front end copies its own into the source's socket.

A replica has no terminal. A ``stdin`` source therefore listens on a socket file in the run's private folder, and the
front end, whose standard input the user means, pumps it there from a thread. The end of standard input closes the
connection, which ends the source.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from types import TracebackType

from dadstorm.plan import Plan
from dadstorm.sources.clients import connect_unix

CHUNK = 1 << 16
CONNECT_PATIENCE_S = 30.0


class StdinPump:
    def __init__(self, path: str | None) -> None:
        self._path = path
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._pump, daemon=True) if path else None

    @staticmethod
    def for_plan(plan: Plan, sockets: str) -> StdinPump:
        """A pump for the plan's ``stdin`` source; one that does nothing if there is none."""
        for operator in plan.operators:
            if operator.kind == "source" and operator.params["type"] == "stdin":
                from dadstorm.sources.live import stdin_path  # Much comes with it that other sources do not need.

                return StdinPump(stdin_path(sockets, operator.head.name))
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
        connection = self._connect()
        if connection is None:
            return
        with connection, contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([0, self._stop_read], [], [])
                if self._stop_read in ready:
                    return
                chunk = os.read(0, CHUNK)
                if not chunk or not self._send(connection, chunk):
                    return

    def _send(self, connection: socket.socket, chunk: bytes) -> bool:
        """Send all of it; False if told to stop first, because a source whose window is full takes nothing."""
        connection.setblocking(False)
        left = memoryview(chunk)
        while left:
            stop, _, _ = select.select([self._stop_read], [connection], [])
            if stop:
                return False
            with contextlib.suppress(BlockingIOError):
                left = left[connection.send(left) :]
        return True

    def _connect(self) -> socket.socket | None:
        """The source's socket, once it listens."""
        assert self._path is not None
        deadline = time.monotonic() + CONNECT_PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return connect_unix(self._path)
            if select.select([self._stop_read], [], [], 0.02)[0]:
                return None
        return None
