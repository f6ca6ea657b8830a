"""CUSTOM functions for the random topologies. Each works over any number of fields of any type, and each is a pure
function of its arguments (and state), so that the oracle may call the very same ones, one tuple at a time."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa


def weight(fields: tuple[Any, ...]) -> int:
    """A number that looks random and is the same in every process."""
    return zlib.crc32(repr(fields).encode("utf-8", "backslashreplace"))


def mirror(*fields: Any) -> tuple[Any, ...]:
    return fields


def some(*fields: Any) -> tuple[Any, ...] | None:
    """About half of the tuples."""
    return fields if weight(fields) % 2 else None


def stutter(*fields: Any, most: int) -> list[tuple[Any, ...]]:
    """Every tuple from no time at all up to ``most`` times."""
    return [fields] * (weight(fields) % (most + 1))


def explode(*fields: Any, most: int) -> Any:
    """Numbered outputs, from a generator."""
    for number in range(weight(fields) % (most + 1)):
        yield (f"{number}é", number)


def picky(*fields: Any) -> tuple[Any, ...]:
    """Does not like every third tuple."""
    if weight(fields) % 3 == 0:
        raise ValueError(f"I do not like {len(fields)} fields of weight {weight(fields)}")
    return fields


def where(*fields: Any, id: Any) -> tuple[int, int]:
    """The tuple's ID as the operator sees it."""
    return (id.seq, id.sub)


def twice(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray]:
    """A batch function: every row two times."""
    parents = np.repeat(np.arange(batch.num_rows), 2)
    return batch.take(pa.array(parents)), parents


class Running:
    """How often the key was seen since it was forgotten, with the tuple before; every fourth time it is forgotten."""

    def process(self, state: Any, *fields: Any) -> tuple[int, str | None]:
        count, before = state.get([0, None])
        if count == 3:
            state.delete()
        else:
            state.set([count + 1, f"{weight(fields)}"])
        return (count + 1, before)


class Echo:
    """The weights of up to ``most`` tuples of the key so far, oldest first, one output each."""

    def __init__(self, most: int) -> None:
        self._most = most

    def process(self, state: Any, *fields: Any) -> list[tuple[str, int]]:
        past = [*state.get([]), weight(fields)][-self._most :]
        state.set(past)
        return [("past", value) for value in past]


class Moody:
    """Counts, and fails on some tuples after it has touched the state: such a tuple must leave no trace."""

    def process(self, state: Any, *fields: Any) -> tuple[int]:
        count = state.get(0) + 1
        state.set(count)
        if weight(fields) % 3 == 0:
            raise RuntimeError("not today")
        return (count,)
