"""The sinks of a run on Spark: written in the driver, step by step, by the same code as in the native engine.

The tiles of a step are merged by ID and written, and each sink commits the end of the step before the book does. A run
that goes on from a book makes its sinks anew from the marks in it: what they have beyond is taken back, or recognised.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import Any

from dadstorm.core.line import START
from dadstorm.core.ports import MAIN
from dadstorm.core.rows import Rows
from dadstorm.plan import Plan
from dadstorm.sinks import make_sink
from dadstorm.sinks.base import Sink
from dadstorm.spark.engine.book import Sum
from dadstorm.spark.engine.parcels import Parcel
from dadstorm.spark.engine.sessions import Sessions
from dadstorm.spark.engine.work import merged, sums

PATIENCE_S = 0.5
"""A sink that commits in its own time is looked at at least so often."""


class Outputs:
    def __init__(
        self,
        plan: Plan,
        marks: Mapping[str, dict[str, Any]],
        cut: int,
        *,
        run: str,
        folder: str,
        sessions: Sessions,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._sinks: dict[int, Sink] = {}
        for index, operator in enumerate(plan.operators):
            if operator.kind != "sink":
                continue
            mark = marks.get(operator.name)
            at = START if mark is None else cut
            if operator.params["format"] == "spark":
                from dadstorm.spark.engine.table_sink import TableSink

                self._sinks[index] = TableSink(operator, plan, sessions, mark=mark, cut=at, run=run, folder=folder)
            else:
                # A driver that was taken for dead may live, and notices only before it commits.
                self._sinks[index] = make_sink(
                    operator, plan, mark=mark, cut=at, say=say, run=run, folder=folder, alone=False
                )

    def write(self, tiles: Mapping[int, list[Parcel]], cut: int) -> tuple[dict[str, int], list[Sum]]:
        """Write a step's tiles and ask for their commit: how many rows per sink, and with an audit their digests."""
        written: dict[str, int] = {}
        digests: list[Sum] = []
        for index, sink in self._sinks.items():
            operator = self._plan.operators[index]
            rows = self._rows(index, tiles.get(index, []))
            if rows is not None:
                sink.write(rows)
                written[operator.name] = len(rows)
                if self._plan.audit:
                    found = sums(self._plan.span, rows, MAIN)
                    digests += [(index, one.epoch, one.rows, one.digest) for one in found]
            sink.commit(cut)
        return written, digests

    def _rows(self, index: int, tiles: list[Parcel]) -> Rows | None:
        if not tiles:
            return None
        operator = self._plan.operators[index]
        schema = self._plan.input_schema(operator)
        return merged(self._plan, operator, [(tile.input, tile.rows(schema)) for tile in tiles])

    def committed(self, cut: int) -> dict[str, dict[str, Any]]:
        """Wait until every sink has committed the cut: their marks."""
        for sink in self._sinks.values():
            while sink.committed < cut:
                select.select(sink.wake_fds(), [], [], PATIENCE_S)
        return {self._plan.operators[index].name: sink.mark() for index, sink in self._sinks.items()}

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()
