"""Which operators of a plan run together: the stages of a step.

Sources are in stage 0. An operator without state runs where its tuples are: in the latest stage of its inputs, and it
does not matter in which partition, for what becomes of a tuple depends on the tuple alone. An operator with state has
its tuples routed to its slices, in the stage after its inputs'. A slice is in one partition; a partition may have
several slices. Sinks are written by the driver, after the last stage.

Everything follows from the plan, the number of partitions wanted and the number of readers per source: whoever has
these, driver or worker, comes to the same layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dadstorm.plan import Operator, Plan


@dataclass(frozen=True, slots=True)
class Stages:
    """The layout of a plan. ``of[i]`` is the stage of operator i; sinks have the number after the last."""

    of: tuple[int, ...]
    readers: tuple[tuple[int, int], ...]
    """The partitions of stage 0: source and slice of it."""
    partitions: tuple[int, ...]
    """How many each stage has."""
    firsts: tuple[int, ...]
    """Per operator: the partition of its slice 0. Operators of one stage do not all begin at the same one."""

    @property
    def count(self) -> int:
        return len(self.partitions)

    def operators(self, stage: int) -> list[int]:
        """The operators of a stage, producers first."""
        return [index for index, one in enumerate(self.of) if one == stage]

    def partition(self, operator: int, slice_index: int) -> int:
        """Where a slice lives, in its operator's stage."""
        return (self.firsts[operator] + slice_index) % self.partitions[self.of[operator]]


def lay_out(plan: Plan, width: int) -> Stages:
    """The stages of a plan; ``width``: how many partitions are of use at a time."""
    last = 0
    of: list[int] = []
    for operator in plan.operators:
        before = max((of[plan.index(link.operator)] for link in operator.inputs), default=0)
        of.append(-1 if operator.kind == "sink" else before + operator.has_state)
        last = max(last, of[-1])
    of = [last + 1 if stage < 0 else stage for stage in of]
    readers = [
        (index, slice_index)
        for index, operator in enumerate(plan.operators)
        if operator.kind == "source"
        for slice_index in range(operator.slices)
    ]
    firsts = [0] * len(of)
    partitions = [len(readers)]
    for stage in range(1, last + 1):
        slices = 0
        for index, operator in enumerate(plan.operators):
            if of[index] == stage and _is_sent_tuples(plan, of, operator, stage):
                firsts[index] = slices
                slices += operator.slices
        partitions.append(max(1, min(width, slices)))
    return Stages(tuple(of), tuple(readers), tuple(partitions), tuple(firsts))


def _is_sent_tuples(plan: Plan, of: Sequence[int], operator: Operator, stage: int) -> bool:
    """Whether some of its inputs come from an earlier stage."""
    return any(of[plan.index(link.operator)] < stage for link in operator.inputs)
