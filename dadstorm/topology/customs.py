"""CUSTOM: the user's function is loaded here, once, so that what is wrong with it is found before anything starts.

What the topology says goes before what the function's decorator says.
"""

from __future__ import annotations

from typing import Any, cast

from dadstorm import custom as library
from dadstorm.errors import UserError
from dadstorm.topology.computed import Computed
from dadstorm.topology.context import Context
from dadstorm.topology.document import Items, Mapping, Text, found
from dadstorm.topology.fields import Fields, declared, positions
from dadstorm.topology.report import Place
from dadstorm.topology.shapes import Section
from dadstorm.topology.values import boolean, choice, data, text

MODES = ("row", "batch", "keyed", "list")


def custom(ctx: Context, section: Section, fields: Fields | None, outputs: int | None, what: str) -> Computed | None:
    """Load the function and settle its mode, fields, key and arguments."""
    node = section.get("custom")
    assert node is not None
    reference = text(ctx.report, node, f"{what}: custom", "module.function or module.Class")
    own_fields = _fields(ctx, section, what)
    with_id_node, mode_node = section.get("with_id"), section.get("mode")
    with_id = None if with_id_node is None else boolean(ctx.report, with_id_node, f"{what}: with_id")
    mode = None if mode_node is None else choice(ctx.report, mode_node, f"{what}: mode", MODES)
    args = _args(ctx, section, what)
    if reference is None:
        return None
    try:
        loaded = library.load(reference, [ctx.base, *ctx.libs])
    except UserError as error:
        for mistake in error.mistakes:
            ctx.report.mistake(node.place, f"{what}: {mistake}")
        return None
    said = library.declaration(loaded)
    mode = mode or said.mode
    with_id = bool(said.with_id) if with_id is None else with_id
    made = own_fields if section.get("fields") else said.fields
    key = _key(ctx, section, fields, mode, said.key, what)
    if section.get("fields") is None and not made:
        ctx.report.mistake(
            node.place, f"{what}: its output fields are not declared; expected fields: here or in a decorator"
        )
    if fields is not None:
        # A function that takes the list of fields is called as a row function of one argument.
        called, inputs = ("row", 1) if mode == "list" else (mode, len(fields))
        misfits = library.misfits(loaded, cast(library.Mode, called), inputs, with_id, args or {})
        for misfit in misfits:
            ctx.report.mistake(node.place, f"{what}: {misfit}")
    if not made or args is None or key is None:
        return None
    if mode == "list" and any(field.type != "string" for field in made):
        place = (section.get("fields") or node).place
        ctx.report.mistake(place, f"{what}: fields: a function in mode list makes texts; expected string fields only")
    params = {"function": reference, "mode": mode, "key": list(key), "with_id": with_id, "args": args}
    return Computed(params, made, key if mode == "keyed" else None, outputs or said.max_outputs)


def _fields(ctx: Context, section: Section, what: str) -> Fields | None:
    node = section.get("fields")
    wanted = None if node is None else declared(ctx.report, node, f"{what}: fields")
    return None if wanted is None else tuple(one.field for one in wanted)


def _args(ctx: Context, section: Section, what: str) -> dict[str, Any] | None:
    node = section.get("args")
    if node is None:
        return {}
    if isinstance(node, Mapping) and all(name.isidentifier() for name in node.entries):
        return cast(dict[str, Any], data(node))
    ctx.report.mistake(node.place, f"{what}: args: found {found(node)}; expected the function's keyword arguments")
    return None


def _key(
    ctx: Context, section: Section, fields: Fields | None, mode: str, said: tuple[str | int, ...] | None, what: str
) -> tuple[int, ...] | None:
    """The key's positions: () without state, None after a mistake or where the input's fields are not known."""
    node = section.get("key")
    if mode != "keyed":
        if node is not None:
            ctx.report.mistake(section.key_place("key"), f"{what}: key: only a keyed operator (a class) has one")
            return None
        return ()
    custom_node = section.get("custom")
    assert custom_node is not None
    if node is not None:
        return positions(ctx.report, node, fields, f"{what}: key")
    if not said:
        ctx.report.mistake(custom_node.place, f"{what}: its key is not declared; expected key: here or in a decorator")
        return None
    return positions(ctx.report, _written(custom_node.place, said), fields, f"{what}: the decorator's key")


def _written(place: Place, said: tuple[str | int, ...]) -> Items:
    """A decorator's key as if the topology had it."""
    return Items(place, tuple(Text(place, str(one), isinstance(one, int)) for one in said))
