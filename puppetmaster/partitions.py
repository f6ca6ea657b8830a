"""Partitions, as the PuppetMaster keeps them: between whom nothing is to pass, and which addresses that means now.

Sides are kept by name, for replicas come back at other addresses. The PuppetMaster itself is on no side: it still
reaches everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from dadstorm.wire.cuts import Cuts
from puppetmaster import sides


@dataclass(slots=True)
class Partitions:
    plan: Plan
    between: list[tuple[str, str]] = field(default_factory=list)
    """The names of both sides of each."""

    def cuts(
        self, addresses: Mapping[Peer, str], hosts: Mapping[Peer, str], pcs: Callable[[str], tuple[str, ...]]
    ) -> Cuts:
        """Every partition in addresses: given where each replica listens, on which host it is, and where the PCS of a
        host listens."""

        def members(name: str) -> tuple[str, ...]:
            side = sides.resolved(self.plan, name)
            if side.host is None:
                return tuple(addresses[peer] for peer in side.peers if peer in addresses)
            there = [address for peer, address in sorted(addresses.items()) if hosts[peer] == side.host]
            return (*pcs(side.host), *there)

        return tuple((members(left), members(right)) for left, right in self.between)
