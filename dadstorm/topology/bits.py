"""How many bits of ``sub`` each operator gets: enough for its inputs and for the most outputs of a tuple.

An operator that does not say how many outputs a tuple may have gets a share: 20 bits, or as many as fit, all such
operators alike, when a path has several of them. What an operator adds is counted along the widest path that leads to
it; inputs of smaller width are shifted (``align``) so that all that meet have one width.
"""

from __future__ import annotations

from dadstorm.core.line import SUB_BITS_MAX, bits_for
from dadstorm.plan import Input, Operator
from dadstorm.topology.context import Context, Draft

SHARE_BITS = 20
"""About a million outputs per tuple, if nothing else is said and there is room."""

SHARE_BITS_MIN = 6
"""Fewer than 64 outputs per tuple would surprise; better to ask for a declaration."""


def operators(ctx: Context, drafts: list[Draft]) -> tuple[Operator, ...]:
    """The plan's operators, of drafts in topological order; a mistake if the IDs cannot be that long."""
    for share in range(SHARE_BITS, SHARE_BITS_MIN - 1, -1):
        widths = _widths(drafts, share)
        if max(widths.values(), default=0) <= SUB_BITS_MAX:
            break
    else:
        _explain(ctx, drafts, widths)
        return ()
    undeclared = [draft for draft in drafts if draft.outputs_max is None]
    if share < SHARE_BITS:
        for draft in undeclared:
            limit = f"at most {1 << share} outputs per tuple, so that the IDs fit; declare max_outputs if it needs more"
            ctx.report.warn(draft.place, f"{draft.what} may give {limit}")
    return tuple(_operator(draft, widths, share) for draft in drafts)


def _output_bits(draft: Draft, share: int) -> int:
    return share if draft.outputs_max is None else bits_for(draft.outputs_max)


def _widths(drafts: list[Draft], share: int) -> dict[str, int]:
    """The width of each operator's output IDs."""
    widths: dict[str, int] = {}
    for draft in drafts:
        entered = max((widths[reading.operator] for reading in draft.readings), default=0)
        widths[draft.name] = entered + bits_for(len(draft.readings)) + _output_bits(draft, share)
    return widths


def _operator(draft: Draft, widths: dict[str, int], share: int) -> Operator:
    entered = max((widths[reading.operator] for reading in draft.readings), default=0)
    inputs = tuple(Input(r.operator, r.port, entered - widths[r.operator]) for r in draft.readings)
    return draft.operator(inputs, bits_for(len(inputs)), _output_bits(draft, share))


def _explain(ctx: Context, drafts: list[Draft], widths: dict[str, int]) -> None:
    by_name = {draft.name: draft for draft in drafts}
    widest = next(draft for draft in drafts if widths[draft.name] > SUB_BITS_MAX)
    path = [widest]
    while path[-1].readings:
        producers = [by_name[reading.operator] for reading in path[-1].readings]
        path.append(max(producers, key=lambda draft: widths[draft.name]))
    steps = []
    for draft in reversed(path):
        own = bits_for(len(draft.readings)) + _output_bits(draft, SHARE_BITS_MIN)
        steps.append(f"{draft.name} {own}")
    ctx.report.mistake(
        widest.place,
        f"{widest.what}: the IDs on the path {' -> '.join(steps)} need {widths[widest.name]} bits; expected at most "
        f"{SUB_BITS_MAX}: declare smaller max_outputs, or use fewer operators that expand or merge",
    )
