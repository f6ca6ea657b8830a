"""The event log of a run: ``events.log`` in its folder, a line for all that the PuppetMaster triggers and observes.

A line is the time (UTC) and what happened. Commands stand there in script syntax, so a log can be read as the script
that would give it; everything else begins with a word in lower case (``up``, ``died``, ``recovered``, ``finished`` …,
and ``tuple`` with ``logging: full``). Lines are in the order of their times, also if somebody sets the clock back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from types import TracebackType

from dadstorm.errors import UserError

NAME = "events.log"


class EventLog:
    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._last = ""
        try:
            # Nothing is held back: a log is of use when the PuppetMaster was killed, too.
            self._file = open(self.path, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        except OSError as error:
            cure = "Give another folder with --runs DIR"
            raise UserError(f"cannot write {self.path}: {error.strerror}. {cure}") from None

    def add(self, text: str) -> None:
        """Something has happened just now. A log that cannot be written (disk full) does not stop the run."""
        self.add_all([text])

    def add_all(self, texts: Iterable[str]) -> None:
        """Much has happened just now: with ``logging: full`` faster than one line after the other could be written."""
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._last = max(self._last, now)
        try:
            self._file.write("".join([f"{self._last} {_one_line(text)}\n" for text in texts]))
        except (OSError, ValueError):
            return

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError:
            return


def _one_line(text: str) -> str:
    return "\\n".join(text.splitlines())
