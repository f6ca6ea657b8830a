"""What a replica process is to be: given to it by its PCS, by way of the zygote that forks it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.endpoint import MESSAGE_BYTES_MAX

_PLAN = msgspec.msgpack.Decoder(Plan)
"""Made once, in the zygote: to find out about the types takes longer than to decode a plan."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a new replica process needs to know."""

    token: bytes
    plan: bytes
    me: Peer
    master: str
    bind: str
    folder: str
    """The run's folder: logs and journals."""
    sockets: str
    """The host's private folder for socket files: short-lived, and short enough for their names."""
    lifeline: int | None
    shake: control.Shake
    pcs: str
    """Where the host's PCS listens."""
    incarnation: int = 0
    resume: control.Resume | None = None
    """For a later incarnation: what the first one was told step by step."""
    keys: str | None = None
    """The folder of the cluster's keys."""
    confined: bool = False
    """CUSTOM functions may come from the plan's folders only: the plan came from somebody else."""
    pcs_bytes_max: int = MESSAGE_BYTES_MAX
    """The largest message that the PCS takes."""

    @property
    def decoded_plan(self) -> Plan:
        return _PLAN.decode(self.plan)

    @property
    def shake_seed(self) -> int:
        """Differs between replicas, so that each is shaken in its own way."""
        return self.shake.seed * 1_000_003 + self.me.operator * 4099 + self.me.replica

    def run_of(self, plan: Plan) -> str:
        """What all incarnations of a run call it, and no other run does. The token is a secret: its digest is none."""
        return plan.durable.run if plan.durable else hashlib.blake2b(self.token, digest_size=8).hexdigest()
