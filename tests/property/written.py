"""Random topologies as a user would write them: a YAML file, compiled by ``dadstorm.topology``.

Here the compiler chooses bits, alignment, effective routing, sinks for what nobody reads and for dead letters; the
oracle then runs the plan that came out. The file is written as JSON, which is YAML too.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from programs import HERE, Shape, shapes
from tuples import field_types, records

Topology = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A topology file's content, the records of its sources, and one way to run it."""

    topology: Topology
    records: dict[str, list[tuple[int, tuple[Any, ...]]]]
    libs: tuple[str, ...]
    seed: int
    batch_max: int


@dataclass(frozen=True)
class Readable:
    """Something that operators can read, with its fields as the language names them."""

    name: str
    fields: tuple[tuple[str, str], ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(kind for _, kind in self.fields)


@st.composite
def written(draw: st.DrawFn, operators_max: int = 5, records_max: int = 8) -> Written:
    common = draw(field_types())
    data, sources, operators = {}, {}, {}
    readable: list[Readable] = []
    for index in range(draw(st.integers(1, 3))):
        name = f"s{index}"
        types = draw(st.one_of(st.just(common), field_types()))
        data[name] = draw(records(types, records_max))
        readable.append(Readable(name, _named(name, types)))
        fields = [f"{field}:{kind}" for field, kind in readable[-1].fields]
        sources[name] = {"csv": "records.csv", "fields": fields, **draw(_spread())}
    for index in range(draw(st.integers(1, operators_max))):
        name = f"o{index}"
        inputs = _inputs(draw, readable)
        shape = draw(shapes(inputs[0].types, 3))
        said, made = _operator(draw, name, shape, inputs[0].fields)
        said["input"] = [one.name for one in inputs] if len(inputs) > 1 else inputs[0].name
        operators[name] = said | draw(_spread()) | draw(_routing(inputs[0]))
        readable.append(Readable(name, made))
    topology: Topology = {
        "sources": sources,
        "operators": operators,
        "semantics": draw(st.sampled_from(["exactly-once", "at-least-once", "at-most-once"])),
        "window": draw(st.sampled_from([2, 3, 100, {"rows": 2, "bytes": "4KiB"}])),
        "span": 1 << draw(st.integers(0, 16)),
        "seed": draw(st.integers(0, 5)),
    }
    batch_max = draw(st.sampled_from([1, 3, 1 << 30]))
    return Written(topology, data, (HERE,), draw(st.integers(0, 2**32)), batch_max)


def _named(name: str, types: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{name}_{index}", kind) for index, kind in enumerate(types))


def _inputs(draw: st.DrawFn, readable: list[Readable]) -> list[Readable]:
    first = draw(st.one_of(st.just(readable[-1]), st.sampled_from(readable)))
    others = [one for one in readable if one is not first and one.types == first.types]
    more = draw(st.lists(st.sampled_from(others), max_size=2, unique=True)) if others else []
    return [first, *more]


@st.composite
def _spread(draw: st.DrawFn) -> Topology:
    """Replicas and slices, each said or left out."""
    said = {"replicas": draw(st.integers(1, 4)), "slices": draw(st.integers(1, 5))}
    return {key: said[key] for key in draw(st.sets(st.sampled_from(sorted(said))))}


@st.composite
def _routing(draw: st.DrawFn, read: Readable) -> Topology:
    field = draw(st.sampled_from(read.fields))[0]
    policy = draw(st.sampled_from([None, "primary", "random", f"hashing({field})", "hashing(1)"]))
    return {} if policy is None else {"routing": policy}


def _operator(
    draw: st.DrawFn, name: str, shape: Shape, fields: tuple[tuple[str, str], ...]
) -> tuple[Topology, tuple[tuple[str, str], ...]]:
    """The operator as the language says it, and the fields that it will have."""

    def reference(index: int) -> Any:
        """A field by its name, or by its number from 1."""
        return draw(st.sampled_from([fields[index][0], index + 1]))

    params = shape.params
    made = fields
    said: Topology
    if shape.kind == "filter":
        said = {"filter": [_condition(reference(c["field"]), fields[c["field"]][1], c) for c in params["conditions"]]}
    elif shape.kind == "uniq":
        said = {"uniq": [reference(index) for index in params["fields"]]}
    elif shape.kind == "count":
        by = params["by"]
        said = {"count": {"by": [reference(index) for index in by], "as": f"{name}_n"} if by else None}
        made = (*[fields[index] for index in by], (f"{name}_n" if by else "count", "int"))
    elif shape.kind == "dup":
        said = {"dup": None}
    elif shape.kind == "split":
        said = {"split": {"field": reference(params["field"])}}
        if params["separator"] is not None:
            said["split"]["separator"] = params["separator"]
    else:
        made = _named(name, shape.types)
        said = {"custom": params["function"], "fields": [f"{field}:{kind}" for field, kind in made]}
        said |= {key: params[key] for key in ("with_id", "args") if params[key]}
        if params["mode"] == "keyed":
            said["key"] = [reference(index) for index in params["key"]]
        elif params["mode"] == "batch":
            said["mode"] = "batch"
    if shape.outputs_max > 1 and draw(st.booleans()):
        said["max_outputs"] = shape.outputs_max
    elif shape.kind in ("split", "custom") and shape.outputs_max == 1:
        said["max_outputs"] = 1
    if shape.may_fail:
        said["on_error"] = draw(st.sampled_from(["dead-letter", "skip"]))
    return said, made


def _condition(field: Any, kind: str, condition: Topology) -> Topology:
    value = condition["value"]
    if condition["op"] == "in":
        value = [_constant(kind, one) for one in value]
    elif condition["op"] != "matches":
        value = _constant(kind, value)
    return {"field": field, "op": condition["op"], "value": value}


def _constant(kind: str, value: Any) -> Any:
    """A constant as a user writes it."""
    if kind == "timestamp":
        return (datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)).isoformat()
    return repr(value) if kind == "float" else value
