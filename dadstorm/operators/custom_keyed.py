"""CUSTOM with state: a user's class, one instance per slice, and a value per key.

What a tuple's call does to the state happens when the call has ended well, outputs checked; a tuple that fails leaves
no trace. ``set`` takes the value as it is then and ``get`` gives out a copy: values that cannot be changed are kept as
they are, lists and dicts in encoded form. So state changes by ``set`` and ``delete`` only, whether or not the slice was
restored from a snapshot in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import Output
from dadstorm.core.rows import Rows
from dadstorm.custom import ID
from dadstorm.custom_load import describe, user_frames
from dadstorm.errors import RunFailed
from dadstorm.operators.common import Failures, plain
from dadstorm.operators.keys import stored, stored_type, unstored
from dadstorm.operators.table import ONE_KEY, state_table
from dadstorm.operators.values import Outputs, as_tuple, checked, collected, fits, outputs_of
from dadstorm.plan import Operator

_FIXED = frozenset([type(None), bool, int, float, str, bytes])
_NAN = float("nan")
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class _Packed(bytes):
    """A list or a dict in encoded form, as distinct from a user's bytes."""


class _Nothing:
    """What stands for: no value."""


_NOTHING = _Nothing()
_UNTOUCHED = _Nothing()


class KeyState:
    """The state of the current tuple's key, as the user's ``process`` sees it (see ``dadstorm.custom.State``)."""

    __slots__ = ("_change", "_values", "key")

    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = values
        self._change: Any = _UNTOUCHED
        self.key: Any = None

    def get(self, default: Any = None) -> Any:
        value = self._values.get(self.key, _NOTHING) if self._change is _UNTOUCHED else self._change
        if value is _NOTHING:
            return default
        return msgspec.msgpack.decode(value) if value.__class__ is _Packed else value

    def set(self, value: Any) -> None:
        self._change = _pack(value)

    def delete(self) -> None:
        self._change = _NOTHING


class CustomKeyed:
    def __init__(self, operator: Operator, schema: pa.Schema, cls: type) -> None:
        self._operator = operator
        self._names = schema.names
        self._fields: list[int] = operator.params["key"]
        self._types = [schema.field(field).type for field in self._fields]
        self._with_id: bool = operator.params.get("with_id", False)
        self._limit = 1 << operator.output_bits
        self._out = operator.fields
        self._kinds = [field.type for field in operator.fields]
        self._values: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}
        self._state = KeyState(self._values)
        try:
            self._process = cls(**(operator.params.get("args") or {})).process
        except Exception as error:
            where = "".join(f"\n  {frame}" for frame in user_frames(error))
            raise RunFailed(f"operator {operator.name}: {cls.__name__}() raised {describe(error)}{where}") from None

    def process(self, rows: Rows) -> Output:
        return collected(self._operator, self._names, rows, self._loop)

    def _loop(self, rows: Rows, outputs: Outputs, failures: Failures) -> None:
        state, process, kinds = self._state, self._process, self._kinds
        arguments = zip(*[plain(column) for column in rows.data.columns], strict=True)
        ids = map(ID, rows.seq.tolist(), rows.sub.tolist()) if self._with_id else None
        for index, (key, fields) in enumerate(zip(self._keys(rows), arguments, strict=True)):
            state.key, state._change = key, _UNTOUCHED
            try:
                result = process(state, *fields) if ids is None else process(state, *fields, id=next(ids))
                if result.__class__ is tuple and fits(result, kinds):
                    outputs.made.append(result)
                elif result is None:
                    outputs.counts[index] = 0
                else:
                    several = outputs_of(result, len(kinds), self._limit)
                    outputs.add(index, [checked(as_tuple(one, len(kinds)), self._out) for one in several])
            except BaseException as error:  # Also what would end the process: it is the user's code that said so.
                failures.add(index, error)
                outputs.counts[index] = 0
                if failures.final:
                    break
            else:
                if state._change is not _UNTOUCHED:
                    self._apply(key, state._change)

    def delta(self) -> pa.RecordBatch | None:
        if not self._changed:
            return None
        keys = list(self._changed)
        self._changed.clear()
        values = [self._values.get(key, _NOTHING) for key in keys]
        packed = [
            None if value is _NOTHING else value if value.__class__ is _Packed else msgspec.msgpack.encode(value)
            for value in values
        ]
        gone = np.array([value is _NOTHING for value in values], dtype=bool)
        return state_table(self._key_columns(keys), {"value": pa.array(packed, pa.binary())}, gone)

    def restore(self, state: pa.RecordBatch) -> None:
        columns = [state.column(f"key_{i}") for i in range(len(self._types))]
        keys = self._python_keys([unstored(c, kind) for c, kind in zip(columns, self._types, strict=True)], len(state))
        gone = state.column("gone").to_pylist()
        for key, value, deleted in zip(keys, state.column("value").to_pylist(), gone, strict=True):
            if deleted:
                self._values.pop(key, None)
            else:
                decoded = msgspec.msgpack.decode(value)
                self._values[key] = decoded if decoded.__class__ in _FIXED else _Packed(value)

    def _apply(self, key: Any, change: Any) -> None:
        if change is _NOTHING:
            if key not in self._values:
                return
            del self._values[key]
        else:
            self._values[key] = change
        self._changed[key] = None

    def _keys(self, rows: Rows) -> Iterator[Any]:
        return self._python_keys([rows.data.column(field) for field in self._fields], len(rows))

    def _python_keys(self, columns: list[pa.Array], count: int) -> Iterator[Any]:
        """Each row's key: a value, or a tuple of values; -0.0 as 0.0 and every NaN as the same one."""
        if not columns:
            return iter([()] * count)
        values = [
            [v if v is None else _NAN if v != v else v + 0.0 for v in plain(column)]
            if pa.types.is_floating(column.type)
            else plain(column)
            for column in columns
        ]
        return iter(values[0]) if len(values) == 1 else zip(*values, strict=True)

    def _key_columns(self, keys: list[Any]) -> list[pa.Array]:
        if not self._types:
            return [ONE_KEY]
        parts = [keys] if len(self._types) == 1 else list(zip(*keys, strict=True))
        return [
            stored(pa.array(part, type=kind)).cast(stored_type(kind))
            for part, kind in zip(parts, self._types, strict=True)
        ]


def _pack(value: Any) -> Any:
    """The value as state keeps it: itself if nobody can change it, else encoded."""
    if value.__class__ is float or (value.__class__ is int and _INT_MIN <= value <= _INT_MAX):
        return value
    _check(value, "")
    if value.__class__ in _FIXED:
        return value
    return _Packed(msgspec.msgpack.encode(value))


def _check(value: Any, where: str) -> None:
    """Refuse what would not come back from a snapshot as it was."""
    cls = value.__class__
    if cls is str:
        if not value.isascii():
            value.encode()
    elif cls is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise OverflowError(f"state{where} is {value}, which does not fit 64 bits; keep it as a str")
    elif cls is list:
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]")
    elif cls is dict:
        for key, item in value.items():
            if key.__class__ is not str and key.__class__ is not int:
                raise TypeError(f"state{where} has a key of type {key.__class__.__name__}; expected str or int")
            _check(key, f"{where} key")
            _check(item, f"{where}[{key!r}]")
    elif cls not in _FIXED:
        hint = {"tuple": "; use a list", "set": "; use a sorted list"}.get(cls.__name__, "")
        raise TypeError(
            f"state{where} is of type {cls.__name__}{hint}; expected None, bool, int, float, str, bytes, "
            "or lists and dicts of those"
        )
