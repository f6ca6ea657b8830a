"""The heart of a replica: signs of life from a thread of its own.

A replica may be busy for long in a user's function, and must not be taken for dead because of it. So its beats, to its
ring and its PCS, are sent by a thread with sockets of its own, which shares nothing with the main loop but the process:
a process that is stopped, or gone, or whose interpreter hangs, does not beat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from dadstorm.wire.control import Message
from dadstorm.wire.endpoint import Endpoint

BEAT_EVERY_S = 0.25
"""Four times per ``suspect_after`` (1 s): one beat that is late does no harm."""


class Heart:
    """Beats from when it is made until it is stopped."""

    def __init__(
        self,
        make_endpoint: Callable[[], Endpoint],
        message: Message,
        addresses: Iterable[str],
        barred: frozenset[str] = frozenset(),
    ) -> None:
        self._make_endpoint = make_endpoint
        self._message = message
        self.addresses = sorted(set(addresses))
        """Where to beat."""
        self.barred = barred
        """Where not to beat: the network is to look cut."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        """Sockets belong to the thread that makes them."""
        endpoint = self._make_endpoint()
        try:
            beaten: list[str] = []
            while True:
                endpoint.barred, addresses = self.barred, self.addresses
                for address in set(beaten).difference(addresses):
                    endpoint.hang_up(address)
                for address in addresses:
                    endpoint.send(address, self._message)
                beaten = addresses
                if self._stop.wait(BEAT_EVERY_S):
                    return
        finally:
            endpoint.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
