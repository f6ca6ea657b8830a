"""A crash at every step: a small diamond with keyed state, in which one process dies after its first action, or after
its second, and so on to the last one that it does in a run without faults; and the same for each process.

An action is whatever a machine gives out: a message, rows for a sink, a file to open. Between any two of them the
process may be gone. What takes its place must finish with the output of a run in which nobody dies.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from breaking import broken
from mutants import state_is_not_restored

from dadstorm.core.line import bits_for
from dadstorm.core.messages import Peer
from dadstorm.core.rows import Rows
from dadstorm.operators import make_kernel
from dadstorm.plan import Field, Input, Operator, Plan, Recovery, Replica, Routing
from dadstorm.simulator import oracle
from dadstorm.simulator.cluster import Cluster, NoFaults
from dadstorm.simulator.disk import Wrong
from dadstorm.simulator.scenario import difference
from dadstorm.simulator.topologies import COUNTED, SPLIT_BITS, TEXT

TEXTS = ["a b", "b", "c a", "a", "b c", "b a"]
"""Few: each of them makes every run longer, and more runs of it."""
RINGS = {"texts": 1, "some": 1, "words": 2, "counts": 2, "out": 1}
PEERS = [(name, replica) for name, replicas in RINGS.items() for replica in range(replicas)]
MANY = 1 << 30


def operator(
    name: str, kind: str, inputs: tuple[Input, ...], fields: tuple[Field, ...] = TEXT, **params: object
) -> Operator:
    replicas = RINGS[name]
    routing = Routing("hashing", (0,)) if replicas > 1 else Routing()
    bits = SPLIT_BITS if kind == "split" else 0
    return Operator(
        name, kind, params, inputs, fields, replicas, (Replica("localhost"),) * replicas, routing,
        input_bits=bits_for(len(inputs)), output_bits=bits,
    )  # fmt: skip


def diamond(recovery: Recovery) -> Plan:
    return Plan(
        "diamond",
        (
            operator("texts", "source", ()),
            operator(
                "some", "filter", (Input("texts"),), conditions=[{"field": 0, "op": "!=", "value": "a"}]
            ),
            operator("words", "split", (Input("texts"),), field=0, separator=None),
            operator("counts", "count", (Input("some", align=SPLIT_BITS), Input("words")), COUNTED, by=[0]),
            operator("out", "sink", (Input("counts"),), COUNTED),
        ),
        window_rows=4,
        snapshot_every_ms=20,
        suspect_after_ms=300,
        recovery=recovery,
    )


def records(plan: Plan) -> dict[str, Rows]:
    seq = np.arange(len(TEXTS), dtype=np.int64)
    data = pa.RecordBatch.from_arrays([pa.array(TEXTS)], schema=plan.operators[0].schema)
    return {"texts": Rows(seq, np.zeros_like(seq), data)}


class OneDeath(NoFaults):
    """A replica dies when it has done so many things."""

    pause_ms = 10.0
    read_max = 1
    tick_ms = 50.0

    def __init__(self, victim: Peer, actions: int) -> None:
        self._victim, self._actions = victim, actions
        self.master_chance = random.Random(0)

    def begin(self, cluster: Cluster) -> None:
        cluster.agenda.at(0.0, lambda: self._doom(cluster))

    def _doom(self, cluster: Cluster) -> None:
        """Nobody has done anything yet: the PuppetMaster has not said who is where."""
        cluster.processes[self._victim].actions_left = self._actions


def ran(plan: Plan, victim: Peer, actions: int) -> Cluster:
    faults = OneDeath(victim, actions)
    cluster = Cluster(plan, records(plan), lambda one: make_kernel(one, plan), seed=1, faults=faults)
    cluster.run(until_ms=60_000)
    return cluster


def steps(plan: Plan, victim: Peer) -> int:
    """How many things a replica does in a run in which nobody dies."""
    left = ran(plan, victim, MANY).processes[victim].actions_left
    assert left is not None
    return MANY - left


def wrong(plan: Plan, victim: Peer, resumed: set[str]) -> Iterator[str]:
    """What is wrong with each run in which the victim dies after another step; ``resumed`` gets the cuts at which what
    takes its place resumes."""
    (expected,) = oracle.expected(plan, records(plan)).values()
    for step in range(steps(plan, victim)):
        try:
            cluster = ran(plan, victim, step)
        except Wrong as error:
            yield f"after {step} actions: {error}"
            continue
        assert any("in the middle of something" in line for line in cluster.history), "nobody died"
        resumed.update(cut for line in cluster.history for cut in re.findall(r"slice \d+ at (\d+)", line))
        problem = difference(cluster.written()["out"], expected)
        if problem:
            yield "\n".join([f"after {step} actions: {problem}", *cluster.history])


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
@pytest.mark.parametrize(("name", "replica"), PEERS)
def test_a_replica_may_die_after_any_of_its_steps(name: str, replica: int, recovery: Recovery) -> None:
    plan = diamond(recovery)
    victim = Peer(plan.index(name), replica)
    assert steps(plan, victim) > 20
    resumed: set[str] = set()
    assert list(wrong(plan, victim, resumed)) == []
    assert recovery == "spread" or len(resumed) >= 3, "at the start, between, at the end"


def test_a_state_that_is_not_restored_shows_at_some_step() -> None:
    """The test above can fail."""
    plan = diamond("respawn")
    with broken(state_is_not_restored.__name__.replace("_", " ")):
        assert any(wrong(plan, Peer(plan.index("counts"), 1), set()))
