"""Random topologies, built as plans directly: any DAG with any slices, replicas, routing, window and schedule.

The bits of the IDs are worked out here by the rules that ``core.line`` states, not by the compiler. What the compiler
would never write is allowed too, as long as the plan means something: an operator may read the same output twice, count
dead letters, or have nobody read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tuples import conditions, field_types, records

from dadstorm.plan import Field, Input, Operator, Plan, Replica, Routing

HERE = str(Path(__file__).parent)
SUB_BITS = 63
LETTER = ("string", "string", "string")


@dataclass(frozen=True)
class Program:
    """A plan, its input, and one way to run it."""

    plan: Plan
    records: dict[str, list[tuple[int, tuple[Any, ...]]]]
    seed: int
    batch_max: int


@dataclass(frozen=True)
class Port:
    """An output that can be read: its field types, and how wide its subs are."""

    operator: str
    port: int
    types: tuple[str, ...]
    width: int


@dataclass(frozen=True)
class Shape:
    """What an operator does, before its place in the graph is known. ``key``: of its state; () is one state for all."""

    kind: str
    params: dict[str, Any]
    types: tuple[str, ...]
    outputs_max: int = 1
    key: tuple[int, ...] | None = None
    may_fail: bool = False


def bits(count: int) -> int:
    """How many binary digits it takes to number so many things from 0."""
    return len(f"{count - 1:b}") if count > 1 else 0


def custom(name: str, mode: str, key: tuple[int, ...] = (), with_id: bool = False, **args: Any) -> dict[str, Any]:
    return {"function": f"functions.{name}", "mode": mode, "key": list(key), "with_id": with_id, "args": args}


@st.composite
def shapes(draw: st.DrawFn, types: tuple[str, ...], room: int) -> Shape:
    """Something that can be done with such fields, with room for so many bits of output ordinals."""
    positions = st.lists(st.integers(0, len(types) - 1), min_size=1, max_size=2, unique=True).map(tuple)
    most = draw(st.sampled_from([4, 8, 1 << 20, 3, 2, 1 << 30, 1])) if room else 1
    most = min(most, 1 << room)
    texts = [index for index, kind in enumerate(types) if kind == "string"]
    choices = ["expand", "row", "keyed", "uniq", "count by", "filter", "expand", "row", "count", "dup"]
    kind = draw(st.sampled_from((["split"] * 2 if texts else []) + choices))
    if kind == "filter":
        return Shape("filter", {"conditions": draw(conditions(types))}, types)
    if kind == "uniq":
        key = draw(positions)
        return Shape("uniq", {"fields": list(key)}, types, key=key)
    if kind == "count":
        return Shape("count", {"by": []}, ("int",), key=())
    if kind == "count by":
        key = draw(positions)
        return Shape("count", {"by": list(key)}, (*[types[i] for i in key], "int"), key=key)
    if kind == "dup":
        return Shape("dup", {}, types)
    if kind == "split":
        separator = draw(st.sampled_from([None, None, ",", ";", "a"]))
        return Shape("split", {"field": draw(st.sampled_from(texts)), "separator": separator}, types, most, None, True)
    if kind == "row":
        name = draw(st.sampled_from(["picky", "where", "some", "mirror"]))
        made = ("int", "int") if name == "where" else types
        return Shape("custom", custom(name, "row", with_id=name == "where"), made, may_fail=name == "picky")
    few = min(most, 5)
    if kind == "keyed":
        key = draw(positions)
        name = draw(st.sampled_from(["Moody", "Echo", "Running"]))
        if name == "Echo":
            return Shape("custom", custom("Echo", "keyed", key, most=few), ("string", "int"), most, key)
        made = ("int", "string") if name == "Running" else ("int",)
        return Shape("custom", custom(name, "keyed", key), made, 1, key, may_fail=name == "Moody")
    name = draw(st.sampled_from(["stutter", "explode", "twice"]))
    if name == "twice" and most >= 2:
        return Shape("custom", custom("twice", "batch"), types, most)
    # One more than there is room for, now and then.
    asked = few + draw(st.sampled_from([0, 0, 1]))
    name = "explode" if name == "explode" else "stutter"
    made = ("string", "int") if name == "explode" else types
    return Shape("custom", custom(name, "row", most=asked), made, most, may_fail=asked > 1 << bits(most))


@st.composite
def programs(draw: st.DrawFn, operators_max: int = 6, records_max: int = 10, plain: bool = False) -> Program:
    """A random topology with its data and a schedule. ``plain``: the same slices, routing and window everywhere, for
    tests that vary those themselves."""
    builder = _Builder(draw, plain)
    common = draw(field_types())
    data = {}
    for index in range(draw(st.integers(1, 3))):
        types = draw(st.one_of(st.just(common), field_types()))
        data[f"s{index}"] = draw(records(types, records_max))
        builder.source(f"s{index}", types)
    for index in range(draw(st.integers(1, operators_max))):
        builder.operator(f"o{index}")
    builder.sinks()
    plan = Plan(
        "random",
        tuple(builder.operators),
        semantics=draw(st.sampled_from(["exactly-once", "at-least-once", "at-most-once"])),
        window_rows=draw(st.sampled_from([1, 2, 3, 10, 1 << 18])),
        window_bytes=draw(st.sampled_from([1, 100, 64 << 20])),
        span=1 << draw(st.integers(0, 16)),
        seed=draw(st.integers(0, 5)),
        base=HERE,
    )
    return Program(plan, data, draw(st.integers(0, 2**32)), draw(st.sampled_from([1, 2, 5, 1 << 30, 1 << 30])))


class _Builder:
    """The operators so far, and the outputs that further ones may read."""

    def __init__(self, draw: st.DrawFn, plain: bool) -> None:
        self._draw = draw
        self._plain = plain
        self._ports: list[Port] = []
        self._read: set[tuple[str, int]] = set()
        self.operators: list[Operator] = []

    def source(self, name: str, types: tuple[str, ...]) -> None:
        self._add(name, Shape("source", {}, types), (), "fail", Routing())

    def operator(self, name: str) -> None:
        draw = self._draw
        inputs, types = self._inputs()
        entered = max(one.width for one in inputs) + bits(len(inputs))
        shape = draw(shapes(types, SUB_BITS - entered))
        # What may fail is told to go on; for the rest it makes no difference what it is told.
        told = ["dead-letter", "dead-letter", "skip"] if shape.may_fail else ["fail", "fail", "skip", "dead-letter"]
        if shape.key is not None:
            routing = Routing("hashing", shape.key) if shape.key else Routing("primary")
        else:
            key = (draw(st.integers(0, len(types) - 1)),)
            routing = draw(st.sampled_from([Routing("primary"), Routing("random"), Routing("hashing", key)]))
        self._add(name, shape, inputs, draw(st.sampled_from(told)), routing)

    def sinks(self) -> None:
        """A sink for almost every output that nobody reads, and perhaps one that joins several."""
        draw = self._draw
        open_ports = [port for port in self._ports if (port.operator, port.port) not in self._read]
        several = draw(st.integers(0, 3)) == 0
        groups = [[port] for port in open_ports if not port.operator.startswith("s") and draw(st.integers(0, 7))]
        if several or not groups:
            groups.append(list(self._inputs()[0]))
        for index, group in enumerate(groups):
            self._add(f"sink{index}", Shape("sink", {}, group[0].types), tuple(group), "fail", Routing())

    def _inputs(self) -> tuple[tuple[Port, ...], tuple[str, ...]]:
        """One to three outputs of equal types; the newest more often, so that graphs grow deep; one may come twice."""
        draw = self._draw
        index = draw(st.one_of(st.integers(0, len(self._ports) - 1), st.just(len(self._ports) - 1)))
        first = self._ports[index]
        fitting = [port for port in self._ports if port.types == first.types and port.width < SUB_BITS - 1]
        if draw(st.integers(0, 3)) < 3:
            fitting = [port for port in fitting if port is not first]
        more = draw(st.lists(st.sampled_from(fitting), max_size=2)) if fitting and first.width < SUB_BITS - 1 else []
        chosen = (first, *more)
        self._read.update((port.operator, port.port) for port in chosen)
        return chosen, first.types

    def _add(self, name: str, shape: Shape, inputs: tuple[Port, ...], on_error: Any, routing: Routing) -> None:
        draw = self._draw
        widest = max((port.width for port in inputs), default=0)
        links = tuple(Input(port.operator, port.port, widest - port.width) for port in inputs)
        slices = replicas = 1
        if not self._plain and shape.kind != "sink":
            slices = 1 if shape.key == () else draw(st.integers(1, 5))
            replicas = draw(st.integers(1, 4))
        operator = Operator(
            name, shape.kind, shape.params, links, _fields(name, shape.types), slices,
            (Replica("localhost"),) * replicas, routing, bits(len(inputs)), bits(shape.outputs_max), on_error,
        )  # fmt: skip
        self.operators.append(operator)
        width = widest + operator.input_bits + operator.output_bits
        if shape.kind != "sink":
            self._ports.append(Port(name, 0, shape.types, width))
        if shape.kind not in ("source", "sink") and on_error == "dead-letter":
            self._letters(name, width)

    def _letters(self, name: str, width: int) -> None:
        """Dead letters go to a sink, at times by way of a count. Their texts are nobody's to compute with."""
        letters = Port(name, 1, LETTER, width)
        if self._draw(st.integers(0, 2)) == 0:
            self._add(f"{name}-letters", Shape("count", {"by": []}, ("int",), key=()), (letters,), "fail", Routing())
        else:
            self._add(f"{name}-dead", Shape("sink", {}, LETTER), (letters,), "fail", Routing())


def _fields(operator: str, types: tuple[str, ...]) -> tuple[Field, ...]:
    """Names that differ from one operator to the next: inputs have to agree in types only."""
    return tuple(Field(f"{operator}_{index}", kind) for index, kind in enumerate(types))  # type: ignore[arg-type]
