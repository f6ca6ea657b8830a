"""The sequential oracle: what every sink of a plan must receive, worked out one tuple at a time in plain Python.

It shares no code with the system it judges: no merge, no routing, no slices, no kernels, no columns. An operator reads
all of its inputs' tuples, sorted as Python tuples ``(seq, sub, …)``, and handles them one after the other. From the
plan it takes data only: who reads whom, the parameters, and how many bits each level of an ID has. Slices, replicas,
routing, the window and the semantics do not exist here, which is the point: they must not matter.
"""

from __future__ import annotations

import datetime
import importlib
import math
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa

Fields = tuple[Any, ...]
Tuple = tuple[int, int, Fields]
"""(seq, sub, fields)"""


class _Any:
    """Stands for a dead letter's text: it equals every text, because its wording is not the oracle's business."""

    def __repr__(self) -> str:
        return "any text"


ANY_TEXT = _Any()


class Refusal(Exception):
    """The operator cannot handle a tuple."""


class Failed(Exception):
    """A tuple was refused where ``on_error`` is ``fail``: the run must stop at this ID."""


def expected(plan: Any, records: dict[str, list[tuple[int, Fields]]]) -> dict[str, list[Tuple]]:
    """Per sink its tuples in ID order; ``records`` holds (seq, fields) per source."""
    made: dict[tuple[str, int], list[Tuple]] = {}
    sinks: dict[str, list[Tuple]] = {}
    for operator in plan.operators:
        if operator.kind == "source":
            made[operator.name, 0] = [(seq, 0, fields) for seq, fields in records[operator.name]]
            made[operator.name, 1] = []
            continue
        arrived = _arrived(operator, made)
        if operator.kind == "sink":
            sinks[operator.name] = arrived
            continue
        made[operator.name, 0], made[operator.name, 1] = _run(operator, arrived)
    return sinks


def _arrived(operator: Any, made: dict[tuple[str, int], list[Tuple]]) -> list[Tuple]:
    """All inputs' tuples in the order of seq, then sub, where a sub ends with the number of the input."""
    arrived = []
    for number, link in enumerate(operator.inputs):
        for seq, sub, fields in made[link.operator, link.port]:
            entered = sub * 2**link.align * 2**operator.input_bits + number
            arrived.append((seq, entered, fields))
    arrived.sort(key=lambda one: one[:2])
    _check_ids(arrived, operator.name)
    return arrived


def _run(operator: Any, arrived: list[Tuple]) -> tuple[list[Tuple], list[Tuple]]:
    handle = _HANDLERS[operator.kind](operator)
    room = 2**operator.output_bits
    outputs: list[Tuple] = []
    letters: list[Tuple] = []
    for seq, sub, fields in arrived:
        try:
            several = handle(seq, sub, fields)
        except Refusal as refusal:
            if operator.on_error == "fail":
                raise Failed(f"{operator.name} at ({seq}, {sub})") from refusal
            if operator.on_error == "dead-letter":
                letters.append((seq, sub * room, (ANY_TEXT, ANY_TEXT, ANY_TEXT)))
            continue
        outputs += [(seq, sub * room + ordinal, one) for ordinal, one in enumerate(several)]
    _check_ids(outputs, operator.name)
    return outputs, letters


def _check_ids(tuples: list[Tuple], name: str) -> None:
    """What the plan promises: IDs are unique and in order, and a sub fits an int64."""
    for one, other in pairwise(tuples):
        assert one[:2] < other[:2], f"{name}: IDs {one[:2]} and {other[:2]}"
    assert all(0 <= sub < 2**63 for _, sub, _ in tuples), f"{name}: a sub does not fit"


Handler = Callable[[int, int, Fields], Iterable[Fields]]


def _filter(operator: Any) -> Handler:
    conditions = operator.params["conditions"]
    return lambda seq, sub, fields: [fields] if all(_holds(c, fields[c["field"]]) for c in conditions) else []


def _holds(condition: dict[str, Any], value: Any) -> bool:
    if value is None:
        return False
    op, other = condition["op"], condition["value"]
    if isinstance(value, datetime.datetime):
        value = (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    tests: dict[str, Callable[[], bool]] = {
        "=": lambda: value == other,
        "!=": lambda: value != other,
        "<": lambda: value < other,
        "<=": lambda: value <= other,
        ">": lambda: value > other,
        ">=": lambda: value >= other,
        "in": lambda: any(value == one for one in other),
        # FILTER's ``$`` is the end of the text; Python's also matches before a line feed there.
        "matches": lambda: re.search(other.replace("$", r"\Z"), value) is not None,
    }
    return bool(tests[op]())


def _uniq(operator: Any) -> Handler:
    seen: set[Any] = set()

    def handle(seq: int, sub: int, fields: Fields) -> list[Fields]:
        key = _key(fields, operator.params["fields"])
        if key in seen:
            return []
        seen.add(key)
        return [fields]

    return handle


def _count(operator: Any) -> Handler:
    by = operator.params["by"]
    counts: dict[Any, int] = {}

    def handle(seq: int, sub: int, fields: Fields) -> list[Fields]:
        key = _key(fields, by)
        counts[key] = counts.get(key, 0) + 1
        return [(*(fields[index] for index in by), counts[key])]

    return handle


def _dup(operator: Any) -> Handler:
    return lambda seq, sub, fields: [fields]


def _split(operator: Any) -> Handler:
    index, separator = operator.params["field"], operator.params["separator"]

    def handle(seq: int, sub: int, fields: Fields) -> list[Fields]:
        text = fields[index]
        words = [] if text is None else [word for word in text.split(separator) if word]
        if len(words) > 2**operator.output_bits:
            raise Refusal("too many words")
        return [(*fields[:index], word, *fields[index + 1 :]) for word in words]

    return handle


def _custom(operator: Any) -> Handler:
    params = operator.params
    module, _, name = params["function"].partition(".")
    found = getattr(importlib.import_module(module), name)
    if params["mode"] == "keyed":
        return _keyed(operator, found(**params["args"]).process)
    if params["mode"] == "batch":
        return lambda seq, sub, fields: _one_row_batch(found, fields)

    def handle(seq: int, sub: int, fields: Fields) -> list[Fields]:
        identity = {"id": _ID(seq, sub)} if params["with_id"] else {}
        return _called(operator, lambda: found(*fields, **identity, **params["args"]))

    return handle


def _keyed(operator: Any, process: Callable[..., Any]) -> Handler:
    states: dict[Any, Any] = {}

    def handle(seq: int, sub: int, fields: Fields) -> list[Fields]:
        key = _key(fields, operator.params["key"])
        state = _State(states.get(key, _State.NONE))
        outputs = _called(operator, lambda: process(state, *fields))
        states[key] = state.value
        return outputs

    return handle


class _ID:
    def __init__(self, seq: int, sub: int) -> None:
        self.seq, self.sub = seq, sub


class _State:
    """The state of one key during one call; the values are those of JSON, never changed in place by our functions."""

    NONE = object()

    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, default: Any = None) -> Any:
        return default if self.value is self.NONE else self.value

    def set(self, value: Any) -> None:
        self.value = value

    def delete(self) -> None:
        self.value = self.NONE


def _called(operator: Any, call: Callable[[], Any]) -> list[Fields]:
    """A user's call: its outputs as a list, a Refusal if it raises or gives too many."""
    try:
        result = call()
        outputs = [] if result is None else [result] if isinstance(result, tuple) else list(result)
    except Exception as error:
        raise Refusal(str(error)) from error
    if len(outputs) > 2**operator.output_bits:
        raise Refusal("too many outputs")
    return outputs


def _one_row_batch(function: Callable[..., Any], fields: Fields) -> list[Fields]:
    columns = [pa.array([value]) for value in fields]
    batch, _ = function(pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(fields))]))
    return list(zip(*[column.to_pylist() for column in batch.columns], strict=True))


def _key(fields: Fields, positions: Iterable[int]) -> Any:
    """Values under which equal keys are equal: one NaN, no -0.0, and True is not 1 (types never mix in a field)."""
    key = []
    for position in positions:
        value = fields[position]
        if isinstance(value, float):
            value = "NaN" if math.isnan(value) else value + 0.0
        key.append(value)
    return tuple(key)


_HANDLERS: dict[str, Callable[[Any], Handler]] = {
    "filter": _filter,
    "uniq": _uniq,
    "count": _count,
    "dup": _dup,
    "split": _split,
    "custom": _custom,
}
