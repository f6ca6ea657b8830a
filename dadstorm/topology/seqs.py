"""Sources whose records bring their seqs along: which field holds them, and how far apart they are.

Only the order of seqs counts, not how many lie between two of them. But slices take their snapshots at multiples of a
stride, and what a good stride is depends on how many seqs there are to a record. So the compiler looks at the first
records, and the plan says it for everybody. A wrong guess costs speed: too small, and a snapshot comes after a few
records; too large, and a source waits now and then at the end of its window.
"""

from __future__ import annotations

import msgspec

from dadstorm.core.stride import floor_power
from dadstorm.errors import DadstormError
from dadstorm.plan import Operator, Plan
from dadstorm.topology.context import Context, Draft
from dadstorm.topology.document import Node, Text, found
from dadstorm.topology.fields import an, position

LOOKED_AT = 4096
"""Records."""
GAP_MAX = 1 << 44
"""Between timestamps in nanoseconds that are hours apart; strides stay on the line."""


def settle(ctx: Context, draft: Draft, node: Node) -> None:
    """What ``seq`` says, into the draft's parameters."""
    what = f"{draft.what}: seq"
    if not isinstance(node, Text) or node.is_null:
        expected = "expected the field that holds the seqs, such as id"
        ctx.report.mistake(node.place, f"{what}: found {found(node)}; {expected}")
        return
    if draft.fields is None:
        return
    index = position(ctx.report, node, draft.fields, what)
    if index is None:
        return
    field = draft.fields[index]
    if field.type != "int":
        expected = f"expected an int: declare {field.name}:int in fields"
        ctx.report.mistake(node.place, f'{what}: field "{field.name}" is {an(field.type)}; {expected}')
        return
    files = draft.params["paths"]
    if (twice := next((path for i, path in enumerate(files) if path in files[:i]), None)) is not None:
        expected = "expected each file once: seqs ascend over all of them"
        ctx.report.mistake(node.place, f"{what}: {twice} is read twice; {expected}")
        return
    draft.params["seq"] = index
    draft.params["gap"] = gap(draft.operator((), 0, 0)) if files else 1


def gap(source: Operator) -> int:
    """How many seqs there are to a record, about: the median over the first records, a power of two. 1 if there is
    anything wrong with them; the run will tell."""
    import numpy as np  # Few topologies need these.

    from dadstorm.sources import make_reader

    alone = msgspec.structs.replace(source, slices=1, on_error="skip")
    try:
        reader = make_reader(alone, Plan("", (alone,)), 0, run_dir="")
        try:
            seqs = reader.read(LOOKED_AT, 1 << 30).rows.seq
        finally:
            reader.close()
    except DadstormError:
        return 1
    return min(GAP_MAX, floor_power(int(np.median(np.diff(seqs))))) if len(seqs) > 1 else 1
