"""Runs a program in the simulator and compares what its sinks got with the oracle."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

import msgspec
import numpy as np
import oracle
import pyarrow as pa
from programs import Program

from dadstorm.core.kernel import Kernel
from dadstorm.core.messages import Peer
from dadstorm.core.replica import Action
from dadstorm.core.rows import Rows
from dadstorm.operators import make_kernel
from dadstorm.plan import Operator, Plan
from dadstorm.simulator.cluster import Cluster, NoFaults, Process

Got = dict[str, list[tuple[int, int, tuple[Any, ...]]]]

EVENTS_MAX = 300_000
"""Ten times what the longest of these runs takes: one that goes round in circles is found soon, and can be shrunk."""


C = TypeVar("C", bound=Cluster)


def build(program: Program, kind: type[C], faults: NoFaults | None = None) -> C:
    plan = program.plan

    def kernel(operator: Operator) -> Kernel:
        return make_kernel(operator, plan)

    return kind(plan, rows_of(program), kernel, program.seed, program.batch_max, faults)


def run(program: Program) -> Got:
    """What each sink got, as plain tuples."""
    return plain(build(program, Cluster).run(EVENTS_MAX))


def rows_of(program: Program) -> dict[str, Rows]:
    """The records of every source, as columns."""
    found = {}
    for name, records in program.records.items():
        schema = program.plan[name].schema
        columns = [pa.array([fields[i] for _, fields in records], kind.type) for i, kind in enumerate(schema)]
        seq = np.array([seq for seq, _ in records], dtype=np.int64)
        found[name] = Rows(seq, np.zeros_like(seq), pa.RecordBatch.from_arrays(columns, schema=schema))
    return found


def plain(sinks: dict[str, list[Any]]) -> Got:
    return {name: [(seq, sub, tuple(fields)) for seq, sub, *fields in rows] for name, rows in sinks.items()}


def check(program: Program) -> None:
    """Run it, and compare all sinks, IDs included, with what the oracle says."""
    compare(run(program), oracle.expected(program.plan, program.records))


def compare(got: Got, wanted: Got) -> None:
    assert got.keys() == wanted.keys()
    for name in wanted:
        assert shown(got[name], wanted[name]) == shown(wanted[name], wanted[name]), f"sink {name}"


def shown(tuples: list[tuple[int, int, tuple[Any, ...]]], wanted: list[Any]) -> list[Any]:
    """Tuples in a form in which equal means identical: types, signs of zero and NaN included. Where the oracle leaves a
    text open, any text that is not empty will do."""
    result = []
    for (seq, sub, fields), wish in zip_longest(tuples, wanted[: len(tuples)], fillvalue=(0, 0, ())):
        values = []
        for value, wished in zip_longest(fields, wish[2]):
            left_open = wished is oracle.ANY_TEXT and (value is wished or (isinstance(value, str) and value))
            values.append("any text" if left_open else exact(value))
        result.append((seq, sub, values))
    return result


def exact(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value).hex()
    return f"{type(value).__name__} {value!r}"


def changed(program: Program, **settings: Any) -> Program:
    """The same program, run in another way."""
    own = {key: settings.pop(key) for key in ("seed", "batch_max") if key in settings}
    return replace(program, plan=msgspec.structs.replace(program.plan, **settings), **own)


def spread(plan: Plan, slices: int, replicas: int, policy: str) -> Plan:
    """The plan with so many slices and replicas of everything that may have them, and this routing where it is free."""
    operators = []
    for operator in plan.operators:
        if operator.kind != "sink":
            fixed = operator.kind == "count" and not operator.params["by"]
            keyed = operator.kind in ("uniq", "count") or operator.params.get("mode") == "keyed"
            key = (0,) if policy == "hashing" else ()
            routing = operator.routing if keyed else msgspec.structs.replace(operator.routing, policy=policy, key=key)
            operator = msgspec.structs.replace(
                operator, slices=1 if fixed else slices, replicas=operator.replicas[:1] * replicas, routing=routing
            )
        operators.append(operator)
    return msgspec.structs.replace(plan, operators=tuple(operators))


class Traced(Cluster):
    """A cluster that writes down everything that any machine asks for, in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.trace: list[tuple[Any, ...]] = []
        super().__init__(*args, **kwargs)

    def _do(self, process: Process, actions: Iterable[Action]) -> None:
        actions = list(actions)
        for action in actions:
            rows = getattr(action, "rows", None)
            body = () if rows is None else (rows.seq.tolist(), rows.sub.tolist(), repr(rows.data.to_pylist()))
            what = getattr(action, "message", None) or (type(action).__name__, getattr(action, "hi", None))
            table = getattr(action, "table", None)
            state = None if table is None else repr(table.to_pylist())
            self.trace.append((self.agenda.now_ms, process.peer, getattr(action, "to", None), what, body, state))
        super()._do(process, actions)


class Noise(NoFaults):
    """Links that repeat messages and let them overtake each other; none is lost."""

    in_order = False

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def delays_ms(self, sender: Peer, to: Peer) -> tuple[float, ...]:
        """A third of the messages comes twice, each copy up to some turns late."""
        return tuple(self._chance.random() * 5 for _ in range(1 + (self._chance.random() < 0.3)))
