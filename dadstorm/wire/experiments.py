"""What the control plane says for experiments: slow replicas, cut networks, hosts that perish."""

from __future__ import annotations

import msgspec

from dadstorm.wire.cuts import Cuts


class Slow(msgspec.Struct, tag="slow", frozen=True):
    """PuppetMaster → replica and PCS: take up so late what other replicas and PCSs say; 0: at once. It holds for those
    who take the replica's place, too."""

    operator: int
    replica: int
    ms: int


class Partition(msgspec.Struct, tag="partition", frozen=True):
    """PuppetMaster → replica and PCS: all the cuts there are now, in place of those before."""

    cuts: Cuts = ()


class Perish(msgspec.Struct, tag="perish", frozen=True):
    """PuppetMaster → PCS: kill all your replicas and yourself, as the loss of the host would."""


class Spared(msgspec.Struct, tag="spared", frozen=True):
    """PCS → PuppetMaster: I do not perish, and why."""

    host: str
    reason: str
