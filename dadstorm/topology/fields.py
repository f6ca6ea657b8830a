"""Fields: how they are declared, and how they are referred to, by name or by number from 1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, cast, get_args

from dadstorm.plan import Field, FieldType
from dadstorm.topology.document import Items, Mapping, Node, Text, found, is_null
from dadstorm.topology.report import Place, Report, listed, nearest
from dadstorm.topology.values import parse_int, words

FIELDS_MAX = 1000
"""More columns than this belong into fewer, wider fields; every tile carries them all."""

TYPES: tuple[str, ...] = get_args(FieldType)

Fields = tuple[Field, ...]

_NAME = re.compile(r"[^\W\d][\w.-]*\Z")


class Declared(NamedTuple):
    """A field as the user declares it; without a type it is a string, or what a Parquet file says."""

    place: Place
    name: str
    type: FieldType | None

    @property
    def field(self) -> Field:
        return Field(self.name, self.type or "string")


def declared(report: Report, node: Node, what: str) -> list[Declared] | None:
    """``{id: int, user: string}``, ``[id:int, user]``, a single ``line``, or how many texts; None after a mistake."""
    count = parse_int(node.text) if isinstance(node, Text) and node.plain else None
    if count is not None and 1 <= count <= FIELDS_MAX:
        return [Declared(node.place, name, None) for name in numbered(count)]
    pairs = _pairs(report, node, what)
    fields: list[Declared] = []
    seen: set[str] = set()
    right = bool(pairs)
    for name, kind in pairs:
        if not _NAME.match(name.text):
            report.mistake(name.place, f"{what}: found {found(name)}; expected a field's name: letters, digits, _")
            right = False
        elif name.text in seen:
            report.mistake(name.place, f'{what}: duplicate field "{name.text}"')
            right = False
        elif kind is not None and kind.text not in TYPES:
            hint = nearest(kind.text, TYPES)
            report.mistake(kind.place, f"{what}: found {found(kind)}; expected a type: {listed(TYPES)}{hint}")
            right = False
        else:
            fields.append(Declared(name.place, name.text, cast(FieldType, kind.text) if kind else None))
        seen.add(name.text)
    if len(fields) > FIELDS_MAX:
        report.mistake(node.place, f"{what}: found {len(fields)} fields; expected at most {FIELDS_MAX}")
        right = False
    return fields if right else None


def numbered(count: int) -> list[str]:
    """The names of fields that have none: f1, f2, f3 …"""
    return [f"f{number}" for number in range(1, count + 1)]


def _pairs(report: Report, node: Node, what: str) -> list[tuple[Text, Text | None]]:
    """Names and types, whichever way they are written; [] after a mistake."""
    if isinstance(node, Items):
        pairs = [_pairs(report, item, what) for item in node.items]
        if not pairs:
            report.mistake(node.place, f"{what}: found an empty list; expected at least one field")
        return [pair for some in pairs for pair in some] if all(pairs) else []
    if isinstance(node, Mapping):
        result: list[tuple[Text, Text | None]] = []
        for entry in node.entries.values():
            if not isinstance(entry.value, Text):
                report.mistake(
                    entry.value.place, f"{what}: found {found(entry.value)}; expected a type: {listed(TYPES)}"
                )
                return []
            result.append((entry.key, None if entry.value.is_null else entry.value))
        if not result:
            report.mistake(node.place, f"{what}: found an empty mapping; expected at least one field")
        return result
    if is_null(node):
        report.mistake(node.place, f"{what}: found nothing; expected fields such as [id:int, user]")
        return []
    name, colon, kind = node.text.partition(":")
    offset = len(name) + 1 + len(kind) - len(kind.lstrip())
    kind_place = node.place._replace(column=node.place.column + offset)
    return [(Text(node.place, name.strip()), Text(kind_place, kind.strip()) if colon else None)]


def position(report: Report, node: Text, fields: Sequence[Field], what: str) -> int | None:
    """Where among the fields the named or numbered one is, counted from 0."""
    number = parse_int(node.text) if node.plain else None
    names = [field.name for field in fields]
    if number is not None:
        if 1 <= number <= len(fields):
            return number - 1
        count = f"{len(fields)} field{'s' if len(fields) != 1 else ''} ({', '.join(names)})"
        report.mistake(node.place, f"{what}: no field {number}; the tuples have {count}, counted from 1")
        return None
    if node.text in names:
        return names.index(node.text)
    hint = nearest(node.text, names)
    report.mistake(node.place, f"{what}: no field {found(node)}; the tuples have {', '.join(names)}{hint}")
    return None


def positions(report: Report, node: Node, fields: Sequence[Field] | None, what: str) -> tuple[int, ...] | None:
    """Where the fields of a key are: one or a list of them, each once."""
    references = words(report, node, what)
    if references is None or fields is None:
        return None
    places = [position(report, reference, fields, what) for reference in references]
    if None in places:
        return None
    for index, reference in enumerate(references):
        if places[index] in places[:index]:
            report.mistake(reference.place, f"{what}: field {found(reference)} is named twice")
            return None
    return tuple(place for place in places if place is not None)


def constant(text: str, kind: FieldType) -> str | int | float | bool | None:
    """A value of a field's type from its text, by the rules for data; None if it is none.

    A timestamp becomes microseconds since 1970."""
    if kind == "string":
        return text
    import pyarrow as pa  # Both take long to load, and few topologies have constants that are no texts.

    from dadstorm.sources.fields import convert

    column, wrong = convert(pa.array([text]), kind)
    if len(wrong) or column.null_count:
        return None
    value: int | float | bool = (column.cast(pa.int64()) if kind == "timestamp" else column)[0].as_py()
    return value


EXAMPLES: dict[str, str] = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "timestamp": "a time such as 2024-05-01T12:30:00",
}
"""What to expect where a value of each type should stand."""


def an(kind: str) -> str:
    """A type with its article."""
    return f"an {kind}" if kind == "int" else f"a {kind}"


def show(fields: Sequence[Field]) -> str:
    """Fields as the language writes them: ``id:int, user``; many without a name of their own in short."""
    if len(fields) > 4 and list(fields) == [Field(name) for name in numbered(len(fields))]:
        return f"f1 … f{len(fields)}"
    return ", ".join(field.name if field.type == "string" else f"{field.name}:{field.type}" for field in fields)
