"""The property that everything else serves: what comes out depends on the plan and the data alone.

Random topologies run through the core in one process, under random schedules, and every sink must get what the
sequential oracle says: the same tuples with the same IDs in the same order. A run that gets stuck fails too.
"""

from __future__ import annotations

import pytest
from budget import examples
from hypothesis import given
from hypothesis import strategies as st
from programs import Program, programs
from running import EVENTS_MAX, Traced, build, changed, check, run, spread

from dadstorm.plan import Field, Input, Operator, Plan, Replica, Routing


@given(programs())
@examples(280)
def test_every_sink_gets_what_the_oracle_says(program: Program) -> None:
    check(program)


@given(programs(plain=True), st.data())
@examples(60)
def test_slices_replicas_routing_window_semantics_batches_and_schedule_change_nothing(
    program: Program, data: st.DataObject
) -> None:
    alone = run(changed(program, seed=0, batch_max=1 << 30, window_rows=1 << 18, semantics="exactly-once"))
    for _ in range(3):
        slices, replicas = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
        policy = data.draw(st.sampled_from(["primary", "random", "hashing"]))
        other = changed(
            program,
            operators=spread(program.plan, slices, replicas, policy).operators,
            seed=data.draw(st.integers(0, 2**32)),
            batch_max=data.draw(st.sampled_from([1, 2, 7, 1 << 30])),
            window_rows=data.draw(st.sampled_from([1, 2, 5, 1 << 18])),
            semantics=data.draw(st.sampled_from(["exactly-once", "at-least-once", "at-most-once"])),
        )
        assert repr(run(other)) == repr(alone)


@given(programs())
@examples(40)
def test_one_seed_is_one_schedule_to_the_last_message(program: Program) -> None:
    first, second = build(program, Traced), build(program, Traced)
    first.run(EVENTS_MAX)
    second.run(EVENTS_MAX)
    assert first.steps == second.steps
    assert first.trace == second.trace


@given(programs(), st.integers(0, 2**32))
@examples(40)
def test_another_schedule_gives_the_same_output(program: Program, seed: int) -> None:
    assert repr(run(changed(program, seed=seed))) == repr(run(program))


@pytest.mark.parametrize("pattern", ["b$", "^$", "^b$"])
def test_a_line_feed_at_the_end_of_a_text_is_part_of_it(pattern: str) -> None:
    """Where the oracle's regular expressions could differ from FILTER's: the system and the oracle must agree."""
    texts = ["b", "b\n", "", "\n", "\nb", None]
    condition = {"field": 0, "op": "matches", "value": pattern}
    here, fields = (Replica("localhost"),), (Field("text"),)
    plan = Plan(
        "line feeds",
        (
            Operator("s", "source", {}, (), fields, 1, here, Routing()),
            Operator("f", "filter", {"conditions": [condition]}, (Input("s"),), fields, 1, here, Routing()),
            Operator("out", "sink", {}, (Input("f"),), fields, 1, here, Routing()),
        ),
    )
    check(Program(plan, {"s": [(seq, (text,)) for seq, text in enumerate(texts)]}, seed=0, batch_max=2))
