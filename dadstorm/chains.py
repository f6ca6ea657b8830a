"""Chains: operators that follow each other with no routing in between run as one, in the same slices.

A tuple that goes from one operator to the next is encoded, sent, merged and decoded, and wakes a process. Where what
becomes of it does not depend on where that happens, all of this can be left out. Two neighbours are chained if the
second is the only one who reads the first and reads nobody else, both have the same replicas, and the tuples are in
the right slice already:

- what becomes of a tuple in an operator without state depends on the tuple alone, so any slice will do;
- tuples can be routed by the key of an operator with state before they come to a FILTER or a DUP, which leave the key
  as it is; and with a single slice there is nothing to route.

A chain has one state at most, and a source none but its own, so snapshots are what they were. CUSTOM operators are left
alone: a user's code gets a process of its own, and the time that it takes runs beside everything else. So are operators
with dead letters. IDs are the same as ever, and so is the output.

Only who watches single operators could tell: under an audit, with full logging, a script or a console, and where state
is kept on disk by operator, nothing is chained, nor run in lanes (see ``lanes``). Who attaches to a run finds chains;
commands take their members' names for them.
"""

from __future__ import annotations

import msgspec

from dadstorm.core.ports import MAIN
from dadstorm.lanes import BUILT_IN, in_lanes
from dadstorm.plan import Input, Operator, Plan

KEEP_KEYS = ("filter", "dup")
"""Operators whose outputs have the fields of their parents, as they are."""
JOINT = "+"
"""Between the names of members. No operator's name has it."""
NAME_MAX = 150
"""A chain's name is that of its replicas' files."""


def chained(plan: Plan) -> Plan:
    """The plan with its chains as operators, in lanes."""
    if not plan.chain or plan.audit or plan.logging == "full" or plan.durable is not None or plan.script:
        return plan
    # A source keeps its slices, so whoever is chained to it does.
    kept = {one.name for chain in _chains(plan) if chain[0].kind == "source" for one in chain}
    plan = in_lanes(plan, kept)
    chains = _chains(plan)
    if len(chains) == len(plan.operators):
        return plan
    names = {one.name: JOINT.join(member.name for member in chain) for chain in chains for one in chain}
    return msgspec.structs.replace(plan, operators=tuple(_joined(chain, names) for chain in chains))


def _chains(plan: Plan) -> list[list[Operator]]:
    """The operators of a plan, each with those that it is chained to."""
    chains: list[list[Operator]] = []
    at: dict[str, list[Operator]] = {}
    for operator in plan.operators:
        chain = at.get(operator.inputs[0].operator) if _follows(plan, operator) else None
        if chain is not None and _fits(chain, operator):
            chain.append(operator)
        else:
            chain = [operator]
            chains.append(chain)
        at[operator.name] = chain
    return chains


def _follows(plan: Plan, operator: Operator) -> bool:
    """Whether an operator reads one other that nobody else reads, and both could be members."""
    if operator.kind not in BUILT_IN or len(operator.inputs) != 1 or operator.inputs[0].port != MAIN:
        return False
    before = plan[operator.inputs[0].operator]
    return (
        before.kind in (*BUILT_IN, "source")
        and len(plan.consumers(before.name)) == 1
        and "dead-letter" not in (before.on_error, operator.on_error)
        and before.slices == operator.slices
        and before.replicas == operator.replicas
        and all(replica.address is None for replica in operator.replicas)
    )


def _fits(chain: list[Operator], operator: Operator) -> bool:
    """Whether a chain's slices have the tuples that an operator's would, and its name has room."""
    if sum(len(one.name) + len(JOINT) for one in chain) + len(operator.name) > NAME_MAX:
        return False
    if not operator.has_state:
        return True
    if chain[0].kind == "source" or any(one.has_state for one in chain):
        return False
    return operator.slices == 1 or all(one.kind in KEEP_KEYS for one in chain)


def _joined(chain: list[Operator], names: dict[str, str]) -> Operator:
    """The operator that a chain is."""
    head, last = chain[0], chain[-1]
    inputs = tuple(msgspec.structs.replace(link, operator=names[link.operator]) for link in head.inputs)
    head = msgspec.structs.replace(head, inputs=inputs)
    if len(chain) == 1:
        return head
    state = next((one for one in chain if one.has_state), head)
    return msgspec.structs.replace(
        head,
        name=names[head.name],
        kind="source" if head.kind == "source" else "chain",
        fields=last.fields,
        routing=state.routing if head.slices > 1 else head.routing,
        output_bits=head.output_bits + sum(_width(one.inputs[0], one) for one in chain[1:]),
        members=(head, *chain[1:]),
    )


def _width(link: Input, operator: Operator) -> int:
    """The bits that an operator adds to subs."""
    return link.align + operator.input_bits + operator.output_bits
