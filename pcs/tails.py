"""The logs of a run, as they grow: what a PCS passes on to the PuppetMaster.

Replicas write their logs to files, and only to files: a log line costs them no message, and the last words of one that
was killed are there. The PCS reads what was appended and sends it on, a bounded piece at a time; what nobody has sent
when the run ends is sent then, up to a limit. A log that cannot be read is left where it is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

PIECE_BYTES = 1 << 18
EVERY_S = 0.5
REST_BYTES_MAX = 64 << 20
"""At the end of a run at most so much is sent of each file; all of it stays on the host."""


class Tails:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}
        self._next = 0.0

    def news(self) -> Iterator[tuple[str, int, bytes]]:
        """What was appended, now and then, one piece of each file: its name, where in it, and what."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            yield from self._pieces()

    def rest(self) -> Iterator[tuple[str, int, bytes]]:
        """All that was not sent yet."""
        for _ in range(REST_BYTES_MAX // PIECE_BYTES):
            pieces = list(self._pieces())
            if not pieces:
                return
            yield from pieces

    def _pieces(self) -> Iterator[tuple[str, int, bytes]]:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._folder)):
                if name.endswith(".log") or name == "printed.txt":
                    yield from self._piece(name)

    def _piece(self, name: str) -> Iterator[tuple[str, int, bytes]]:
        offset = self._offsets.get(name, 0)
        with contextlib.suppress(OSError), open(os.path.join(self._folder, name), "rb") as file:
            file.seek(offset)
            data = file.read(PIECE_BYTES)
            if data:
                self._offsets[name] = offset + len(data)
                yield name, offset, data
