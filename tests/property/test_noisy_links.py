"""Exactly-once is "no gap, no overlap": messages that come twice, late or out of order change nothing.

A tile that comes twice is dropped, one that comes too early is refused and asked for again. (Messages that are lost and
followed by silence are a matter of recovery, not tested here.)
"""

from __future__ import annotations

import oracle
from budget import examples
from hypothesis import given
from hypothesis import strategies as st
from programs import Program, programs
from running import STEPS_MAX, Noisy, changed, compare, plain

from dadstorm.plan import Field, Input, Operator, Plan, Replica, Routing


@given(programs(), st.sampled_from(["exactly-once", "at-least-once"]))
@examples(60)
def test_repeated_and_overtaking_messages_change_nothing(program: Program, semantics: str) -> None:
    cluster = Noisy.of(changed(program, semantics=semantics))
    compare(plain(cluster.run(STEPS_MAX)), oracle.expected(program.plan, program.records))


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
    cluster = Noisy.of(program)
    compare(plain(cluster.run(STEPS_MAX)), oracle.expected(plan, program.records))
    progress = [machine.progress for machine in cluster.machines.values()]
    assert sum(one.duplicates for one in progress) > 5
    assert sum(one.gaps for one in progress) > 5
