"""What each kind of operator makes of its parameters and its input's fields.

Every function returns a ``Computed``, or None after a mistake. Input fields may be unknown (None) because something
upstream is wrong; then only what does not depend on them is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dadstorm.plan import Field
from dadstorm.topology.computed import MAX_OUTPUTS, Computed
from dadstorm.topology.context import Context
from dadstorm.topology.customs import custom
from dadstorm.topology.document import Mapping, Node, Text, found, is_null
from dadstorm.topology.fields import Fields, an, declared, position, positions, show
from dadstorm.topology.filters import conditions
from dadstorm.topology.shapes import LONG_FORMS, Section
from dadstorm.topology.values import integer, text

Compile = Callable[[Context, Section, Fields | None, str], Computed | None]


def _value(section: Section, kind: str) -> Node:
    value = section.get(kind)
    assert value is not None, "a section's kind is one of its keys"
    return value


def _filter(ctx: Context, section: Section, fields: Fields | None, what: str) -> Computed | None:
    compiled = conditions(ctx.report, _value(section, "filter"), fields, f"{what}: filter")
    return None if compiled is None or fields is None else Computed({"conditions": compiled}, fields)


def _uniq(ctx: Context, section: Section, fields: Fields | None, what: str) -> Computed | None:
    value = _value(section, "uniq")
    if is_null(value):
        keys = None if fields is None else tuple(range(len(fields)))
    else:
        keys = positions(ctx.report, value, fields, f"{what}: uniq")
    params: dict[str, Any] = {"fields": list(keys or ())}
    if ctx.ragged:
        params["drop_nulls"] = True
    return None if keys is None or fields is None else Computed(params, fields, keys)


def _count(ctx: Context, section: Section, fields: Fields | None, what: str) -> Computed | None:
    value: Node | None = _value(section, "count")
    name: str | None = "count"
    if isinstance(value, Mapping):
        long = Section(ctx.report, value, f"{what}: count", LONG_FORMS["count"])
        value, as_node = long.get("by"), long.get("as")
        name = _new_name(ctx, as_node, f"{what}: count: as") if as_node is not None else name
    by: tuple[int, ...] | None = ()
    if value is not None and not is_null(value):
        by = positions(ctx.report, value, fields, f"{what}: count")
    if by is None or fields is None or name is None:
        return None
    kept = tuple(fields[index] for index in by)
    if name in [field.name for field in kept]:
        message = f'there is a field "{name}" already; name the new one with count: {{by: ..., as: NAME}}'
        ctx.report.mistake(_value(section, "count").place, f"{what}: count: {message}")
        return None
    counted = (*kept, Field(name, "int"))
    node = section.get("fields")
    made = counted if node is None else _renamed(ctx, node, counted, f"{what}: fields")
    return None if made is None else Computed({"by": list(by)}, made, by)


def _renamed(ctx: Context, node: Node, fields: Fields, what: str) -> Fields | None:
    """The fields under other names, numbers as text if asked for; in a ragged topology there may be more of them."""
    wanted = declared(ctx.report, node, what)
    if wanted is None:
        return None
    right = len(wanted) == len(fields) or (ctx.ragged and len(wanted) > len(fields))
    if not right:
        ctx.report.mistake(node.place, f"{what}: found {len(wanted)} fields; expected {len(fields)}: ({show(fields)})")
    for own, one in zip(fields, wanted, strict=False):
        if one.field.type != own.type and (own.type, one.field.type) != ("int", "string"):
            expected = f"{own.type} or string" if own.type == "int" else own.type
            ctx.report.mistake(one.place, f'{what}: "{one.name}" is {an(one.field.type)}; expected {expected}')
            right = False
    return tuple(one.field for one in wanted) if right else None


def _dup(ctx: Context, section: Section, fields: Fields | None, what: str) -> Computed | None:
    value = _value(section, "dup")
    if not is_null(value):
        ctx.report.mistake(value.place, f"{what}: dup: found {found(value)}; expected nothing")
    return None if fields is None else Computed({}, fields)


def _split(ctx: Context, section: Section, fields: Fields | None, what: str) -> Computed | None:
    value: Node | None = _value(section, "split")
    separator: str | None = None
    new_name: str | None = None
    if isinstance(value, Mapping):
        long = Section(ctx.report, value, f"{what}: split", LONG_FORMS["split"])
        value, separator_node, as_node = (long.get(key) for key in LONG_FORMS["split"])
        if separator_node is not None:
            separator = _separator(ctx, separator_node, f"{what}: split: separator")
        if as_node is not None:
            new_name = _new_name(ctx, as_node, f"{what}: split: as")
    outputs = outputs_max(ctx, section, what)
    if fields is None:
        return None
    index = _split_field(ctx, section, value, fields, f"{what}: split")
    if index is None:
        return None
    changed = list(fields)
    changed[index] = Field(new_name or fields[index].name)
    if len({field.name for field in changed}) < len(changed):
        ctx.report.mistake(section.key_place("split"), f'{what}: split: there is a field "{new_name}" already')
        return None
    return Computed({"field": index, "separator": separator}, tuple(changed), outputs_max=outputs)


def _split_field(ctx: Context, section: Section, value: Node | None, fields: Fields, what: str) -> int | None:
    place = section.key_place("split") if value is None else value.place
    if value is None or is_null(value):
        if len(fields) != 1:
            names = ", ".join(field.name for field in fields)
            ctx.report.mistake(place, f"{what}: found nothing; expected which field to split: {names}")
            return None
        index: int | None = 0
    elif isinstance(value, Text):
        index = position(ctx.report, value, fields, what)
    else:
        ctx.report.mistake(place, f"{what}: found {found(value)}; expected one field")
        return None
    if index is not None and fields[index].type != "string":
        field = fields[index]
        ctx.report.mistake(place, f'{what}: field "{field.name}" is {an(field.type)}; expected a string')
        return None
    return index


def _separator(ctx: Context, node: Node, what: str) -> str | None:
    if isinstance(node, Text) and node.text and not node.is_null:
        return node.text
    ctx.report.mistake(node.place, f'{what}: found {found(node)}; expected a text such as ";" (left out: blanks)')
    return None


def _new_name(ctx: Context, node: Node, what: str) -> str | None:
    name = text(ctx.report, node, what)
    if name is not None and not name.replace("-", "_").isidentifier():
        ctx.report.mistake(node.place, f"{what}: found {found(node)}; expected a field's name: letters, digits, _")
        return None
    return name


def outputs_max(ctx: Context, section: Section, what: str) -> int | None:
    node = section.get("max_outputs")
    return None if node is None else integer(ctx.report, node, f"{what}: max_outputs", 1, MAX_OUTPUTS)


def _custom(ctx: Context, section: Section, fields: Fields | None, what: str) -> Computed | None:
    return custom(ctx, section, fields, outputs_max(ctx, section, what), what)


COMPILE: dict[str, Compile] = {
    "filter": _filter,
    "uniq": _uniq,
    "count": _count,
    "dup": _dup,
    "split": _split,
    "custom": _custom,
}
