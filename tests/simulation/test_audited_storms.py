"""The audit in whole clusters: storms leave the digests of a calm, and a kernel that is not deterministic is caught."""

from __future__ import annotations

import random
import re

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dadstorm.core.audit import NotReproduced
from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.ledger import Total
from dadstorm.core.messages import Peer
from dadstorm.core.rows import Rows
from dadstorm.operators import make_kernel
from dadstorm.plan import Input, Operator, Plan, Replica, Routing
from dadstorm.simulator.cluster import Cluster, Died, NoFaults, Process
from dadstorm.simulator.faults import Storm
from dadstorm.simulator.scenario import AUDITED, Scenario
from dadstorm.simulator.topologies import TEXT

SEEDS = [seed for seed in range(0, 40 * AUDITED, AUDITED) if Scenario(seed).plan.audit]


def recorded(scenario: Scenario, plan: Plan, storm: Storm | None, schedule: int) -> dict[str, dict[int, Total]]:
    cluster = Cluster(plan, scenario.records, lambda one: make_kernel(one, plan), schedule, faults=storm)
    cluster.run()
    return {operator.name: cluster.ledger.epochs(operator.name) for operator in plan.operators}


def alone(operator: Operator) -> Operator:
    return msgspec.structs.replace(operator, slices=1, replicas=(Replica("localhost"),))


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_digests_do_not_depend_on_storms_slices_replicas_or_schedules(seed: int) -> None:
    scenario = Scenario(seed)
    small = msgspec.structs.replace(scenario.plan, operators=tuple(alone(one) for one in scenario.plan.operators))
    storm = recorded(scenario, scenario.plan, scenario.storm, seed)
    assert storm == recorded(scenario, small, None, seed + 1)
    assert any(storm.values())


class Drifting(Stateless):
    """A function whose output tells in which of its lives it is: as if it looked at its process ID."""

    def __init__(self, lives: list[object]) -> None:
        lives.append(self)
        self._life = len(lives)

    def process(self, rows: Rows) -> Output:
        texts = pa.array([f"{text} in life {self._life}" for text in rows.data.column(0).to_pylist()])
        return Output(pa.RecordBatch.from_arrays([texts], schema=rows.data.schema))


class OneCrash(NoFaults):
    """The operator's only replica dies when it has emitted something, and comes back."""

    pause_ms = 20.0
    read_max = 1
    tick_ms = 50.0

    def begin(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def look(self, process: Process) -> None:
        if process.peer == Peer(1, 0) and process.machine.incarnation == 0 and process.machine.progress.rows_out > 3:
            self._cluster.kill(process.peer, "crash")
            raise Died


def lonely(name: str, kind: str, *inputs: str) -> Operator:
    links = tuple(Input(one) for one in inputs)
    return Operator(name, kind, {}, links, TEXT, 1, (Replica("localhost"),), Routing())


@pytest.mark.parametrize("seed", range(8))
def test_an_operator_that_is_not_deterministic_is_caught_at_its_first_recovery(seed: int) -> None:
    chance = random.Random(seed)
    plan = Plan(
        "test",
        (lonely("texts", "source"), lonely("mine", "custom", "texts"), lonely("out", "sink", "mine")),
        audit=True,
        span=4,
        # The sink has long committed what comes again, and still knows it.
        snapshot_every_ms=chance.choice((20, 60, 1000)),
        window_rows=64,
    )
    seq = np.arange(30, dtype=np.int64)
    data = pa.RecordBatch.from_arrays([pa.array([f"t{n}" for n in seq])], schema=plan.operators[0].schema)
    records = {"texts": Rows(seq, np.zeros_like(seq), data)}
    lives: list[object] = []
    cluster = Cluster(plan, records, lambda _: Drifting(lives), seed, faults=OneCrash())
    with pytest.raises(NotReproduced, match=r"operator mine did not reproduce") as caught:
        cluster.run()
    place = re.search(r"epoch (\d+), tuple \((\d+), 0\)", str(caught.value))
    assert place is not None
    epoch, first = map(int, place.groups())
    assert epoch == first // 4
    assert f"first: <'t{first} in life 1'>\n  again: <'t{first} in life 2'>" in str(caught.value)
