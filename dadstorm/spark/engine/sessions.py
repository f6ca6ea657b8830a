"""The session that a run on Spark has now; when its Java process dies, the next one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import dadstorm
from dadstorm import logs
from dadstorm.errors import UserError
from dadstorm.spark.session import Session, SessionLost, Settings, open_session
from dadstorm.topology.spark import MASTERS

NAME = "engine"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(dadstorm.__file__)))
"""Where workers on this machine find us."""
REACHED_WITHIN_S = 5.0
EXECUTOR_WITHIN_S = 180.0
"""How long a cluster may take to give us an executor."""
ATTEMPTS = 4
"""How often a task is tried."""

log = logs.get_logger()


class Sessions:
    def __init__(self, master: str, conf: Mapping[str, str], folder: str) -> None:
        self._settings = Settings(NAME, patient(master), {**tuned(master), **conf})
        self._folder = folder
        self._session: Session | None = None
        self._one = threading.RLock()

    def now(self) -> Session:
        """The session; a new one if there is none that lives. Raises UserError if the master cannot be had, and
        SessionLost if Java does not stay."""
        with self._one:
            if self._session is not None and not self._session.alive:
                log.warning("the Java process is gone")
                self.close()
            if self._session is None:
                check_master(self._settings.master)
                with _handlers_kept():
                    self._session = open_session(self._settings, self._folder)
                log.info("spark is there", pid=self._session.pid, master=self._settings.master)
                if not self._settings.local:
                    self._wait_for_executor(self._session)
            return self._session

    def width(self) -> int:
        """How many tasks Spark can work at, at a time."""
        while True:
            session = self.now()
            try:
                return int(session.spark.sparkContext.defaultParallelism)
            except Exception as error:
                if not session.lost(error):
                    raise

    def died(self, error: BaseException) -> bool:
        """Whether a call has failed because the Java process is gone."""
        with self._one:
            return self._session is None or self._session.lost(error)

    def close(self) -> None:
        with self._one:
            if self._session is not None:
                self._session.close()
                self._session = None

    def executors(self) -> int:
        """How many there are, the driver not counted; an embedded Spark is its own."""
        with self._one:
            if self._session is None or self._settings.local:
                return 1
            return int(self._session.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def _wait_for_executor(self, session: Session) -> None:
        until = time.monotonic() + EXECUTOR_WITHIN_S
        while self.executors() < 1:
            if not session.alive:
                raise SessionLost("Spark's Java process ended while it waited for an executor")
            if time.monotonic() > until:
                self.close()
                raise UserError(
                    f"master {self._settings.master} gave no executor within {EXECUTOR_WITHIN_S:.0f} s: are its "
                    "workers up, with cores and memory to spare?"
                )
            time.sleep(0.1)


def tuned(master: str) -> dict[str, str]:
    """What suits steps of few, large rows."""
    ours = {
        "spark.sql.adaptive.enabled": "false",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")])),
        "spark.driver.maxResultSize": "4g",
    }
    host = urlsplit(master).hostname if master.startswith("spark://") else None
    if host in ("127.0.0.1", "localhost", "::1"):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return ours


def patient(master: str) -> str:
    """An embedded Spark gives up a job with its first task that fails, for instance because its Python worker died,
    unless it is told how often to try; a cluster has as many attempts by itself."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return master if found is None else f"local[{found[1] or 1},{ATTEMPTS}]"


def check_master(master: str) -> None:
    """A master that is none, or is not there, is told at once: Spark would try for a minute."""
    if not (master.startswith(("local", "spark://", "k8s://")) or master == "yarn"):
        raise UserError(f'--master: found "{master}"; expected {MASTERS}')
    if not master.startswith("spark://"):
        return
    problems = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UserError(f'--master: found "{master}"; expected spark://HOST:PORT')
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACHED_WITHIN_S).close()
            return
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
    raise UserError(f"--master: no Spark master can be reached at {master} ({'; '.join(problems)})")


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """PySpark takes ^C for itself: it stays with who had it."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
