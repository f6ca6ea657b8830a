"""Work that needs Spark, done though Spark dies.

A Java process may be killed at any moment. Whoever has work for it opens another, after a while that doubles, and does
the work again; after some failures in a row nobody believes in the next attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dadstorm import logs
from dadstorm.errors import DadstormError, RunFailed
from dadstorm.spark.session import Session, SessionLost, Settings, open_session, reason

FAILURES_MAX = 5
"""In a row, with nothing done in between."""
FIRST_WAIT_S = 0.25
LAST_WAIT_S = 8.0
CLOSE_WITHIN_S = 15.0
"""How long to wait for a thread that talks to Spark, when its work is not wanted any more."""

log = logs.get_logger()


class Attempts:
    """Tries one piece of work until it is done, or of no use."""

    def __init__(self, what: str, settings: Settings, folder: str, failures_max: int = FAILURES_MAX) -> None:
        self._what = what
        self._settings = settings
        self._folder = folder
        self._failures_max = failures_max
        self._failures = 0
        self.closing = threading.Event()
        """Nobody wants the work any more."""

    def progress(self) -> None:
        """The work got somewhere: earlier failures do not count any longer."""
        self._failures = 0

    def run(self, work: Callable[[Session], None]) -> None:
        """Do the work with a session of its own, and again with another when that fails. Errors that are meant for the
        user are not tried again. Call it in a thread that lives as long as the work."""
        while not self.closing.is_set():
            session: Session | None = None
            try:
                session = open_session(self._settings, self._folder)
                log.info("spark is there", source=self._settings.name, pid=session.pid)
                work(session)
                return
            except DadstormError:
                raise
            except Exception as error:
                if self.closing.is_set():
                    return
                self._failed(error)
            finally:
                if session is not None:
                    session.close()
            self.closing.wait(min(LAST_WAIT_S, FIRST_WAIT_S * 2 ** (self._failures - 1)))

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        why = str(error) if isinstance(error, SessionLost) else reason(error)
        log.warning("spark failed", source=self._settings.name, failures=self._failures, error=why)
        if self._failures >= self._failures_max:
            raise RunFailed(f"{self._what}: Spark failed {self._failures} times in a row: {why}") from None
