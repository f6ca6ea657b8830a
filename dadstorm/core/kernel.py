"""What an operator computes, apart from everything around it.

A kernel gets rows in ID order and returns output columns together with, for each output row, its parent (an index into
the input rows) and its ordinal (which output of that parent it is). The slice derives the IDs. A kernel's output over a
stream may not depend on how the stream is cut into calls: ``process(a + b)`` is ``process(a)`` then ``process(b)``.
It must not look at clocks, ``hash()``, set order or anything else that differs between two runs.

State is a table from key to value. A kernel that has state reports what changed since it was last asked (``delta``) and
takes such tables back (``restore``); in between nobody looks inside. Columns whose name begins with ``key_`` form the
key, the others the value, and a boolean column ``gone`` marks deleted keys: so a peer can fold deltas without knowing
the operator. A table of key columns alone is a set that only grows: each key is in one delta. A kernel that never
deletes a key may number its keys from 0, in the order in which they came, in a column ``slot``; who restores it from
such tables, in their order, gives them the same numbers.

A row that an operator or a source cannot handle follows ``on_error``: ``fail`` raises ``RecordError``; ``skip`` drops
the row; ``dead-letter`` moves it to the operator's second output, a stream like any other with the schema ``DEAD``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dadstorm.core.line import Ints, Packing
from dadstorm.core.ports import DEAD_FIELDS
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed

DEAD = pa.schema([(name, pa.string()) for name in DEAD_FIELDS])
"""A dead letter."""

NO_LETTERS = Rows.empty(DEAD)


@dataclass(frozen=True, slots=True)
class Dead:
    """Dead letters of one call, in ID order: ``parent`` indexes the input rows, at most one letter per input row."""

    parent: Ints
    data: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Output:
    """What a kernel made of some rows."""

    data: pa.RecordBatch
    parent: Ints | None = None
    """Input row of each output row, ascending. None: output row i comes from input row i."""
    ordinal: Ints | None = None
    """Which output of its parent each row is, counted from 0. None: all 0."""
    dead: Dead | None = None


def identify(rows: Rows, output: Output, packing: Packing) -> tuple[Rows, Rows]:
    """Give what a kernel made of some rows its IDs: the rows of each port."""
    parent = output.parent
    seq, sub = (rows.seq, rows.sub) if parent is None else (rows.seq[parent], rows.sub[parent])
    main = Rows(seq, packing.leave(sub, output.ordinal), output.data)
    if output.dead is None:
        return main, NO_LETTERS
    seq, sub = rows.seq[output.dead.parent], rows.sub[output.dead.parent]
    return main, Rows(seq, packing.leave(sub, None), output.dead.data)


class Kernel(Protocol):
    """An operator's computation over one slice."""

    def process(self, rows: Rows) -> Output:
        """Consume rows in ID order. ``rows.sub`` is the ID's second half as this operator sees it."""
        ...

    def delta(self) -> pa.RecordBatch | None:
        """What changed in the state since the last call; None if nothing did or there is no state."""
        ...

    def restore(self, state: pa.RecordBatch) -> None:
        """Apply a table that ``delta`` once returned (or several of them folded into one)."""
        ...


class Stateless:
    """The state half of a kernel that has none."""

    def delta(self) -> pa.RecordBatch | None:
        return None

    def restore(self, state: pa.RecordBatch) -> None:
        raise AssertionError("a stateless operator was given state to restore")


class RecordError(RunFailed):
    """A record that an operator or a source could not handle under ``on_error: fail``; the message says all."""
