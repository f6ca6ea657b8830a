"""The chain: the kernels that run over the rows of one slice, one after the other.

Mostly there is one. Where operators follow each other with no routing in between (see ``dadstorm.chains``), what one
makes of some rows goes to the next right there. IDs are given after each, as they would be had the rows travelled: what
comes out does not tell.

At most one of the kernels has state, and it is the chain's.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dadstorm.core.kernel import NO_LETTERS, Kernel, Stateless, identify
from dadstorm.core.line import Packing
from dadstorm.core.rows import Rows


class Chain:
    def __init__(
        self, first: tuple[Kernel, Packing] | None, others: Sequence[tuple[Kernel, Packing]], schema: pa.Schema
    ) -> None:
        """``first`` is None where a source is; ``schema``: of what comes out at the end."""
        self._first = first
        self._others = others
        keeps = [kernel for kernel, _ in (*((first,) if first else ()), *others) if not isinstance(kernel, Stateless)]
        assert len(keeps) <= 1, "a chain has one state"
        self._state = keeps[0] if keeps else None
        self._nothing = Rows.empty(schema)

    def process(self, rows: Rows) -> tuple[Rows, Rows]:
        """The rows of each port that some rows become; they have entered the first operator."""
        assert self._first is not None
        kernel, packing = self._first
        main, letters = identify(rows, kernel.process(rows), packing)
        return (self.onward(main), letters) if self._others else (main, letters)

    def onward(self, rows: Rows) -> Rows:
        """What rows that the first operator made become."""
        for kernel, packing in self._others:
            if not len(rows):
                return self._nothing
            entered = Rows(rows.seq, packing.enter(rows.sub, 0), rows.data)
            rows, letters = identify(entered, kernel.process(entered), packing)
            assert letters is NO_LETTERS, "who has dead letters is chained to nobody"
        return rows

    def delta(self) -> pa.RecordBatch | None:
        return None if self._state is None else self._state.delta()

    def restore(self, state: pa.RecordBatch) -> None:
        assert self._state is not None, "a stateless chain was given state to restore"
        self._state.restore(state)
