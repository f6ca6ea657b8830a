"""The Spark engine's steps against the oracle, without Spark: whatever the topology, the number of readers, partitions
and slices and the places where the line is cut, every sink gets what the oracle says.

Between two steps every kernel is made anew from the deltas of those before, as after a crash."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import oracle
from budget import examples
from hypothesis import given
from hypothesis import strategies as st
from programs import Program, programs
from running import compare, plain, rows_of

from dadstorm.core.kernel import NO_LETTERS, Kernel
from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.operators import make_kernel
from dadstorm.spark.engine.drive import spread
from dadstorm.spark.engine.parcels import Parcel
from dadstorm.spark.engine.stages import lay_out
from dadstorm.spark.engine.work import Work, merged, part_of


class Steps:
    """Does what Spark does with the stages of a step."""

    def __init__(self, program: Program, readers: int, width: int) -> None:
        self.plan = spread(program.plan, readers)
        self.stages = lay_out(self.plan, width)
        self._records = rows_of(program)
        self._readers = readers
        self._deltas: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._used: dict[tuple[int, int], Kernel] = {}

    def _kernel(self, operator: int, slice_index: int) -> Kernel:
        place = operator, slice_index
        if place not in self._used:
            self._used[place] = make_kernel(self.plan.operators[operator], self.plan)
            for table in self._deltas[place]:
                self._used[place].restore(table)
        return self._used[place]

    def step(self, lo: int, hi: int) -> dict[str, Rows]:
        """What each sink gets in ``[lo, hi)``."""
        going: list[Parcel] = []
        for operator, slice_index in self.stages.readers:
            rows = self._records[self.plan.operators[operator].name].since(lo).below(hi)
            share = rows.take((rows.seq % self._readers == slice_index).nonzero()[0])
            work = Work(self.plan, self.stages, 0, self._kernel)
            going += work.run({}, {operator: (share, NO_LETTERS)})
        for stage in range(1, self.stages.count):
            made: list[Parcel] = []
            for part in range(self.stages.partitions[stage]):
                arrived: dict[tuple[int, int, int], list[Rows]] = defaultdict(list)
                for parcel in going:
                    if parcel.stage > stage:
                        assert part_of(self.stages, stage, parcel.stage, parcel.operator, parcel.slice) >= 0
                        made += [parcel] if part == parcel.part % self.stages.partitions[stage] else []
                    elif parcel.part == part:
                        schema = self.plan.input_schema(self.plan.operators[parcel.operator])
                        arrived[parcel.operator, parcel.slice, parcel.input].append(parcel.rows(schema))
                made += Work(self.plan, self.stages, stage, self._kernel).run(arrived, {})
            going = [
                Parcel(
                    part_of(self.stages, stage, one.stage, one.operator, one.slice), one.stage, one.kind, one.operator,
                    one.input, one.slice, one.count, one.payload,
                )
                for one in made
            ]  # fmt: skip
        for place, kernel in self._used.items():
            if (table := kernel.delta()) is not None:
                self._deltas[place].append(table)
        self._used.clear()
        return self._sinks(going)

    def _sinks(self, going: list[Parcel]) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for index, operator in enumerate(self.plan.operators):
            if operator.kind == "sink":
                schema = self.plan.input_schema(operator)
                parts = [(one.input, one.rows(schema)) for one in going if one.operator == index]
                if parts:
                    found[operator.name] = merged(self.plan, operator, parts)
        return found


@examples(50)
@given(
    program=programs(),
    readers=st.integers(1, 3),
    width=st.integers(1, 4),
    cuts=st.lists(st.integers(1, 40), max_size=3, unique=True),
)
def test_every_sink_gets_what_the_oracle_says_wherever_the_line_is_cut(
    program: Program, readers: int, width: int, cuts: list[int]
) -> None:
    steps = Steps(program, readers, width)
    got: dict[str, list[Any]] = {one.name: [] for one in program.plan.operators if one.kind == "sink"}
    ends = [*sorted(cuts), END]
    for lo, hi in zip([0, *ends], ends, strict=False):
        for name, rows in steps.step(lo, hi).items():
            fields = [column.to_pylist() for column in rows.data.columns]
            got[name] += zip(rows.seq.tolist(), rows.sub.tolist(), *fields, strict=True)
    compare(plain(got), oracle.expected(program.plan, program.records))
