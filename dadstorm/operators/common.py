"""What the kernels share: fitting columns to a schema, rows that fail, and outputs grouped by their parent."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import DEAD, Dead, RecordError
from dadstorm.core.line import Ints
from dadstorm.core.rows import Rows
from dadstorm.custom_load import describe, is_ours, user_frames
from dadstorm.plan import Operator

_SHOWN = 1000
"""Most characters of a record or a message that an error shows: a line of megabytes helps nobody."""


class Refused(Exception):
    """A row that we, not the user's code, cannot accept; the message says why."""


def too_many(limit: int) -> str:
    """What is wrong with a tuple that has more outputs than its operator has room for in the IDs."""
    return f"more than {limit} outputs for one tuple, for which its IDs have no room; raise max_outputs"


def conform(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The columns under the schema's names and types; what is stored otherwise (dictionary-encoded) is converted."""
    fitted = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def conformed(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A whole batch likewise; mostly it fits as it is."""
    return data if data.schema.equals(schema) else conform(data.columns, schema)


def plain(column: pa.Array) -> list[Any]:
    """A column as Python values: str, int, float, bool, datetime, None. (A timestamp beyond the year 9999, which
    datetime cannot hold, comes as its microseconds.)"""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if column.null_count and not pa.types.is_timestamp(kind):
        values: list[Any] = column.to_pylist()
    else:
        values = column.to_numpy(zero_copy_only=False).tolist()
    return values


def ordinals(parent: Ints) -> Ints:
    """Which output of its parent each row is, when rows with one parent lie together."""
    positions = np.arange(len(parent))
    starts = np.ones(len(parent), dtype=bool)
    np.not_equal(parent[1:], parent[:-1], out=starts[1:])
    return positions - np.maximum.accumulate(np.where(starts, positions, 0))


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector from looking through a batch's tuples again and again while they are made: it
    finds nothing there, and doubles what a tuple costs. A batch is short; what user code leaves waits so long."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Failures:
    """The rows of one call that could not be handled, and what ``on_error`` makes of them.

    Rows may be added in any order; ``settle`` raises for the first in ID order, so that which tuple a run fails at does
    not depend on how the stream was cut into calls."""

    def __init__(self, operator: Operator, names: Sequence[str], rows: Rows) -> None:
        self._operator = operator
        self._names = names
        self._rows = rows
        self._errors: dict[int, BaseException] = {}

    def __len__(self) -> int:
        return len(self._errors)

    def __contains__(self, row: int) -> bool:
        return row in self._errors

    def add(self, row: int, error: BaseException) -> None:
        self._errors[row] = error

    @property
    def final(self) -> bool:
        """Whether there is no point in going on to later rows."""
        return bool(self._errors) and self._operator.on_error == "fail"

    @property
    def first(self) -> int:
        """The first row that failed."""
        return min(self._errors)

    def settle(self) -> Dead | None:
        """Raise RecordError, or give the dead letters, or nothing, as the operator's ``on_error`` says."""
        if not self._errors:
            return None
        failed = sorted(self._errors)
        if self._operator.on_error == "fail":
            raise RecordError(self._report(failed[0]))
        if self._operator.on_error == "skip":
            return None
        return Dead(
            np.array(failed, dtype=np.int64),
            pa.RecordBatch.from_arrays(
                [
                    pa.array([f"operator {self._operator.name}, {self._id(row)}" for row in failed], pa.string()),
                    pa.array([_one_line(self._errors[row]) for row in failed], pa.string()),
                    pa.array([self._record(row) for row in failed], pa.string()),
                ],
                schema=DEAD,
            ),
        )

    def _report(self, row: int) -> str:
        error = self._errors[row]
        lines = [f"operator {self._operator.name} could not handle the tuple with {self._id(row)}: {_text(error)}"]
        record = self._record(row)
        lines.append(f"  fields: {record[:_SHOWN]}{'…' if len(record) > _SHOWN else ''}")
        lines += [f"  {frame}" for frame in user_frames(error)]
        lines.append("  on_error: skip would leave such tuples out, on_error: dead-letter would put them aside")
        return "\n".join(lines)

    def _id(self, row: int) -> str:
        return f"ID ({self._rows.seq[row]}, {self._rows.sub[row]})"

    def _record(self, row: int) -> str:
        values = [plain(column.slice(row, 1))[0] for column in self._rows.data.columns]
        return msgspec.json.encode(dict(zip(self._names, values, strict=True))).decode()


def _text(error: BaseException) -> str:
    text = str(error) if isinstance(error, Refused) else describe(error)
    # A lone surrogate in the message could not be written anywhere.
    return text.encode("utf-8", "backslashreplace").decode()


def _one_line(error: BaseException) -> str:
    """The error with the place in the user's code that raised it, without folders: the same wherever it runs."""
    text = _text(error)
    text = text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_ours(frame.filename)]
    if isinstance(error, Refused) or not frames:
        return text
    return f"{text} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"
