"""DUP: every tuple as it is. What it is for is its several consumers: each gets everything.

It may give the fields other names, turn numbers into text, and add fields that are null: so that inputs of one
operator can be made alike.
"""

from __future__ import annotations

import pyarrow as pa

from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.rows import Rows
from dadstorm.operators.common import conform
from dadstorm.plan import Operator


class Dup(Stateless):
    def __init__(self, operator: Operator) -> None:
        self._schema = operator.schema

    def process(self, rows: Rows) -> Output:
        columns = list(rows.data.columns)
        columns += [pa.nulls(len(rows), field.type) for field in list(self._schema)[len(columns) :]]
        return Output(conform(columns, self._schema))
