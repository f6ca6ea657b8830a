"""What the operators' tests share: plans of one operator, rows from tuples, and runs with any cutting into calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dadstorm.core.kernel import Kernel
from dadstorm.core.rows import Rows
from dadstorm.core.schemas import ARROW
from dadstorm.operators import make_kernel
from dadstorm.plan import Field, Input, Operator, Plan, Routing

Fields = Sequence[str]
"""Fields as ``name`` or ``name:type``."""


@dataclass
class Result:
    """What came out: (seq and sub of the parent, ordinal, values…) and (seq, sub, place, error, record)."""

    out: list[tuple[Any, ...]] = field(default_factory=list)
    dead: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def values(self) -> list[tuple[Any, ...]]:
        return [row[3:] for row in self.out]


def fields_of(fields: Fields) -> tuple[Field, ...]:
    pairs: list[Any] = [field.partition(":")[::2] for field in fields]
    return tuple(Field(name, kind or "string") for name, kind in pairs)


@dataclass
class Case:
    """One operator over one input."""

    kind: str
    params: dict[str, Any]
    inputs: Fields
    outputs: Fields
    output_bits: int = 0
    on_error: Any = "fail"
    base: str = "."

    def kernel(self) -> Kernel:
        source = Operator("in", "source", {}, (), fields_of(self.inputs), 1, (), Routing())
        operator = Operator(
            "op",
            self.kind,
            self.params,
            (Input("in"),),
            fields_of(self.outputs),
            1,
            (),
            Routing(),
            output_bits=self.output_bits,
            on_error=self.on_error,
        )
        self.schema = operator.schema
        return make_kernel(operator, Plan("test", (source, operator), base=self.base))

    def rows(self, tuples: Sequence[Sequence[Any]]) -> Rows:
        """Rows with seqs 0, 0, 1, 1, 2 … and subs 0, 1, 0, 1 …"""
        columns = [
            pa.array([t[i] for t in tuples], type=ARROW[f.type]) for i, f in enumerate(fields_of(self.inputs))
        ]
        numbers = np.arange(len(tuples), dtype=np.int64)
        names = [f.name for f in fields_of(self.inputs)]
        return Rows(numbers // 2, numbers % 2, pa.RecordBatch.from_arrays(columns, names=names))

    def run(
        self,
        tuples: Sequence[Sequence[Any]],
        cuts: Iterable[int] = (),
        snapshots: Iterable[int] = (),
        restores: Iterable[int] = (),
        folding: bool = False,
    ) -> Result:
        """The result over a stream cut into calls before these rows. At some rows a delta is taken; at some the state
        then goes to a new kernel, as deltas or folded into one table."""
        result, kernel, rows = Result(), self.kernel(), self.rows(tuples)
        snapshots, restores = {*snapshots, *restores}, {*restores}
        deltas: list[pa.RecordBatch] = []
        bounds = sorted({0, len(rows), *cuts, *snapshots})
        for start, stop in pairwise(bounds):
            if start in snapshots:
                delta = kernel.delta()
                assert kernel.delta() is None, "nothing has changed since"
                if delta is not None:
                    deltas.append(through_ipc(delta))
            if start in restores:
                kernel = self.kernel()
                for state in fold(deltas) if folding else deltas:
                    kernel.restore(state)
                assert kernel.delta() is None, "what was restored has not changed"
            self.process(kernel, rows.slice(start, stop), result)
        return result

    def process(self, kernel: Kernel, rows: Rows, result: Result) -> None:
        output = kernel.process(rows)
        assert output.data.schema == self.schema
        output.data.validate(full=True)
        count = output.data.num_rows
        parent = np.arange(count) if output.parent is None else output.parent
        ordinal = np.zeros(count, dtype=np.int64) if output.ordinal is None else output.ordinal
        assert output.parent is not None or count == len(rows)
        assert len(parent) == len(ordinal) == count and (np.diff(parent) >= 0).all()
        assert parent.dtype == ordinal.dtype == np.int64
        assert not count or ordinal.max() < 1 << self.output_bits
        values = zip(*[column.to_pylist() for column in output.data.columns], strict=True)
        for p, o, v in zip(parent.tolist(), ordinal.tolist(), values, strict=True):
            result.out.append((int(rows.seq[p]), int(rows.sub[p]), o, *v))
        if output.dead is not None:
            letters = zip(*[column.to_pylist() for column in output.dead.data.columns], strict=True)
            for p, letter in zip(output.dead.parent.tolist(), letters, strict=True):
                result.dead.append((int(rows.seq[p]), int(rows.sub[p]), *letter))


def fold(deltas: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The deltas as one table: of each key the newest row, if it is not gone."""
    newest: dict[Any, dict[str, Any]] = {}
    for delta in deltas:
        for row in delta.to_pylist():
            newest[tuple(value for name, value in row.items() if name.startswith("key_"))] = row
    alive = [row for row in newest.values() if not row.get("gone")]
    return [pa.RecordBatch.from_pylist(alive, schema=deltas[0].schema)] if deltas else []


def through_ipc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as somebody gets it who received it."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def same(one: Any, other: Any) -> bool:
    """Equality under which NaN equals itself and 1, 1.0 and True differ."""
    return repr(one) == repr(other)


def cuts_of(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length), max_size=8)


def oracle(tuples: Sequence[Sequence[Any]], step: Callable[[Sequence[Any]], Iterable[Sequence[Any]]]) -> list[Any]:
    """Outputs with their IDs, from a function from one tuple to its outputs."""
    return [(i // 2, i % 2, o, *out) for i, t in enumerate(tuples) for o, out in enumerate(step(t))]
