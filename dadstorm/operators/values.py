"""From what a user's function returns to columns.

``Outputs`` collects the results of one call of the kernel and builds typed columns. Building whole columns at once is
fast but cannot say which output was wrong, and Arrow converts more than we want (1.5 into the integer 1, True into the
float 1.0). So the fast way is taken only if the values' classes are the expected ones; else ``checked`` goes through
the outputs one by one, converts what is no more than another spelling (NumPy scalars, subclasses) and refuses the
rest. Both ways give the same columns.

Nearly all functions give one tuple for one, so that is what costs nothing to note: only rows with another number of
outputs are counted.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from types import GeneratorType
from typing import Any

import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import Output
from dadstorm.core.line import Ints
from dadstorm.core.rows import Rows
from dadstorm.operators.common import Failures, Refused, collection_paused, ordinals, too_many
from dadstorm.plan import Field, Operator

SCALARS = (str, int, float, bool, datetime.datetime, np.generic)
"""What stands for a tuple of one where the operator has one output field."""

_BARE: frozenset[type] = frozenset([str, int, float, bool, datetime.datetime])
_NONE: frozenset[type] = frozenset()
_TUPLES: frozenset[type] = frozenset([tuple])
_FAST: dict[str, frozenset[type]] = {
    "string": frozenset([str, type(None)]),
    "int": frozenset([int, type(None)]),
    "float": frozenset([float, int, type(None)]),
    "bool": frozenset([bool, type(None)]),
    "timestamp": frozenset([datetime.datetime, type(None)]),
}
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_ARTICLE = {"string": "a str", "int": "an int", "float": "a float", "bool": "a bool", "timestamp": "a datetime"}


def collected(
    operator: Operator, names: Sequence[str], rows: Rows, loop: Callable[[Rows, Outputs, Failures], None]
) -> Output:
    """What ``loop`` makes of some rows, one call of the user's function after the other."""
    failures, outputs = Failures(operator, names, rows), Outputs(operator)
    with collection_paused():
        loop(rows, outputs, failures)
        return outputs.finish(len(rows), failures)


def bare_classes(width: int) -> frozenset[type]:
    """Classes of results that are a tuple of one without further look."""
    return _BARE if width == 1 else _NONE


def outputs_of(result: object, width: int, limit: int) -> list[Any]:
    """The outputs that a result stands for: a list of tuples (their values not yet looked at), and of bare values."""
    # The exact class first: asking whether something is an Iterator takes longer than all the rest.
    if isinstance(result, list) or result.__class__ is GeneratorType or isinstance(result, Iterator):
        # One more than allowed is enough to know; a generator may have no end.
        several = result if isinstance(result, list) else list(islice(result, limit + 1))
        if len(several) > limit:
            raise Refused(too_many(limit))
        return several
    if result is None:
        return []
    if isinstance(result, tuple):
        return [result]
    if width == 1 and isinstance(result, SCALARS):
        return [(result,)]
    raise Refused(f"returned {shown(result)}; expected None, {_expected(width)}, or a list of such")


def as_tuple(item: object, width: int) -> tuple[Any, ...]:
    """One of the outputs that a result stands for."""
    if isinstance(item, tuple):
        return item
    if isinstance(item, list):
        return tuple(item)
    if width == 1 and isinstance(item, SCALARS):
        return (item,)
    raise Refused(f"one of its outputs is {shown(item)}; expected {_expected(width)}")


class Outputs:
    """What one call of a kernel makes: for its rows, one after the other, the outputs of each. Without ``counts`` to
    the contrary a row has one."""

    def __init__(self, operator: Operator) -> None:
        self._fields = operator.fields
        self._schema = operator.schema
        self.made: list[Any] = []
        """Tuples, and values that stand for a tuple of one."""
        self.counts: dict[int, int] = {}
        """How many outputs the rows have that do not have one."""
        self._any_class = False
        """Whether there may be something else than tuples where several fields are expected."""

    def add(self, row: int, outputs: list[Any]) -> None:
        """Any number of outputs of the next row, of any class."""
        self.made += outputs
        self._any_class = True
        if len(outputs) != 1:
            self.counts[row] = len(outputs)

    def finish(self, rows: int, failures: Failures) -> Output:
        """The output, with the tuples that do not fit moved to the failures, which are settled here."""
        if failures.final:
            rows = failures.first + 1  # Nobody went on behind it.
        parent = self._parents(rows)
        columns = self._columns()
        if columns is None:
            parent = self._check(np.arange(rows) if parent is None else parent, failures)
            columns = self._columns()
            assert columns is not None, "checked tuples make columns"
        self.made.clear()  # They are gone before the garbage collector would look through them.
        dead = failures.settle()
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if parent is None or (len(parent) == rows and np.array_equal(parent, np.arange(rows))):
            return Output(data, dead=dead)
        return Output(data, parent, ordinals(parent), dead)

    def _parents(self, rows: int) -> Ints | None:
        """The row that each output is of; None if each is of one, in order."""
        if not self.counts:
            return None
        counts = np.ones(rows, dtype=np.int64)
        places = np.fromiter(self.counts, dtype=np.int64, count=len(self.counts))
        counts[places] = np.fromiter(self.counts.values(), dtype=np.int64, count=len(self.counts))
        return np.repeat(np.arange(rows), counts)

    def _columns(self) -> list[pa.Array] | None:
        """All columns at once; None if something does not fit."""
        if not self.made:
            return [pa.array([], type=field.type) for field in self._schema]
        parts = self._parts()
        if parts is None:
            return None
        columns = []
        for values, field, arrow in zip(parts, self._fields, self._schema, strict=True):
            if not set(map(type, values)) <= _FAST[field.type]:
                return None
            try:
                columns.append(pa.array(values, type=arrow.type))
            except (pa.ArrowException, OverflowError, UnicodeError, ValueError):
                return None
        return columns

    def _parts(self) -> Iterable[list[Any]] | None:
        """The values field by field; None if not all outputs have the right number of them."""
        width = len(self._fields)
        if width == 1 or self._any_class:
            kinds = set(map(type, self.made))
            if kinds != _TUPLES:
                return [self.made] if kinds <= bare_classes(width) else None
        try:
            first = _FIRST_OF[width](self.made) if width in _FIRST_OF else _first_of(self.made, width)
        except ValueError:
            return None
        return chain([first], (list(map(itemgetter(place), self.made)) for place in range(1, width)))

    def _check(self, parents: Ints, failures: Failures) -> Ints:
        """Keep what is right, and say whose it is."""
        good: list[tuple[int, Any]] = []
        for parent, output in zip(parents.tolist(), self.made, strict=True):
            if parent not in failures:
                try:
                    good.append((parent, checked(as_tuple(output, len(self._fields)), self._fields)))
                except Refused as error:
                    failures.add(parent, error)
        good = [(parent, output) for parent, output in good if parent not in failures]
        self.made = [output for _, output in good]
        self._any_class = False
        return np.array([parent for parent, _ in good], dtype=np.int64)


_FIRST_OF: dict[int, Callable[[list[Any]], list[Any]]] = {
    1: lambda made: [a for a, in made],
    2: lambda made: [a for a, _ in made],
    3: lambda made: [a for a, _, _ in made],
    4: lambda made: [a for a, _, _, _ in made],
}
"""The first of so many fields of each output. Taking tuples apart also tells, for nothing, if all have that many."""


def _first_of(made: list[Any], width: int) -> list[Any]:
    if set(map(len, made)) != {width}:
        raise ValueError
    return [output[0] for output in made]


def fits(output: tuple[Any, ...], kinds: Sequence[str]) -> bool:
    """Whether ``checked`` would give back the output as it is. A quick look at common values: no is no final answer."""
    if len(output) != len(kinds):
        return False
    for value, kind in zip(output, kinds):  # noqa: B905 (the lengths were just compared, and strict costs)
        cls = value.__class__
        if cls is str:
            if kind != "string" or not value.isascii():
                return False
        elif cls is int:
            if kind != "int" or not _INT_MIN <= value <= _INT_MAX:
                return False
        elif cls is float:
            if kind != "float":
                return False
        elif value is not None:
            return False
    return True


def checked(output: tuple[Any, ...], fields: Sequence[Field]) -> tuple[Any, ...]:
    """The output with every value in its field's plain class; Refused if it has the wrong size or a wrong value."""
    if len(output) != len(fields):
        hint = "; several outputs are returned as a list" if output and isinstance(output[0], (tuple, list)) else ""
        found, wanted = _counted(len(output)), _counted(len(fields))
        raise Refused(f"an output has {found}, {shown(output)}; expected {wanted}{hint}")
    return tuple(
        None if value is None else _CONVERT[field.type](value, field)
        for value, field in zip(output, fields, strict=True)
    )


def _wrong(value: object, field: Field) -> Refused:
    return Refused(f'output field "{field.name}" is {shown(value)}; expected {_ARTICLE[field.type]} or None')


def _string(value: object, field: Field) -> str:
    if not isinstance(value, str):
        raise _wrong(value, field)
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refused(f'output field "{field.name}" is not valid Unicode text: {error.reason}') from None
    return text


def _int(value: object, field: Field) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise _wrong(value, field)
    number = int(value)
    if not _INT_MIN <= number <= _INT_MAX:
        raise Refused(f'output field "{field.name}" is {number}, which does not fit 64 bits')
    return number


def _float(value: object, field: Field) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (float, int, np.floating, np.integer)):
        raise _wrong(value, field)
    try:
        return float(value)
    except OverflowError:
        raise Refused(f'output field "{field.name}" is an int too large for a float') from None


def _bool(value: object, field: Field) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(value, field)
    return bool(value)


def _timestamp(value: object, field: Field) -> datetime.datetime:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if not isinstance(value, datetime.datetime):
        raise _wrong(value, field)
    try:
        moment = datetime.datetime.combine(value.date(), value.time(), value.tzinfo)
        return moment if moment.tzinfo is None else moment.astimezone(datetime.timezone.utc)
    except (OverflowError, ValueError) as error:
        raise Refused(f'output field "{field.name}" is not a moment in time: {error}') from None


_CONVERT: dict[str, Callable[[Any, Field], Any]] = {
    "string": _string,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "timestamp": _timestamp,
}


def _expected(width: int) -> str:
    return "a value or a tuple of 1" if width == 1 else f"a tuple of {width}"


def _counted(count: int) -> str:
    return f"{count} field" if count == 1 else f"{count} fields"


def shown(value: object) -> str:
    """A value in a message: short, and the same in every run (so no object's default repr, which shows an address)."""
    kind = type(value).__name__
    if isinstance(value, (str, bytes, int, float, bool, tuple, list, dict, datetime.date)):
        try:
            text = repr(value)
        except Exception:
            return f"a {kind}"
        if " at 0x" not in text:
            return (text if len(text) <= 100 else text[:100] + "…") + f" ({kind})"
    return f"a {kind}"
