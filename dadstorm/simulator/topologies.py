"""Small random topologies with their records, for scenarios.

One or two sources of short texts, one to three operators over them (DUP, FILTER, SPLIT, UNIQ, COUNT), each reading one
or two of the streams before it, and a sink for every stream that nobody reads. Slices, replicas, routing, window and
snapshot interval are drawn too. All of it stays small: what matters here is the number of different histories.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dadstorm.core.line import bits_for
from dadstorm.core.rows import Rows
from dadstorm.plan import Durable, Field, Input, Operator, Plan, Policy, Replica, Routing, Semantics

TEXT = (Field("text"),)
COUNTED = (Field("text"), Field("count", "int"))
WORDS = ("a", "b", "c", "d", "a b", "b c", "c a")
SPLIT_BITS = 1
"""No text has more than two words."""
SEMANTICS: tuple[Semantics, ...] = ("exactly-once",) * 6 + ("at-least-once", "at-most-once")
STATEFUL = ("uniq", "count")


def draw_plan(chance: random.Random, suspect_after_ms: int) -> Plan:
    """A small topology, with everything about it that a plan settles, drawn from a seed."""
    semantics = chance.choice(SEMANTICS)
    operators = [*_sources(chance)]
    for index in range(chance.choice((1, 1, 2, 2, 3))):
        operators.append(_operator(chance, f"o{index}", operators))
    operators += list(_sinks(chance, operators))  # All at once: they are not to read each other.
    return Plan(
        "scenario",
        tuple(operators),
        semantics=semantics,
        window_rows=chance.choice((2, 4, 8, 16, 64)),
        window_bytes=chance.choice((20 << 20, 20 << 20, 400, 100)),
        snapshot_every_ms=chance.choice((20, 60, 200)),
        suspect_after_ms=suspect_after_ms,
        backups=chance.choice((0, 0, 1, 2)),
        seed=chance.randrange(4),
        recovery=chance.choice(("respawn", "respawn", "spread")),
        durable=Durable("") if semantics != "at-most-once" and chance.random() < 0.25 else None,
    )


def alike(plan: Plan) -> Plan:
    """The plan with the same slices and replicas everywhere, so that there is much to chain."""
    first = plan.operators[0]
    same = [
        operator
        if operator.kind == "sink"
        else msgspec.structs.replace(operator, slices=first.slices, replicas=first.replicas)
        for operator in plan.operators
    ]
    return msgspec.structs.replace(plan, operators=tuple(same), durable=None)


def draw_records(chance: random.Random, plan: Plan) -> dict[str, Rows]:
    """Records for every source, with growing seqs that leave some out."""
    records = {}
    for operator in plan.operators:
        if operator.kind == "source":
            seq = np.cumsum([chance.choice((1, 1, 2, 5)) for _ in range(chance.randrange(6, 24))]) - 1
            texts = pa.array([chance.choice(WORDS) for _ in seq], pa.string())
            data = pa.RecordBatch.from_arrays([texts], schema=operator.schema)
            records[operator.name] = Rows(seq.astype(np.int64), np.zeros(len(seq), np.int64), data)
    return records


def _sources(chance: random.Random) -> Iterator[Operator]:
    for index in range(chance.choice((1, 1, 2))):
        yield _made(chance, f"s{index}", "source", {}, (), TEXT, [])


def _operator(chance: random.Random, name: str, before: list[Operator]) -> Operator:
    first = chance.choice(before)
    inputs = [first]
    same = [other for other in before if other.fields == first.fields and other != first]
    if same and chance.random() < 0.5:
        inputs.append(chance.choice(same))
    kind = chance.choice(("dup", "filter", "split", "uniq", "count", "count"))
    params: dict[str, dict[str, Any]] = {
        "filter": {"conditions": [{"field": 0, "op": "!=", "value": "a"}]},
        "split": {"field": 0, "separator": None},
        "uniq": {"fields": [0]},
        "count": {"by": [0]},
    }
    fields = COUNTED if kind == "count" else first.fields
    return _made(chance, name, kind, params.get(kind, {}), inputs, fields, before)


def _sinks(chance: random.Random, before: list[Operator]) -> Iterator[Operator]:
    read = {link.operator for operator in before for link in operator.inputs}
    for operator in before:
        if operator.name not in read:
            yield _made(chance, f"out-{operator.name}", "sink", {}, [operator], operator.fields, before)


def _made(
    chance: random.Random,
    name: str,
    kind: str,
    params: dict[str, Any],
    inputs: list[Operator] | tuple[()],
    fields: tuple[Field, ...],
    before: list[Operator],
) -> Operator:
    """An operator with its place: the widths of IDs by the rules that ``core.line`` states."""
    policies: tuple[Policy, ...] = ("primary", "random", "hashing")
    policy = "hashing" if kind in STATEFUL else chance.choice(policies)
    widths = [_width(operator, before) for operator in inputs]
    links = tuple(
        Input(operator.name, align=max(widths) - width) for operator, width in zip(inputs, widths, strict=True)
    )
    return Operator(
        name,
        kind,
        params,
        links,
        fields,
        1 if kind == "sink" else chance.choice((1, 1, 2, 3, 4)),
        (Replica("localhost"),) * chance.choice((1, 1, 2) if kind == "sink" else (1, 2, 2, 3)),
        Routing(policy, (0,) if policy == "hashing" else ()),
        input_bits=bits_for(len(links)),
        output_bits=SPLIT_BITS if kind == "split" else 0,
    )


def _width(operator: Operator, before: list[Operator]) -> int:
    """How wide the subs of an operator's output are."""
    named = {other.name: other for other in before}
    entered = max((link.align + _width(named[link.operator], before) for link in operator.inputs), default=0)
    return entered + operator.input_bits + operator.output_bits
