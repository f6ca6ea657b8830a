"""CUSTOM by row: a user's function from one tuple's fields to its outputs.

The fields of a whole batch become Python values at once, and the outputs of a whole batch become columns at once; in
between stands one short loop over the calls. A generator is run to its end before the next tuple is looked at, and a
list is copied, so that what the function does, it does in ID order. If it raises, none of the tuple's outputs are
emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from dadstorm.core.kernel import Output, Stateless
from dadstorm.core.rows import Rows
from dadstorm.custom import ID
from dadstorm.operators.common import Failures, Refused, plain
from dadstorm.operators.values import Outputs, bare_classes, collected, outputs_of
from dadstorm.plan import Operator


class CustomRow(Stateless):
    def __init__(self, operator: Operator, schema: pa.Schema, function: Callable[..., Any]) -> None:
        self._operator = operator
        self._names = schema.names
        args = operator.params.get("args") or {}
        self._function = partial(function, **args) if args else function
        self._with_id: bool = operator.params.get("with_id", False)
        self._width = len(operator.fields)
        self._bare = bare_classes(self._width)
        self._limit = 1 << operator.output_bits

    def process(self, rows: Rows) -> Output:
        return collected(self._operator, self._names, rows, self._loop)

    def _loop(self, rows: Rows, outputs: Outputs, failures: Failures) -> None:
        made, bare = outputs.made, self._bare
        function = self._function
        columns = [plain(column) for column in rows.data.columns]
        if self._with_id:
            columns.append(list(map(ID, rows.seq.tolist(), rows.sub.tolist())))
            function = _with_id(function)
        calls = map(function, *columns)
        last, index = len(rows) - 1, -1
        while index < last and not failures.final:
            following = index + 1
            try:
                for index, result in enumerate(calls, following):
                    if result.__class__ is tuple or result.__class__ in bare:
                        made.append(result)
                    elif result is None:
                        outputs.counts[index] = 0
                    else:
                        self._odd(index, result, outputs, failures)
                        if failures.final:
                            return
                if index < last:
                    # The call after that raised StopIteration, which ends a loop without a word. Once more, aloud.
                    function(*(column[index + 1] for column in columns))
                    raise Refused("raised StopIteration")
            except BaseException as error:  # Also what would end the process: it is the user's code that said so.
                index += 1
                outputs.counts[index] = 0
                failures.add(index, error)

    def _odd(self, row: int, result: object, outputs: Outputs, failures: Failures) -> None:
        """A result that is no plain tuple: several outputs, or something to be looked at more closely."""
        try:
            outputs.add(row, outputs_of(result, self._width, self._limit))
        except BaseException as error:  # As above: a generator is the user's code.
            outputs.counts[row] = 0
            failures.add(row, error)


def _with_id(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *fields: function(*fields[:-1], id=fields[-1])
