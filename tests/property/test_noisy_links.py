"""Exactly-once is "no gap, no overlap": messages that come twice, late or out of order change nothing.

A tile that comes twice is dropped, one that comes too early is refused and asked for again. (Messages
that are lost are a matter of recovery: see tests/simulation.)
"""

from __future__ import annotations

import oracle
from budget import examples
from hypothesis import given
from hypothesis import strategies as st
from programs import Program, programs
from running import EVENTS_MAX, Noise, build, changed, compare, plain

from dadstorm.plan import Field, Input, Operator, Plan, Replica, Routing
from dadstorm.simulator.cluster import Cluster


@given(programs(), st.sampled_from(["exactly-once", "at-least-once"]))
@examples(60)
def test_repeated_and_overtaking_messages_change_nothing(program: Program, semantics: str) -> None:
    cluster = build(changed(program, semantics=semantics), Cluster, Noise(program.seed))
    compare(plain(cluster.run(EVENTS_MAX)), oracle.expected(program.plan, program.records))


def test_the_noise_is_there() -> None:
    """The test above is worth something only if duplicates and gaps do occur."""
    here = (Replica("localhost"),)
    fields = (Field("n", "int"),)
    plan = Plan(
        "noise",
        (
            Operator("s", "source", {}, (), fields, 2, here, Routing()),
            Operator("d", "dup", {}, (Input("s"),), fields, 3, here * 2, Routing("random")),
            Operator("out", "sink", {}, (Input("d"),), fields, 1, here, Routing()),
        ),
    )
    program = Program(plan, {"s": [(seq, (seq,)) for seq in range(60)]}, seed=1, batch_max=2)
    cluster = build(program, Cluster, Noise(program.seed))
    compare(plain(cluster.run(EVENTS_MAX)), oracle.expected(plan, program.records))
    progress = [process.machine.progress for process in cluster.processes.values()]
    assert sum(one.duplicates for one in progress) > 5
    assert sum(one.gaps for one in progress) > 5
