"""Lanes: all slices that an operator has at one replica, run as one slice.

Slices are there to be parted: each has its own state, so each can go on somewhere else. Each also has its own share of
every tile, its own batch in every step and its own place in the next merge, and together they compute what one slice
with all their tuples would. So where nothing ever parts the slices of a replica (``recovery: respawn`` brings back all
of them in one process), there is one slice to a replica. No output tells: how many slices there are never changes it.

Sources and sinks keep theirs, which are parts of their input or files, and so does who is chained to a source. So do
CUSTOM operators: a user's class has an instance for each slice.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from dadstorm.plan import Plan

BUILT_IN = ("filter", "dup", "split", "count", "uniq")
"""Operators that are ours alone, so that nobody sees how many slices they run in."""


def in_lanes(plan: Plan, kept: Collection[str] = ()) -> Plan:
    """The plan with as many slices to an operator as it has replicas, where there would be more; ``kept``: the names of
    those that keep theirs."""
    parted = {one.name for one in plan.operators if one.kind in BUILT_IN and one.slices > len(one.replicas)}
    if plan.recovery != "respawn" or parted <= set(kept):
        return plan
    operators = [
        msgspec.structs.replace(operator, slices=len(operator.replicas))
        if operator.name in parted and operator.name not in kept
        else operator
        for operator in plan.operators
    ]
    return msgspec.structs.replace(plan, operators=tuple(operators))
