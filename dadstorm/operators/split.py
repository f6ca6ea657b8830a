"""SPLIT: a text field into its words, one tuple per word with the other fields beside it.

Words are what lies between runs of white space, or between occurrences of a separator; empty ones do not count, and a
null has none. A tuple with more words than the operator declared room for in the IDs is refused.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.line import Ints
from dadstorm.core.rows import Rows
from dadstorm.operators.common import Failures, Refused, conform, ordinals, too_many
from dadstorm.plan import Operator


class Split(Stateless):
    def __init__(self, operator: Operator, schema: pa.Schema) -> None:
        self._operator = operator
        self._schema = operator.schema
        self._names = schema.names
        self._field: int = operator.params["field"]
        self._separator: str | None = operator.params.get("separator")
        self._limit = 1 << operator.output_bits

    def process(self, rows: Rows) -> Output:
        columns = rows.data.columns
        words, parent = self._split(conform([columns[self._field]], pa.schema([("text", pa.string())])).column(0))
        dead = None
        counts = np.bincount(parent, minlength=len(rows))
        if len(rows) and counts.max() > self._limit:
            failures = Failures(self._operator, self._names, rows)
            for row in np.flatnonzero(counts > self._limit).tolist():
                failures.add(row, Refused(too_many(self._limit)))
            dead = failures.settle()
            fits = counts[parent] <= self._limit
            words, parent = words.filter(pa.array(fits)), parent[fits]
        take = pa.array(parent)
        output = [words if i == self._field else column.take(take) for i, column in enumerate(columns)]
        return Output(conform(output, self._schema), parent, ordinals(parent), dead)

    def _split(self, text: pa.Array) -> tuple[pa.Array, Ints]:
        """All words, and the row that each comes from."""
        separator = self._separator
        # Where a text ends with whitespace, Arrow looks for more of it in the bytes behind the text, which belong to
        # the next one or to nobody: what comes out would depend on where the rows happened to be cut. So none may.
        lists = (
            pc.utf8_split_whitespace(pc.utf8_rtrim_whitespace(text))
            if separator is None
            else pc.split_pattern(text, separator)
        )
        words = lists.flatten()
        parent = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        filled = pc.not_equal(words, "").to_numpy(zero_copy_only=False)
        if filled.all():
            return words, parent
        return words.filter(pa.array(filled)), parent[filled]
