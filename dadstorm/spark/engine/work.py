"""What one partition of a stage makes of its tuples: the operators' kernels over the rows of a step.

No files, no Spark: tiles in, parcels out. The order of the rows, their IDs and where they go are what the native engine
makes of them, by the same functions: inputs are merged by ID, kernels process, ``identify`` gives IDs, routers route.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from dadstorm.core.audit import Digest, Tally, hash_rows
from dadstorm.core.kernel import Kernel, identify
from dadstorm.core.merge import merge
from dadstorm.core.ports import DEAD_LETTERS, MAIN
from dadstorm.core.routing import Router
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator, Plan
from dadstorm.spark.engine.parcels import Kind, Parcel, tiles, to_driver
from dadstorm.spark.engine.stages import Stages

CALL_ROWS = 1 << 17
"""Rows that a kernel gets at once."""

Arrived = Mapping[tuple[int, int, int], list[Rows]]
"""What was sent to this partition: per operator, slice and input, its tiles."""
Read = Mapping[int, tuple[Rows, Rows]]
"""What was read in this partition: per source, its rows and dead letters."""
KernelOf = Callable[[int, int], Kernel]
"""The kernel of an operator's slice, as it is where the step begins. Those without state all have slice 0."""


class Work:
    def __init__(self, plan: Plan, stages: Stages, stage: int, kernel_of: KernelOf) -> None:
        self._plan = plan
        self._stages = stages
        self._stage = stage
        self._kernel_of = kernel_of
        self._here: dict[int, list[tuple[int, Rows]]] = defaultdict(list)
        """What operators of this stage have made for others of it: per consumer, input and rows."""
        self._routers: dict[int, Router] = {}

    def run(self, arrived: Arrived, read: Read) -> Iterator[Parcel]:
        """All operators of the stage, producers first."""
        for index in self._stages.operators(self._stage):
            operator = self._plan.operators[index]
            if operator.kind == "source":
                if index in read:
                    yield from self._made(index, operator, [read[index]])
                continue
            sent: dict[int, list[tuple[int, Rows]]] = defaultdict(list)
            for (consumer, slice_index, input_index), parts in arrived.items():
                if consumer == index:
                    sent[slice_index if operator.has_state else 0] += [(input_index, rows) for rows in parts]
            if index in self._here:
                sent[0] += self._here.pop(index)
            for slice_index in sorted(sent):
                rows = merged(self._plan, operator, sent[slice_index])
                yield from self._made(index, operator, self._calls(index, operator, slice_index, rows))

    def _calls(self, index: int, operator: Operator, slice_index: int, rows: Rows) -> Iterator[tuple[Rows, Rows]]:
        kernel = self._kernel_of(index, slice_index)
        for start in range(0, len(rows), CALL_ROWS):
            part = rows.slice(start, start + CALL_ROWS)
            yield identify(part, kernel.process(part), operator.packing)

    def _made(self, index: int, operator: Operator, calls: Iterable[tuple[Rows, Rows]]) -> Iterator[Parcel]:
        """Send what an operator has made to its consumers."""
        parts = list(calls)
        ports = [[call[port] for call in parts if len(call[port])] for port in (MAIN, DEAD_LETTERS)]
        whole = [Rows.concat(part) if part else None for part in ports]
        if self._plan.audit:
            yield from digests(self._plan, self._stages, index, whole)
        for consumer, input_index in self._plan.consumers(operator.name):
            rows = whole[consumer.inputs[input_index].port]
            if rows is None:
                continue
            target = self._plan.index(consumer.name)
            stage = self._stages.of[target]
            if stage == self._stage:
                self._here[target].append((input_index, rows))
            elif stage == self._stages.count:
                yield from tiles(0, stage, target, input_index, 0, rows)
            else:
                yield from self._routed(target, consumer, input_index, rows)

    def _routed(self, target: int, consumer: Operator, input_index: int, rows: Rows) -> Iterator[Parcel]:
        router = self._routers.get(target)
        if router is None:
            routing = consumer.routing
            router = Router(routing.policy, routing.key, consumer.slices, self._plan.seed)
            self._routers[target] = router
        grouped, offsets = router.partition(rows)
        stage = self._stages.of[target]
        for slice_index in range(consumer.slices):
            group = grouped.slice(int(offsets[slice_index]), int(offsets[slice_index + 1]))
            if len(group):
                part = part_of(self._stages, self._stage, stage, target, slice_index)
                yield from tiles(part, stage, target, input_index, slice_index, group)


def part_of(stages: Stages, now: int, stage: int, operator: int, slice_index: int) -> int:
    """The partition of the next stage to which something goes that is for a slice in ``stage``."""
    if stage == now + 1 and stage < stages.count:
        return stages.partition(operator, slice_index)
    # It is only passed on there.
    return slice_index % stages.partitions[now + 1] if now + 1 < stages.count else 0


def merged(plan: Plan, operator: Operator, parts: Iterable[tuple[int, Rows]]) -> Rows:
    """Tiles of an operator's inputs as the operator sees them: entered, in ID order."""
    packing = operator.packing
    names = plan.input_schema(operator).names
    runs = [Rows(rows.seq, packing.enter(rows.sub, input_index), _named(rows, names)) for input_index, rows in parts]
    return merge(runs, plan.entered_bits(operator))


def _named(rows: Rows, names: list[str]) -> pa.RecordBatch:
    """Inputs agree in their types, not always in their names: those of the first count."""
    return rows.data if rows.data.schema.names == names else rows.data.rename_columns(names)


def digests(plan: Plan, stages: Stages, index: int, ports: Iterable[Rows | None]) -> Iterator[Parcel]:
    """The digests of what an operator has made, by epoch, for the driver to add up."""
    for port, rows in enumerate(ports):
        if rows is not None:
            found = sums(plan.span, rows, port)
            told = [(one.epoch, one.rows, one.digest) for one in found]
            yield to_driver(stages.count, Kind.DIGESTS, index, port, told)


def sums(span: int, rows: Rows, port: int) -> list[Digest]:
    """The digests of rows in ID order, by epoch."""
    tally, closed = Tally(Digest(0, 0, 0, 0)).add(span, rows.seq, hash_rows(rows, port))
    return [one for one in (*closed, tally.open) if one.rows]
