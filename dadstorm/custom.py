"""What a user writes for CUSTOM: functions over rows, functions over batches, classes with keyed state.

Three modes, one rule each:

- ``row``: a plain function. It gets the tuple's fields as positional arguments and returns ``None`` (no output), a
  tuple (one output), or a list, generator or other iterator (several outputs, each a tuple or a list of values). Where
  the operator has one output field, a bare value (str, int, float, bool, datetime) stands for a tuple of one.
- ``batch``: a function from a ``pyarrow.RecordBatch`` to one with as many rows (output i comes from input i), or to a
  pair ``(RecordBatch, parents)`` whose ascending parents say from which input row each output row comes.
- ``keyed``: a class with a method ``process(self, state, *fields)``, which returns what a row function returns.
  ``state`` is that of the current tuple's key. One instance serves one slice; whatever it keeps elsewhere than in
  ``state`` is lost when the slice moves.

The decorators write down what the function cannot say itself (output fields, key, most outputs per tuple), in place of
or besides the topology file, which has the last word. They return the function unchanged, so it can be tested as such.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast, get_args

from dadstorm.custom_load import load
from dadstorm.plan import Field, FieldType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ID",
    "Declaration",
    "Field",
    "IDs",
    "State",
    "batch_operator",
    "declaration",
    "keyed_operator",
    "load",
    "misfits",
    "operator",
]

Mode = Literal["row", "batch", "keyed"]
FieldLike = str | Field
KeyLike = str | int
T = TypeVar("T", bound=Callable[..., Any])

_MARK = "__dadstorm__"


class ID(NamedTuple):
    """The ID of a tuple, as a function that asks for it gets it in its keyword argument ``id``."""

    seq: int
    sub: int


class IDs(NamedTuple):
    """The IDs of a batch's rows, as a batch function that asks for them gets them in its keyword argument ``ids``."""

    seq: NDArray[np.int64]
    sub: NDArray[np.int64]


class State(Protocol):
    """The state of the current tuple's key: None, bool, int, float, str, bytes, or lists and dicts of those.

    ``get`` hands out a copy: changing it changes nothing until it is ``set``."""

    @property
    def key(self) -> Any:
        """The current key: the field's value, or a tuple of values where the key has several fields."""

    def get(self, default: Any = None) -> Any:
        """The key's value, or ``default`` if it has none."""

    def set(self, value: Any) -> None:
        """Give the key this value, as it is now."""

    def delete(self) -> None:
        """Forget the key; it need not have a value."""


@dataclass(frozen=True)
class Declaration:
    """What a function says about itself; None: it does not say, the topology file must (or a default applies)."""

    mode: Mode
    fields: tuple[Field, ...] | None = None
    key: tuple[KeyLike, ...] | None = None
    max_outputs: int | None = None
    with_id: bool | None = None


def operator(
    *, fields: Sequence[FieldLike] | None = None, max_outputs: int | None = None, with_id: bool | None = None
) -> Callable[[T], T]:
    """Declare a row function: ``@operator(fields=["word", "length:int"], max_outputs=8)``."""
    return _mark(Declaration("row", _fields(fields), None, _limit(max_outputs), with_id))


def batch_operator(
    *, fields: Sequence[FieldLike] | None = None, max_outputs: int | None = None, with_id: bool | None = None
) -> Callable[[T], T]:
    """Declare a batch function. Give ``max_outputs`` if it may return several rows for one."""
    return _mark(Declaration("batch", _fields(fields), None, _limit(max_outputs), with_id))


def keyed_operator(
    *,
    key: Sequence[KeyLike] | KeyLike | None = None,
    fields: Sequence[FieldLike] | None = None,
    max_outputs: int | None = None,
    with_id: bool | None = None,
) -> Callable[[T], T]:
    """Declare a class with state by key: input fields, by name or by number from 1 as in the topology file."""
    keys = (key,) if isinstance(key, (str, int)) else None if key is None else tuple(key)
    return _mark(Declaration("keyed", _fields(fields), keys, _limit(max_outputs), with_id))


def declaration(obj: object) -> Declaration:
    """What the decorator says, or what shows without one: a class is keyed, anything else that can be called, row."""
    # A class's own mark only: a subclass does not inherit what its parent declared about another process method.
    found = vars(obj).get(_MARK) if isinstance(obj, type) else getattr(obj, _MARK, None)
    if isinstance(found, Declaration):
        return found
    return Declaration("keyed" if isinstance(obj, type) else "row")


def misfits(obj: object, mode: Mode, inputs: int, with_id: bool, args: Mapping[str, Any]) -> list[str]:
    """Why ``obj`` cannot be called as an operator of this mode over so many input fields; empty if it can.

    Found before anything runs, so that a wrong arity is a mistake in the topology and not an error of every tuple."""
    name = getattr(obj, "__name__", type(obj).__name__)
    given: dict[str, Any] = dict(args)
    if mode == "keyed":
        if not isinstance(obj, type):
            return [f"{name} is not a class: a keyed operator is a class with a method process(self, state, *fields)"]
        process = getattr(obj, "process", None)
        if not callable(process):
            return [f"class {name} has no method process(self, state, *fields)"]
        found = _unfit(obj, f"class {name}", (), given)
        identity = {"id": None} if with_id else {}
        return found + _unfit(process, f"{name}.process", (None, None, *[None] * inputs), identity)
    if isinstance(obj, type):
        return [f"{name} is a class, which only a keyed operator can be; expected a function"]
    if mode == "batch":
        return _unfit(obj, name, (None,), given | ({"ids": None} if with_id else {}))
    return _unfit(obj, name, (None,) * inputs, given | ({"id": None} if with_id else {}))


def _unfit(call: Any, name: str, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[str]:
    try:
        signature = inspect.signature(call)
    except (ValueError, TypeError):
        return []  # Some callables written in C do not tell; they will say so when called.
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        named = "".join(f", {keyword}=…" for keyword in keywords)
        return [f"{name}{signature} cannot take what it will be given ({len(positional)} arguments{named}): {error}"]
    return []


def _mark(declared: Declaration) -> Callable[[T], T]:
    def decorate(obj: T) -> T:
        setattr(obj, _MARK, declared)
        return obj

    return decorate


def _fields(fields: Sequence[FieldLike] | None) -> tuple[Field, ...] | None:
    if fields is None:
        return None
    if isinstance(fields, str):
        raise ValueError(f"fields is a list of names, not the string {fields!r}: write fields=[{fields!r}]")
    return tuple(field if isinstance(field, Field) else _field(field) for field in fields)


def _field(text: str) -> Field:
    name, _, kind = (part.strip() for part in text.partition(":"))
    types = get_args(FieldType)
    if not name or (kind and kind not in types):
        near = difflib.get_close_matches(kind, types, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"field {text!r}: expected NAME or NAME:TYPE with TYPE one of {', '.join(types)}{hint}")
    return Field(name, cast(FieldType, kind or "string"))


def _limit(max_outputs: int | None) -> int | None:
    if max_outputs is not None and (isinstance(max_outputs, bool) or not 1 <= max_outputs <= 1 << 32):
        raise ValueError(f"max_outputs is {max_outputs!r}; expected the most outputs of one tuple, from 1 to 2^32")
    return max_outputs
