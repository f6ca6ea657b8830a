"""FILTER: the tuples for which all conditions hold.

A condition compares one field with a value of the field's type (a timestamp's in microseconds). A null satisfies no
condition, not even ``!=``. A ``loose`` condition compares as numbers, exactly, if both are numbers, else as text.
"""

from __future__ import annotations

import operator as comparisons
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.rows import Rows
from dadstorm.operators.common import conformed
from dadstorm.plan import Operator

Test = Callable[[pa.Array], pa.Array]

_COMPARISONS: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}

_LOOSE: dict[str, Callable[[Any, Any], bool]] = {
    "=": comparisons.eq,
    "!=": comparisons.ne,
    "<": comparisons.lt,
    "<=": comparisons.le,
    ">": comparisons.gt,
    ">=": comparisons.ge,
}
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?\Z")


class Filter(Stateless):
    def __init__(self, operator: Operator, schema: pa.Schema) -> None:
        self._schema = operator.schema
        self._tests = [
            (condition["field"], _test(condition, schema.field(condition["field"]).type))
            for condition in operator.params["conditions"]
        ]

    def process(self, rows: Rows) -> Output:
        data = conformed(rows.data, self._schema)
        passed: pa.Array | None = None
        for field, test in self._tests:
            result = test(data.column(field))
            passed = result if passed is None else pc.and_(passed, result)
        if passed is None or passed.true_count == len(rows):
            return Output(data)
        parent = np.flatnonzero(pc.fill_null(passed, False).to_numpy(zero_copy_only=False))
        return Output(data.filter(passed), parent)


def _test(condition: Mapping[str, Any], kind: pa.DataType) -> Test:
    op, value = condition["op"], condition["value"]
    if condition.get("compare") == "loose":
        return _loose(op, value)
    if op == "matches":
        return lambda column: pc.match_substring_regex(column, value)
    if op == "in":
        members = pa.array(_members(value), type=kind)
        return lambda column: pc.is_in(column, value_set=members)
    comparison, scalar = _COMPARISONS[op], pa.scalar(value, type=kind)
    return lambda column: comparison(column, scalar)


def _members(values: Sequence[Any]) -> list[Any]:
    """The values of ``in`` such that it agrees with ``=``: Arrow's set tells -0.0 from 0.0 and finds NaN in itself."""
    zeros = [-0.0] if any(value.__class__ is float and value == 0 for value in values) else []
    return [0.0 if zeros and value == 0 else value for value in values if value == value] + zeros


def _loose(op: str, value: str) -> Test:
    """What a text is compared as depends on the text, so each distinct one is looked at; there are few in a batch."""
    compare, number = _LOOSE[op], _number(value)

    def holds(text: str) -> bool:
        other = None if number is None else _number(text)
        return compare(text, value) if other is None else compare(other, number)

    def test(column: pa.Array) -> pa.Array:
        encoded = column.cast(pa.string()).dictionary_encode()
        verdicts = [holds(text) for text in encoded.dictionary.to_pylist()]
        return pa.array(verdicts, pa.bool_()).take(encoded.indices)

    return test


def _number(text: str) -> Decimal | None:
    """Exact whatever its size: floats would make neighbours of long numbers equal."""
    return Decimal(text) if _NUMBER.match(text) else None
