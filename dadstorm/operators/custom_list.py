"""CUSTOM by list: a user's function from the list of a tuple's fields to a list of lists, all of them text.

The way for tuples of differing length: the fields at the end that are null are not in the list, and an output may have
fewer fields than the operator declares. Around the call it is CUSTOM by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dadstorm.operators.common import Refused
from dadstorm.operators.values import shown

_NUMBERS = (int, float, np.integer, np.floating)


def listed(function: Callable[..., Any], width: int) -> Callable[..., Any]:
    """The function as a row function of at most ``width`` output fields."""

    def call(*fields: Any, **named: Any) -> Iterator[tuple[str | None, ...]] | None:
        count = len(fields)
        while count and fields[count - 1] is None:
            count -= 1
        result = function([_text(field) for field in fields[:count]], **named)
        if result is None:
            return None
        if not isinstance(result, (list, tuple, Iterator)):
            raise Refused(f"returned {shown(result)}; expected a list of lists of fields, or None")
        return (_output(item, width) for item in result)

    return call


def _output(item: object, width: int) -> tuple[str | None, ...]:
    if not isinstance(item, (list, tuple)):
        raise Refused(f"one of its outputs is {shown(item)}; expected a list of fields, such as ['a', 'b']")
    if len(item) > width:
        raise Refused(
            f"an output has {len(item)} fields, but the operator has {width}; declare as many as it can have: fields: "
            f"{len(item)} in the topology, or @dadstorm.custom.operator(fields=[...]) on the method"
        )
    return (*map(_field, item), *[None] * (width - len(item)))


def _field(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, _NUMBERS):
        return str(value)
    raise Refused(f"a field of an output is {shown(value)}; expected text or a number")


def _text(value: Any) -> str | None:
    return value if value is None or value.__class__ is str else str(value)
