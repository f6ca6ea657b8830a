"""DUP: every tuple as it is. What it is for is its several consumers: each gets everything."""

from __future__ import annotations

from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.rows import Rows
from dadstorm.operators.common import conformed
from dadstorm.plan import Operator


class Dup(Stateless):
    def __init__(self, operator: Operator) -> None:
        self._schema = operator.schema

    def process(self, rows: Rows) -> Output:
        return Output(conformed(rows.data, self._schema))
