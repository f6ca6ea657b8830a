"""A run at a PCS without processes or sockets: what it sends, forks and kills is written down, and the clock is ours.

A zygote is played by the test: it answers each ``Fork`` as it likes, and remembers what a zygote would for a PCS that
takes the place of one that was killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dadstorm import topology
from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.endpoint import Received
from pcs.home import Home
from pcs.known import Kept
from pcs.line import Ended, Fork, Forked, Kill, Kin, NotForked
from pcs.run import Run

TOKEN = b"t" * 16
MASTER = "tcp://127.0.0.1:10001"
TICK_S = 0.125  # a clock of such steps is exact, whenever it begins


class Killed(BaseException):
    """The PCS was, at this moment."""


class Wire:
    """An endpoint that only writes down."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, control.Message]] = []
        self.told: list[control.Message] = []
        """To the PuppetMaster's connection."""

    def send(self, address: str, message: Any, content: object = None, *, token: bytes | None = None) -> None:
        self.sent.append((address, message))

    def reply(self, to: bytes, message: Any, *, token: bytes | None = None) -> None:
        self.told.append(message)

    def drop(self, reason: str) -> None:
        raise AssertionError(reason)

    def hang_up(self, address: str) -> None:
        pass

    def to(self, address: str, kind: type) -> list[Any]:
        return [message for where, message in self.sent if where == address and isinstance(message, kind)]


class Host:
    """A PCS's part in a run, and its zygote."""

    def __init__(self, plan: Plan, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan, self.name = plan, name
        self.now = 1000.0
        self.wire = Wire()
        self.forks: list[Fork] = []
        self.kills: list[Kill] = []
        self.kin: dict[Peer, Kin] = {}
        self.kept = b""
        self.on_fork: Callable[[Fork], None] = self.forked
        self._serial = itertools.count()
        for module in ("run", "moves", "known", "child", "copies", "mastery"):
            monkeypatch.setattr(f"pcs.{module}.time", SimpleNamespace(monotonic=lambda: self.now))
        self.run = self._begin(None)

    def _begin(self, kept: Kept | None) -> Run:
        home = Home(
            endpoint=self.wire,  # type: ignore[arg-type]
            fork=self._fork,
            kill=self.kills.append,
            keep=self._keep,
            serial=self._serial.__next__,
            problems=lambda operator: [],
            address=f"tcp://{self.name}",
            public_address=f"tcp://{self.name}",
            folder="/nowhere",
            sockets="/nowhere",
            keys=None,
            confined=False,
            message_bytes_max=1 << 20,
        )
        plan = msgspec.msgpack.encode(self.plan)
        request = control.Open(TOKEN, self.name, plan, MASTER, "/nowhere", "127.0.0.1", control.Shake())
        return Run(request if kept is None else kept.request, self.plan, home, b"master", kept)

    def _keep(self) -> None:
        self.kept = self.run.kept()

    # -- the zygote ----------------------------------------------------------------------------------------------

    def _fork(self, fork: Fork) -> None:
        self.forks.append(fork)
        self.on_fork(fork)

    def forked(self, fork: Fork) -> None:
        pid = 1000 + fork.serial
        self.kin[Peer(fork.operator, fork.replica)] = Kin(
            fork.serial, pid, TOKEN, fork.operator, fork.replica, fork.incarnation, fork.bind
        )
        self.run.on_zygote(Forked(fork.serial, pid))

    def not_forked(self, fork: Fork) -> None:
        self.run.on_zygote(NotForked(fork.serial, "no process for it: Resource temporarily unavailable"))

    def die(self, peer: Peer) -> None:
        """A replica of this host is killed."""
        kin = self.kin[peer] = msgspec.structs.replace(self.kin[peer], status=-9)
        self.run.on_zygote(Ended(kin.serial, kin.pid, -9))

    def killed(self) -> None:
        """The PCS is killed, and another one started in its place."""
        self.run = self._begin(msgspec.msgpack.decode(self.kept, type=Kept))
        self.run.adopt(self.kin.values())

    # -- what happens --------------------------------------------------------------------------------------------

    def hear(self, message: Any) -> None:
        self.run.on_message(Received(message, None, b"master", TOKEN))
        self._keep()

    def start(self) -> None:
        """All replicas of this host are there, and everybody is introduced."""
        for peer in peers(self.plan):
            if self.plan.operators[peer.operator].replicas[peer.replica].host == self.name:
                self.hear(control.Spawn(*peer))
        directory = tuple(
            tuple(self._address(Peer(index, number)) for number in range(len(operator.replicas)))
            for index, operator in enumerate(self.plan.operators)
        )
        pcs = tuple(tuple(f"tcp://{replica.host}" for replica in op.replicas) for op in self.plan.operators)
        self.hear(control.Directory(directory, pcs))
        self.hear(control.Start(()))

    def _address(self, peer: Peer) -> str:
        kin = self.kin.get(peer)
        return f"tcp://127.0.0.9:{1000 + 10 * peer.operator + peer.replica}" if kin is None else kin.bind

    def pass_time(self, seconds: float, *said: Any) -> None:
        """Ticks, and what others say at each of them."""
        for _ in range(round(seconds / TICK_S)):
            self.now += TICK_S
            for message in said:
                self.hear(message)
            self.run.tick()

    def forks_of(self, peer: Peer) -> list[Fork]:
        return [fork for fork in self.forks if (fork.operator, fork.replica) == peer]


def peers(plan: Plan) -> list[Peer]:
    return [Peer(index, number) for index, op in enumerate(plan.operators) for number in range(len(op.replicas))]


def planned(folder: Path, text: str) -> Plan:
    (folder / "t.yaml").write_text(text)
    return topology.load(str(folder / "t.yaml"))
