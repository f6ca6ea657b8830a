"""The graph of who reads whom: every input exists, there is no cycle, and producers come before consumers.

The order is the file's wherever the graph leaves a choice, so that the plan is a pure function of the file.
"""

from __future__ import annotations

from dadstorm.topology.context import Context, Draft
from dadstorm.topology.report import nearest


def ordered(ctx: Context, drafts: list[Draft]) -> list[Draft]:
    """The drafts, producers first. What reads something wrong is ``severed`` from it, after a mistake."""
    by_name = {draft.name: draft for draft in drafts}
    for draft in drafts:
        _check_inputs(ctx, draft, by_name)
    done: dict[str, Draft] = {}
    waiting = list(drafts)
    while waiting:
        ready = next((d for d in waiting if all(r.operator in done for r in d.readings)), None)
        if ready is None:
            _break_cycle(ctx, waiting, by_name)
        else:
            done[ready.name] = ready
            waiting.remove(ready)
    return list(done.values())


def _check_inputs(ctx: Context, draft: Draft, by_name: dict[str, Draft]) -> None:
    readable = [name for name, other in by_name.items() if other.kind != "sink" and other is not draft]
    right = []
    for reading in draft.readings:
        name = reading.operator
        if name == draft.name:
            ctx.report.mistake(reading.place, f"{draft.what} reads itself; expected another operator or a source")
        elif name in readable:
            right.append(reading)
        elif name in by_name:
            ctx.report.mistake(reading.place, f'{draft.what}: input "{name}" is a sink, which nobody can read')
        elif any(other.kind == "source" for other in by_name.values()):
            hint = nearest(name, readable) or f"; there are {', '.join(readable) or 'none'}"
            ctx.report.mistake(reading.place, f'{draft.what}: no source or operator "{name}"{hint}')
    draft.severed = (not draft.readings and draft.kind != "source") or len(right) < len(draft.readings)
    draft.readings = right


def _break_cycle(ctx: Context, waiting: list[Draft], by_name: dict[str, Draft]) -> None:
    """Report one cycle among drafts that all wait for each other, and open it, so that the search can go on."""
    names = {draft.name for draft in waiting}
    path = [waiting[0].name]
    while len(set(path)) == len(path):
        path.append(next(r.operator for r in by_name[path[-1]].readings if r.operator in names))
    cycle = path[path.index(path[-1]) : -1]
    # The walk went upstream; the reader wants it downstream, from the operator that stands first in the file.
    cycle.reverse()
    first = min(cycle, key=lambda name: by_name[name].place)
    start = cycle.index(first)
    cycle = cycle[start:] + cycle[:start]
    opened = by_name[first]
    reading = next(r for r in opened.readings if r.operator == cycle[-1])
    shown = " -> ".join([*cycle, first])
    ctx.report.mistake(reading.place, f"a cycle: {shown}; expected inputs that lead back to sources only")
    opened.readings.remove(reading)
    opened.severed = True
