"""CUSTOM by batch: a user's function from a record batch to a record batch.

How long the batches are depends on load and timing, so the function must treat every row by itself; then its output
over the stream does not depend on them. That also tells how to find the row that a failing call failed for: the batch
is halved and tried again, down to single rows, left before right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.line import Ints
from dadstorm.core.rows import Rows, empty_batch
from dadstorm.custom import IDs
from dadstorm.operators.common import Failures, Refused, conform, ordinals, too_many
from dadstorm.plan import Operator

Part = tuple[pa.RecordBatch, Ints]
"""Output rows, and the input row of each, counted over the whole call."""


class CustomBatch(Stateless):
    def __init__(self, operator: Operator, schema: pa.Schema, function: Callable[..., Any]) -> None:
        self._operator = operator
        self._input = schema
        self._schema = operator.schema
        args = operator.params.get("args") or {}
        self._function = partial(function, **args) if args else function
        self._with_id: bool = operator.params.get("with_id", False)
        self._limit = 1 << operator.output_bits

    def process(self, rows: Rows) -> Output:
        failures = Failures(self._operator, self._input.names, rows)
        parts: list[Part] = []
        if len(rows):
            self._try(rows, 0, parts, failures)
        dead = failures.settle()
        if not parts:
            return Output(empty_batch(self._schema), np.empty(0, dtype=np.int64), None, dead)
        data = parts[0][0] if len(parts) == 1 else pa.concat_batches([part[0] for part in parts])
        parent = np.concatenate([part[1] for part in parts])
        if len(parent) == len(rows) and np.array_equal(parent, np.arange(len(rows))):
            return Output(data, dead=dead)
        return Output(data, parent, ordinals(parent), dead)

    def _try(self, rows: Rows, start: int, parts: list[Part], failures: Failures) -> None:
        """The outputs of some rows of the call, from its row ``start`` on; in halves if the function refuses them."""
        try:
            data, parent = self._call(rows)
            parts.append((data, parent + start))
        except BaseException as error:  # Also what would end the process: it is the user's code that said so.
            if len(rows) == 1:
                failures.add(start, error)
                return
            half = len(rows) // 2
            self._try(rows.slice(0, half), start, parts, failures)
            if not failures.final:
                self._try(rows.slice(half, len(rows)), start + half, parts, failures)

    def _call(self, rows: Rows) -> Part:
        data = conform(rows.data.columns, self._input)
        # Copies of the IDs, which are ours: a function that writes into what it gets must not change them.
        keywords = {"ids": IDs(rows.seq.copy(), rows.sub.copy())} if self._with_id else {}
        result = self._function(data, **keywords)
        if isinstance(result, tuple) and len(result) == 2:
            batch, given = result
            parent = self._parents(given, len(rows))
        else:
            batch, parent = result, np.arange(len(rows))
        if not isinstance(batch, pa.RecordBatch):
            raise Refused(
                f"returned a {type(batch).__name__}; expected a pyarrow.RecordBatch, or a RecordBatch and its parents"
            )
        if batch.num_rows != len(parent):
            if isinstance(result, tuple):
                raise Refused(f"returned {batch.num_rows} rows with {len(parent)} parents")
            raise Refused(
                f"returned {batch.num_rows} rows for {len(parent)}; return (batch, parents) to leave out or add rows"
            )
        return self._fitted(batch), parent

    def _parents(self, given: object, rows: int) -> Ints:
        try:
            parent = np.asarray(given)
        except Exception as error:
            raise Refused(f"its parents are not numbers: {error}") from None
        if parent.ndim != 1 or (len(parent) and parent.dtype.kind not in "iu"):
            raise Refused("its parents are not a list of integers")
        parent = parent.astype(np.int64)
        if len(parent):
            if parent[0] < 0 or parent[-1] >= rows or (np.diff(parent) < 0).any():
                raise Refused(f"its parents are not ascending row numbers from 0 to {rows - 1}")
            if np.bincount(parent).max() > self._limit:
                raise Refused(too_many(self._limit))
        return parent

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch under the declared schema: fields by position, types converted where nothing is lost."""
        if batch.num_columns != len(self._schema):
            raise Refused(f"returned {batch.num_columns} columns; expected {len(self._schema)}")
        for column, field in zip(batch.columns, self._schema, strict=True):
            if column.type != field.type and _kind(column.type) != _kind(field.type):
                raise Refused(f'output field "{field.name}" is of type {column.type}; expected {field.type}')
        try:
            return conform(batch.columns, self._schema)
        except pa.ArrowException as error:
            raise Refused(f"its columns do not fit the declared types: {error}") from None


def _kind(kind: pa.DataType) -> str:
    """Types between which a value keeps its meaning."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    for name in ("string", "large_string", "integer", "floating", "boolean", "timestamp", "null"):
        if getattr(pa.types, f"is_{name}")(kind):
            return name.removeprefix("large_")
    return str(kind)
