"""What commands can name besides operators: a host, and a side of a partition.

A host is named as in the topology's ``hosts:``, or is ``localhost``, or HOST[:PORT] of its PCS. A side is a host (its
PCS and all replicas there), an operator (all its replicas) or one replica, OPERATOR/NUMBER. Case does not matter; what
comes back is spelt as the topology has it, so that the log can be read as a script.
"""

from __future__ import annotations

from dataclasses import dataclass

from dadstorm.core.messages import Peer
from dadstorm.plan import PCS_PORT, Plan
from dadstorm.topology.report import nearest

SHOWN_MAX = 8
"""So many names a message lists; of more, it tells the nearest."""


class Unknown(Exception):
    """A name that means nothing here: why, and what would."""


@dataclass(frozen=True, slots=True)
class Side:
    """A host as the plan names it, or an operator's replicas."""

    host: str | None = None
    peers: tuple[Peer, ...] = ()


def hosts(plan: Plan) -> dict[str, str]:
    """What each host with replicas is called, and how the plan names it."""
    used = dict.fromkeys(replica.host for operator in plan.operators for replica in operator.replicas)
    names = {address: name for name, address in plan.hosts.items()}
    return {names.get(host, host): host for host in used}


def host(plan: Plan, text: str) -> str:
    """The name of a host that has replicas. Raises Unknown."""
    there = hosts(plan)
    for name, where in there.items():
        if text.lower() in (name.lower(), where.lower(), where.lower().removesuffix(f":{PCS_PORT}")):
            return name
    if text.lower() in (name.lower() for name in plan.hosts):
        raise Unknown(f'no replica runs on the host "{text}"; {_there("hosts are", text, there)}')
    raise Unknown(f'there is no host "{text}"; {_there("hosts are", text, there)}')


def side(plan: Plan, text: str) -> str:
    """The name of a side. Raises Unknown."""
    name, slash, number = text.rpartition("/")
    if slash:
        operator = _operator(plan, name)
        if operator is None:
            names = [one.name for one in plan.operators]
            raise Unknown(f'there is no operator "{name}"; {_there("operators are", name, names)}')
        last = len(plan[operator].replicas) - 1
        if not (number.isascii() and number.isdigit() and len(number) < 10 and int(number) <= last):
            only = "replica 0 only" if last == 0 else f"the replicas 0 to {last}"
            raise Unknown(f'"{text}": {operator} has no replica {number or "without a number"}; it has {only}')
        return f"{operator}/{int(number)}"
    operator = _operator(plan, text)
    try:
        found = host(plan, text)
    except Unknown:
        if operator is not None:
            return operator
        expected = "expected a host, an operator, or OPERATOR/REPLICA"
        raise Unknown(f'there is no operator or host "{text}"; {expected}{nearest(text, every(plan))}') from None
    where = hosts(plan)[found]
    if operator is not None:
        raise Unknown(f'"{text}" is an operator and a host; write {where} for the host, {operator}/0 … for replicas')
    return found if _operator(plan, found) is None else where


def every(plan: Plan) -> list[str]:
    """All that a side can be called: hosts, operators, and the replicas of those that have several."""
    operators = [
        name
        for one in plan.operators
        for name in (one.name, *(f"{one.name}/{n}" for n in range(len(one.replicas)) if len(one.replicas) > 1))
    ]
    return [*hosts(plan), *operators]


def resolved(plan: Plan, name: str) -> Side:
    """Who is on a side, by its name as ``side`` gives it."""
    operator, slash, number = name.rpartition("/")
    if slash:
        return Side(peers=(Peer(plan.index(operator), int(number)),))
    if (where := hosts(plan).get(name, name)) in hosts(plan).values():
        return Side(host=where)
    index = plan.index(name)
    return Side(peers=tuple(Peer(index, replica) for replica in range(len(plan.operators[index].replicas))))


def _operator(plan: Plan, text: str) -> str | None:
    return plan.called(text)


def _there(what: str, text: str, names: dict[str, str] | list[str]) -> str:
    if len(names) <= SHOWN_MAX:
        return f"the {what} {', '.join(names)}"
    return f"there are {len(names)}{nearest(text, names)}"
