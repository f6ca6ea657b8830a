"""The generator's fields: what fills each, in the short form (``counter``) and the long (``{int: [0, 9]}``)."""

from __future__ import annotations

from typing import Any

from dadstorm.plan import Field, FieldType
from dadstorm.topology import values
from dadstorm.topology.context import Context
from dadstorm.topology.document import Entry, Items, Mapping, Node, Text, found, is_null
from dadstorm.topology.fields import Fields, constant, declared
from dadstorm.topology.report import Report, listed, nearest
from dadstorm.topology.shapes import GENERATORS, Section

WORDS_DEFAULT, WORDS_MAX = 8, 10_000
VOCABULARY_DEFAULT, VOCABULARY_MAX = 1000, 1_000_000
CHOICES_MAX = 10_000
START_US, STEP_US = 1_577_836_800_000_000, 1000
"""Timestamps start at 2020-01-01 and go on by a millisecond, if nothing is said."""

Made = tuple[FieldType, dict[str, Any]]


def fields(ctx: Context, node: Node, what: str) -> tuple[Fields, list[dict[str, Any]]] | None:
    """``{n: counter, user: {int: [0, 999]}}``: the fields and, for each, how it is made."""
    if not isinstance(node, Mapping) or not node.entries:
        ctx.report.mistake(node.place, f"{what}: found {found(node)}; expected fields such as {{n: counter}}")
        return None
    names = {key: Entry(entry.key, Text(entry.key.place, "")) for key, entry in node.entries.items()}
    right = declared(ctx.report, Mapping(node.place, names), what) is not None
    made = {name: _generator(ctx.report, entry.value, f'{what}: "{name}"') for name, entry in node.entries.items()}
    specs = [(Field(name, one[0]), one[1]) for name, one in made.items() if one is not None]
    if not right or len(specs) < len(made):
        return None
    return tuple(field for field, _ in specs), [spec for _, spec in specs]


def _generator(report: Report, node: Node, what: str) -> Made | None:
    argument: Node | None = None
    kind = node
    if isinstance(node, Mapping) and len(node.entries) == 1:
        (entry,) = node.entries.values()
        kind, argument = entry.key, None if is_null(entry.value) else entry.value
    if not isinstance(kind, Text) or kind.text not in GENERATORS:
        hint = nearest(kind.text, GENERATORS) if isinstance(kind, Text) else ""
        report.mistake(kind.place, f"{what}: found {found(kind)}; expected {listed(GENERATORS)}{hint}")
        return None
    if kind.text in ("counter", "bool"):
        if argument is not None:
            report.mistake(argument.place, f"{what}: {kind.text}: found {found(argument)}; expected nothing")
        return ("int", {"kind": "counter"}) if kind.text == "counter" else ("bool", {"kind": "bool"})
    if kind.text == "int":
        return _whole_range(report, argument, f"{what}: int")
    if kind.text == "float":
        return _range(report, argument, f"{what}: float")
    if kind.text == "choice":
        return _choice(report, kind, argument, f"{what}: choice")
    if kind.text == "words":
        return _words(report, argument, f"{what}: words")
    return _timestamp(report, argument, f"{what}: timestamp")


def _whole_range(report: Report, node: Node | None, what: str) -> Made | None:
    if node is None:
        return "int", {"kind": "int", "low": 0, "high": 999_999}
    if not isinstance(node, Items) or len(node.items) != 2:
        report.mistake(node.place, f"{what}: found {found(node)}; expected the least and the most, such as [0, 999]")
        return None
    low, high = (values.integer(report, item, what, values.INT64_MIN, values.INT64_MAX) for item in node.items)
    if low is None or high is None:
        return None
    if low > high:
        report.mistake(node.place, f"{what}: found [{low}, {high}]; expected the least first")
        return None
    return "int", {"kind": "int", "low": low, "high": high}


def _range(report: Report, node: Node | None, what: str) -> Made | None:
    if node is None:
        return "float", {"kind": "float", "low": 0.0, "high": 1.0}
    if not isinstance(node, Items) or len(node.items) != 2:
        report.mistake(node.place, f"{what}: found {found(node)}; expected the least and the most, such as [0.0, 1.0]")
        return None
    low, high = (values.number(report, item, what, -1e300, 1e300) for item in node.items)
    if low is None or high is None:
        return None
    if low > high:
        report.mistake(node.place, f"{what}: found [{low:g}, {high:g}]; expected the least first")
        return None
    return "float", {"kind": "float", "low": low, "high": high}


def _choice(report: Report, kind: Text, node: Node | None, what: str) -> Made | None:
    """Values of one type: whole numbers, numbers, booleans, or else texts."""
    chosen = [] if not isinstance(node, Items) else [one for one in node.items if isinstance(one, Text)]
    if not isinstance(node, Items) or not 0 < len(node.items) <= CHOICES_MAX or len(chosen) < len(node.items):
        place = kind.place if node is None else node.place
        report.mistake(place, f"{what}: expected a list of one to {CHOICES_MAX} values, such as [red, green]")
        return None
    plain = [values.data(one) for one in chosen]
    if all(type(value) is bool for value in plain):
        return "bool", {"kind": "choice", "values": plain}
    if all(type(value) is int for value in plain):
        return "int", {"kind": "choice", "values": plain}
    if all(type(value) in (int, float) for value in plain):
        return "float", {"kind": "choice", "values": [float(value) for value in plain]}
    return "string", {"kind": "choice", "values": [one.text for one in chosen]}


def _words(report: Report, node: Node | None, what: str) -> Made | None:
    count_node, vocabulary_node = node, None
    if isinstance(node, Mapping):
        section = Section(report, node, what, GENERATORS["words"])
        count_node, vocabulary_node = section.get("count"), section.get("vocabulary")
    count: int | None = WORDS_DEFAULT
    vocabulary: int | None = VOCABULARY_DEFAULT
    if count_node is not None:
        count = values.integer(report, count_node, what, 1, WORDS_MAX)
    if vocabulary_node is not None:
        vocabulary = values.integer(report, vocabulary_node, f"{what}: vocabulary", 1, VOCABULARY_MAX)
    if count is None or vocabulary is None:
        return None
    return "string", {"kind": "words", "count": count, "vocabulary": vocabulary}


def _timestamp(report: Report, node: Node | None, what: str) -> Made | None:
    start: Any = START_US
    step: int | None = STEP_US
    if node is not None:
        if not isinstance(node, Mapping):
            report.mistake(node.place, f"{what}: found {found(node)}; expected {{start: 2020-01-01, step: 1ms}}")
            return None
        section = Section(report, node, what, GENERATORS["timestamp"])
        start_node, step_node = section.get("start"), section.get("step")
        if start_node is not None:
            start = constant(start_node.text, "timestamp") if isinstance(start_node, Text) else None
            if start is None:
                report.mistake(start_node.place, f"{what}: found {found(start_node)}; expected such as 2020-01-01")
        if step_node is not None:
            step_ms = values.duration_ms(report, step_node, f"{what}: step", 1, 3_600_000)
            step = None if step_ms is None else step_ms * 1000
    if start is None or step is None:
        return None
    return "timestamp", {"kind": "timestamp", "start": start, "step": step}
