"""FILTER's conditions: ``field op value``, as text or as a mapping, checked and converted to the field's type.

In text a value may stand in single or double quotes (the same quote twice inside stands for itself; a backslash
is just a backslash, so regular expressions need no doubling). ``in`` takes values separated by commas, in brackets
or not.
"""

from __future__ import annotations

import re
from typing import Any

from dadstorm.plan import Field
from dadstorm.topology.document import Items, Mapping, Node, Text, found
from dadstorm.topology.fields import EXAMPLES, Fields, an, constant, position
from dadstorm.topology.report import Report, listed, nearest
from dadstorm.topology.shapes import LONG_FORMS, Section
from dadstorm.topology.values import choice

OPS = ("=", "!=", "<", "<=", ">", ">=", "in", "matches")
_SYNONYMS = {"==": "=", "<>": "!="}
_CONDITION = re.compile(r"\s*([^\s=!<>]+)\s*(==|!=|<>|<=|>=|=|<|>|(?<=\s)\w+(?=[\s(\[\"']))\s*(.*?)\s*\Z", re.DOTALL)
_EXPECTED = 'expected a condition such as  url = "a.b"  or  size >= 10'
_QUOTED = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|([^,"'\s](?:[^,]*[^,\s])?))\s*(?:,|\Z)""", re.DOTALL)


def conditions(report: Report, node: Node, fields: Fields | None, what: str) -> list[dict[str, Any]] | None:
    """All of a filter's conditions; None after a mistake, or where the input's fields are not known."""
    items = node.items if isinstance(node, Items) else (node,)
    if not items:
        report.mistake(node.place, f"{what}: found an empty list; {_EXPECTED}")
    compiled = [_condition(report, item, fields, what) for item in items]
    return [one for one in compiled if one is not None] if all(compiled) and compiled else None


def _condition(report: Report, node: Node, fields: Fields | None, what: str) -> dict[str, Any] | None:
    parts = _from_mapping(report, node, what) if isinstance(node, Mapping) else _from_text(report, node, what)
    if parts is None or fields is None:
        return None
    field, op, values = parts
    loose = isinstance(node, Mapping) and "compare" in node.entries
    index = position(report, field, fields, what)
    if index is None:
        return None
    if loose:
        return _loose(report, op, values[0], index, fields[index], what)
    value = _value(report, op, values, fields[index], what)
    return None if value is None else {"field": index, "op": op.text, "value": value}


def _loose(report: Report, op: Text, value: Text, index: int, field: Field, what: str) -> dict[str, Any] | None:
    """A condition that compares as numbers if both are numbers, else as text."""
    if field.type not in ("string", "int"):
        expected = f'field "{field.name}" is {an(field.type)}; expected a string or an int'
        report.mistake(op.place, f"{what}: compare: loose takes texts for what they look like, but {expected}")
        return None
    if op.text in ("in", "matches"):
        report.mistake(op.place, f"{what}: compare: loose goes with =, !=, <, <=, > and >=, not with {op.text}")
        return None
    return {"field": index, "op": op.text, "value": value.text, "compare": "loose"}


def _from_text(report: Report, node: Node, what: str) -> tuple[Text, Text, list[Text]] | None:
    match = _CONDITION.match(node.text) if isinstance(node, Text) else None
    if not match:
        report.mistake(node.place, f"{what}: found {found(node)}; {_EXPECTED}")
        return None
    op = Text(node.place, _SYNONYMS.get(match[2].lower(), match[2].lower()))
    if op.text not in OPS:
        report.mistake(node.place, f'{what}: unknown comparison "{op.text}"; {_ops(op.text)}')
        return None
    rest = match[3]
    if op.text == "in" and rest[:1] + rest[-1:] in ("[]", "()"):
        rest = rest[1:-1]
    values = _split(rest, several=op.text == "in")
    if not values:
        report.mistake(node.place, f"{what}: found {found(node)}; {_EXPECTED}: the value is missing or badly quoted")
        return None
    return Text(node.place, match[1]), op, [Text(node.place, value) for value in values]


def _split(text: str, several: bool) -> list[str] | None:
    """The value, or the values between commas; None if the quotes do not match."""
    if not several and text[:1] not in ('"', "'"):
        return [text] if text else None
    values, start = [], 0
    while start < len(text):
        match = _QUOTED.match(text, start)
        if not match:
            return None
        double, single, bare = match.groups()
        if double is not None:
            values.append(double.replace('""', '"'))
        else:
            values.append(single.replace("''", "'") if single is not None else bare)
        start = match.end()
    return values if several or len(values) == 1 else None


def _from_mapping(report: Report, node: Mapping, what: str) -> tuple[Text, Text, list[Text]] | None:
    section = Section(report, node, what, LONG_FORMS["filter"])
    field, op, value, compare = (section.get(key) for key in LONG_FORMS["filter"])
    if compare is not None and choice(report, compare, f"{what}: compare", ("loose",)) is None:
        return None
    if field is None or op is None or value is None:
        missing = [key for key in ("field", "op", "value") if section.get(key) is None]
        report.mistake(node.place, f"{what}: {listed(missing)} is missing; expected {{field: F, op: '=', value: V}}")
        return None
    if not isinstance(field, Text) or not isinstance(op, Text):
        wrong = op if isinstance(field, Text) else field
        report.mistake(wrong.place, f"{what}: found {found(wrong)}; expected a word")
        return None
    op = Text(op.place, _SYNONYMS.get(op.text.lower(), op.text.lower()))
    if op.text not in OPS:
        report.mistake(op.place, f'{what}: unknown comparison "{op.text}"; {_ops(op.text)}')
        return None
    values = list(value.items) if isinstance(value, Items) and op.text == "in" else [value]
    texts = [one for one in values if isinstance(one, Text)]
    if len(texts) != len(values) or not texts:
        expected = "a value or a list of values" if op.text == "in" else "a value"
        report.mistake(value.place, f"{what}: found {found(value)}; expected {expected}")
        return None
    return field, op, texts


def _ops(word: str) -> str:
    return f"expected {listed(OPS)}{nearest(word, OPS)}"


def _value(report: Report, op: Text, values: list[Text], field: Field, what: str) -> Any:
    """The constant to compare with, in the field's type; None after a mistake."""
    if op.text == "matches":
        return _regex(report, op, values[0], field, what)
    if field.type == "bool" and op.text not in ("=", "!=", "in"):
        report.mistake(op.place, f'{what}: field "{field.name}" is a bool, which has no order; expected =, != or in')
        return None
    constants = []
    for value in values:
        one = constant(value.text, field.type)
        if one is None:
            expected = f'field "{field.name}" is {an(field.type)}; expected {EXAMPLES[field.type]}'
            report.mistake(value.place, f"{what}: found {found(value)}, but {expected}")
            return None
        constants.append(one)
    return constants if op.text == "in" else constants[0]


def _regex(report: Report, op: Text, value: Text, field: Field, what: str) -> str | None:
    if field.type != "string":
        report.mistake(op.place, f'{what}: field "{field.name}" is {an(field.type)}; matches needs a string field')
        return None
    import pyarrow as pa  # Arrow takes long to load, and few topologies have expressions.
    import pyarrow.compute as pc

    try:
        # Arrow's own engine (RE2) runs it later, so Arrow decides what a right expression is.
        pc.match_substring_regex(pa.array([""]), value.text)
    except pa.ArrowInvalid as error:
        report.mistake(value.place, f"{what}: {found(value)} is no regular expression: {error}")
        return None
    return value.text
