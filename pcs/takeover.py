"""Lost hosts: who may say that a host is lost, what can move from it, where to, and under which number.

A PCS that is asked to bring back a replica of another host passes that on to the host's own PCS, which has the last
word. If that is silent, another PCS takes the replica over. It may be wrong: the host may only be cut off, and then
both incarnations live. That is no danger as long as only *one* side of a cut network takes over: two sides that both
went on would each call safe, and let go of, what the other still needs. So a host is lost only when a majority has not
heard of it: more than half of the PCSs of the run; with an even number of them the PuppetMaster has a voice too, so
that two hosts and a PuppetMaster are three. Two majorities have a member in common, who hears one side or the other.

The numbers of incarnations tell which host made them (their remainder by the number of hosts), so that two hosts never
make the same one, whatever they know of each other.

Sinks and live sources stay: they write or own something of their host. What is left moves if the new host allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dadstorm.core.messages import Peer
from dadstorm.plan import Operator, Plan

PATIENCE_S = 2.0
"""The least time after which a silent host may be lost."""
RESTART_S = 10.0
"""What needs no copies is started elsewhere without being asked for; a PCS that is started again sooner comes first."""
BEAT_S = 0.25
"""How often PCSs tell each other that they are there."""
UNHEARD = 8
"""How many incarnations of a replica a host may have made since it was last heard of: a host that goes down may lose
its replicas first."""
FRESH_S = 2.0
"""How old the word of a voter may be."""
MASTER = ""
"""The PuppetMaster, among voters."""


def patience_s(plan: Plan) -> float:
    """How long a host may be silent."""
    return max(PATIENCE_S, 2 * plan.suspect_after_ms / 1000)


def hosts_of(plan: Plan) -> tuple[str, ...]:
    """The hosts of a plan, each once, in its order."""
    return tuple(dict.fromkeys(replica.host for operator in plan.operators for replica in operator.replicas))


class Watch:
    """Which hosts a PCS hears, and which are lost, as a majority sees it. Times are in seconds, of any clock."""

    def __init__(self, hosts: Sequence[str], me: str, patience: float, now: float) -> None:
        self._me = me
        self._patience_s = patience
        self._looked = now
        self._heard = {host: now for host in hosts if host != me}
        self._words: dict[str, tuple[float, frozenset[str]]] = {}
        """Per voter: when it last said something, and who was silent for it."""
        self._master_votes = len(hosts) % 2 == 0
        self._voters = len(hosts) + self._master_votes
        self._lost: dict[str, float] = {}

    def heard(self, host: str, silent: Iterable[str], now: float) -> None:
        """Another PCS (or the PuppetMaster) is there, and has not heard of these for too long."""
        if host in self._heard:
            self._heard[host] = now
        elif host != MASTER:
            return
        self._words[host] = (now, frozenset(silent))

    def look(self, now: float) -> None:
        """Time passes. Who has not looked for long cannot tell others' silence from its own, and begins anew."""
        if now - self._looked > self._patience_s / 2:
            self._heard = dict.fromkeys(self._heard, now)
            self._words.clear()
        self._looked = now
        for host in self._heard:
            if not self._is_lost(host, now):
                self._lost.pop(host, None)
            else:
                self._lost.setdefault(host, now)

    def silent(self, now: float) -> tuple[str, ...]:
        """The hosts that we have not heard of for too long."""
        return tuple(host for host, heard in self._heard.items() if now - heard > self._patience_s)

    def last_heard(self, host: str) -> float:
        """When another host was."""
        return self._heard[host]

    def _is_lost(self, host: str, now: float) -> bool:
        """Whether we and so many others as make a majority have not heard of it."""
        if now - self._heard[host] <= self._patience_s:
            return False
        agreeing = [
            voter
            for voter, (said, silent) in self._words.items()
            if now - said <= FRESH_S and host in silent and (voter != MASTER or self._master_votes)
        ]
        return 2 * (1 + len(agreeing)) > self._voters

    def lost_for(self, host: str, now: float) -> float | None:
        """For how long a host has been lost; None if it is not."""
        return now - self._lost[host] if host in self._lost else None

    def objects(self, host: str, now: float) -> bool:
        """Whether the PuppetMaster is there and hears something of this host, of which we do not."""
        said, silent = self._words.get(MASTER, (float("-inf"), frozenset[str]()))
        return now - said <= FRESH_S and host not in silent


def stays(operator: Operator) -> str | None:
    """Why replicas of an operator cannot live on another host; None if they can."""
    if operator.kind == "sink":
        where = operator.params.get("path")
        return f"sink {operator.name} writes {where} there" if where else f"sink {operator.name} writes there"
    if operator.kind == "source" and operator.params["type"] == "tcp":
        return f"source {operator.name} listens there"
    if operator.kind == "source" and operator.params["type"] not in ("file", "generate"):
        return f"source {operator.name} reads what is only there"
    return None


def restarts(plan: Plan, operator: Operator) -> bool:
    """Whether an operator needs no copies of its state: a source that can read everything again, whose consumers drop
    what they have; and what may lose its state."""
    if operator.kind == "source":
        return stays(operator) is None
    return plan.semantics == "at-most-once" and operator.kind != "sink"


def beyond_help(plan: Plan, where: Mapping[Peer, str], lost: str, finished: Iterable[Peer] = ()) -> list[str]:
    """What was on a lost host and cannot be had anywhere else, in words. ``where`` everybody is now."""
    over = set(finished)
    problems = []
    for index, operator in enumerate(plan.operators):
        ring = [Peer(index, number) for number in range(len(operator.replicas))]
        there = [peer for peer in ring if where[peer] == lost and peer not in over]
        if there and (reason := stays(operator)) is not None:
            problems.append(reason)
        elif there and not restarts(plan, operator) and all(where[peer] == lost for peer in ring):
            problems.append(f"operator {operator.name} had all its replicas, and so all copies of its state, there")
    return problems


def candidates(plan: Plan, where: Mapping[Peer, str], peer: Peer, without: Iterable[str]) -> list[str]:
    """The hosts that may take a replica over, the best first: few of its ring, then few replicas at all."""
    hosts = [host for host in hosts_of(plan) if host not in set(without) and host != where[peer]]
    ring = [other for other in where if other.operator == peer.operator and other != peer]
    homes = list(where.values())
    return sorted(hosts, key=lambda host: (sum(where[other] == host for other in ring), homes.count(host)))


def next_incarnation(known: int, index: int, hosts: int) -> int:
    """The least number above ``known`` that the host with this index makes."""
    return known + 1 + (index - known - 1) % hosts
