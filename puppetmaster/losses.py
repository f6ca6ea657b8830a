"""Lost hosts, as the PuppetMaster sees them: what it tells, and when there is no use in waiting.

The PCSs find lost hosts and take over what was there without the PuppetMaster, but for its voice where the number of
hosts is even. It only follows who lives where, and stops the run when something was lost that cannot be had elsewhere.
A host that is heard of again and lost again is lost anew: others have as long to take over what it has by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dadstorm.core.messages import Peer
from dadstorm.errors import RunFailed
from dadstorm.plan import Plan
from pcs.takeover import beyond_help

TAKEOVER_PATIENCE_S = 30.0
"""Who was not taken over so long after his host was found lost never will be."""


@dataclass(slots=True)
class Losses:
    plan: Plan
    since: dict[str, float] = field(default_factory=dict)
    """Hosts that were lost, and since when that was known."""

    def lost(self, host: str, where: Mapping[Peer, str], over: Collection[Peer], now: float, silent_s: float) -> bool:
        """Nothing is heard of a host: whether that is news. RunFailed if it is the end of the run. ``where`` everybody
        is now, and who is finished."""
        silence = f"the PCS {host} was not heard of for {silent_s:.0f} s, nor its replicas: the host is down or cut off"
        what = "What was committed is in the output"
        if problems := beyond_help(self.plan, where, host, over):
            cure = "An operator with replicas on several hosts survives the loss of one (on: [A, B])"
            raise RunFailed(f"{silence}; {'; '.join(problems)}. {what}. Run the topology again. {cure}")
        if now - silent_s > self.since.get(host, now):
            del self.since[host]  # It has been heard of since.
        left = [peer for peer, there in where.items() if there == host and peer not in over]
        if left and now - self.since.get(host, now) > TAKEOVER_PATIENCE_S:
            names = ", ".join(f"{self.plan.operators[peer.operator].name} {peer.replica}" for peer in left)
            raise RunFailed(f"{silence}, and no other host has taken over {names}. {what}")
        news = host not in self.since
        self.since.setdefault(host, now)
        return news
