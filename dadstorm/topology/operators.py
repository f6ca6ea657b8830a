"""Operators: first who reads whom, then, producers first, what each does and how its input is spread over slices.

State decides over routing: an operator whose state has a key is hashed by that key, one whose state
cannot be split lives in one slice. What the user wrote counts where there is no state to respect.
"""

from __future__ import annotations

import re

from dadstorm.plan import Policy, Routing
from dadstorm.topology.context import Context, Draft, Reading
from dadstorm.topology.document import Items, Node, Text, found
from dadstorm.topology.fields import Fields, positions, show
from dadstorm.topology.kinds import COMPILE
from dadstorm.topology.placement import replicas, slices
from dadstorm.topology.report import nearest
from dadstorm.topology.shapes import OPERATORS, Section, kind_of
from dadstorm.topology.sources import on_error
from dadstorm.topology.values import words

_HASHING = re.compile(r"hashing\s*\(([^()]*)\)\Z")
_EXPECTED = "expected primary, random or hashing(FIELD)"


def declare(ctx: Context, name: Text, node: Node) -> Draft:
    """An operator with its inputs by name; what it does waits until the inputs' fields are known (``settle``)."""
    draft = Draft(name.text, "operator", name.place)
    kind = kind_of(ctx.report, name, node, draft.what, OPERATORS)
    if kind is None:
        # Who reads it is checked all the same, and so is what it reads.
        entries = getattr(node, "entries", {})
        if "input" in entries:
            draft.readings = _readings(ctx, entries["input"].value, draft.what)
        return draft
    draft.kind, draft.section = kind
    draft.readings = inputs(ctx, name, draft.section, draft.what)
    return draft


def inputs(ctx: Context, name: Text, section: Section, what: str) -> list[Reading]:
    node = section.get("input")
    if node is None and not section.missing("input"):
        return []
    if node is None:
        ctx.report.mistake(name.place, f"{what}: input is missing; expected the source or operator that it reads")
        return []
    return _readings(ctx, node, what)


def _readings(ctx: Context, node: Node, what: str) -> list[Reading]:
    readings: list[Reading] = []
    for one in words(ctx.report, node, f"{what}: input") or ():
        if one.text in [reading.operator for reading in readings]:
            ctx.report.mistake(one.place, f"{what}: input {found(one)} is named twice; expected each once")
        else:
            readings.append(Reading(one.text, one.place))
    return readings


def joint_fields(ctx: Context, draft: Draft, producers: dict[str, Draft]) -> Fields | None:
    """The fields of what the inputs bring: all alike in number and types; None if any is not known."""
    known = [(reading, producers[reading.operator].fields) for reading in draft.readings]
    agreed: Fields | None = None
    right = bool(known) and not draft.severed
    for reading, own in known:
        if own is None:
            right = False
        elif agreed is None:
            agreed = own
        elif [field.type for field in own] != [field.type for field in agreed]:
            first = f"but those of {known[0][0].operator} ({show(agreed)}); expected the same number and types"
            ctx.report.mistake(reading.place, f"{draft.what}: {reading.operator} has the fields ({show(own)}), {first}")
            right = False
    return agreed if right else None


def settle(ctx: Context, draft: Draft, fields: Fields | None) -> None:
    """Work out everything about an operator whose input fields are now known (or known to be unknown)."""
    section = draft.section
    if section is None:
        return
    report, what = ctx.report, draft.what
    computed = COMPILE[draft.kind](ctx, section, fields, what)
    draft.on_error = on_error(section, what)
    draft.replicas = replicas(ctx, section, what)
    draft.slices, fixed = slices(report, section, what, len(draft.replicas))
    asked = _routing(ctx, section, fields, what)
    if computed is None:
        return
    draft.params, draft.fields, draft.outputs_max = computed.params, computed.fields, computed.outputs_max
    if computed.state == ():
        if fixed and draft.slices > 1:
            report.warn(section.key_place("slices"), f"{what} has one state for the whole stream, so it has one slice")
        draft.slices = 1
        _decide(ctx, draft, asked, Routing("primary"), "one state for the whole stream, in one slice")
    elif computed.state is not None:
        _decide(ctx, draft, asked, Routing("hashing", computed.state), "state, and its key decides")
    else:
        draft.routing = asked or Routing("random" if draft.slices > 1 else "primary")
        if draft.routing.policy == "primary" and draft.slices > 1:
            place = section.key_place("routing")
            report.warn(place, f"{what}: with routing primary the first of its {draft.slices} slices gets every tuple")
    if computed.state != () and draft.slices < len(draft.replicas):
        spare = len(draft.replicas) - draft.slices
        message = f"{spare} of {len(draft.replicas)} replicas have no slice and stand by"
        report.warn(section.key_place("slices"), f"{what}: {message}")


def _decide(ctx: Context, draft: Draft, asked: Routing | None, effective: Routing, why: str) -> None:
    draft.routing = effective
    if asked is not None and asked != effective:
        section = draft.section
        assert section is not None
        ctx.report.warn(section.key_place("routing"), f"{draft.what}: routing is not followed: it has {why}")


def _routing(ctx: Context, section: Section, fields: Fields | None, what: str) -> Routing | None:
    """What the user wrote; None if nothing, or nothing right."""
    node = section.get("routing")
    if node is None:
        return None
    text = node.text.strip() if isinstance(node, Text) else ""
    plain: dict[str, Policy] = {"primary": "primary", "random": "random"}
    if text in plain:
        return Routing(plain[text])
    hashing = _HASHING.match(text)
    if not hashing:
        name = text.partition("(")[0]
        hint = "" if name == "hashing" else nearest(name, ("primary", "random", "hashing"))
        ctx.report.mistake(node.place, f"{what}: routing: found {found(node)}; {_EXPECTED}{hint}")
        return None
    keys = Items(node.place, tuple(Text(node.place, key.strip()) for key in hashing[1].split(",")))
    place = positions(ctx.report, keys, fields, f"{what}: routing")
    return None if place is None else Routing("hashing", place)
