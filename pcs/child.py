"""A replica as its PCS sees it: a process, and the port that is kept for the one that takes its place."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field

from dadstorm.core.messages import Peer
from dadstorm.errors import UserError
from dadstorm.plan import Operator
from dadstorm.wire.address import host_of, joined, numeric

SHORT_LIFE_S = 10.0
SHORT_LIVES_MAX = 8
"""So many incarnations in a row that died this young: something kills them each time; to bring them back is no help."""
STARVED_PATIENCE = 30
"""How many times ``suspect_after`` a process that waits for a CPU may be silent."""


@dataclass(slots=True)
class Child:
    """A replica of this host, and its present incarnation."""

    name: str
    bind: str
    ring: int
    """How many replicas its operator has."""
    incarnation: int = 0
    serial: int = -1
    """Of the latest fork."""
    pid: int | None = None
    alive: bool = True
    born: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    short_lives: int = 0
    asked_for: bool = False
    """Its death was: it says nothing about whether it can live."""
    over: bool = False
    """It has ended for good: finished, failed, or not worth another try."""
    lost: float = 0.0
    """When it died, or was last heard of; 0: it lives."""
    idle_until: float = 0.0
    """It has found itself replaced, and others may say by whom, or could not be forked: until then it is not brought
    back."""
    port: socket.socket | None = None
    """Keeps the port for the next incarnation."""

    def die(self) -> None:
        """Its process has ended."""
        now = time.monotonic()
        self.pid, self.alive, self.lost = None, False, self.lost or now
        short = now - self.born < SHORT_LIFE_S and not self.asked_for
        self.short_lives = self.short_lives + 1 if short else 0
        self.asked_for = False

    @property
    def hopeless(self) -> str | None:
        """Why not to bring it back once more, if so."""
        if self.short_lives < SHORT_LIVES_MAX:
            return None
        return f"{self.name} died {self.short_lives} times in a row, each time within {SHORT_LIFE_S:.0f} s"

    def hangs(self, suspect_after_s: float) -> bool:
        """Whether it lives and was not heard of for too long, and not merely for want of a CPU: a process that could
        run if it were let is only late, on a machine that is too busy. Even so, there is an end to patience."""
        waits = self.pid is not None and is_runnable(self.pid)
        return time.monotonic() - self.heard > suspect_after_s * (STARVED_PATIENCE if waits else 1)


def placed(operator: Operator, peer: Peer, reach: str, sockets: str) -> Child:
    """A replica that is to be started, and where it listens: as the plan says, or on any port by which the others
    ``reach`` it, or in the folder of socket files."""
    child = Child(f"{operator.name} replica {peer.replica}", "", len(operator.replicas))
    address = operator.replicas[peer.replica].address
    if address is not None:
        child.bind = address
    elif reach:
        child.port, child.bind = reserve(reach)
    else:
        child.bind = f"ipc://{sockets}/{peer.operator}.{peer.replica}"
    return child


def reserve(host: str) -> tuple[socket.socket, str]:
    """A free port of this host that nobody else gets, and its address.

    The socket is bound and does not listen: the replica, and each one that takes its place, may bind the port beside it
    (SO_REUSEADDR on both), while the system gives it to nobody who asks for any port."""
    number = numeric(host_of(joined(host, 0)))
    keeper = socket.socket(socket.AF_INET6 if ":" in number else socket.AF_INET)
    try:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind((number, 0))
    except OSError as error:
        keeper.close()
        raise UserError(f"no port to be had on {host}: {error.strerror}") from None
    return keeper, joined(number, keeper.getsockname()[1])


def is_runnable(pid: int) -> bool:
    """Whether the system says that the process runs or waits for a CPU (neither sleeps nor is stopped)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False
