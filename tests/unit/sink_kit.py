"""What the tests of sinks share: a sink operator, rows from plain Python tuples, and writing them in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.plan import Field, Operator, Plan, Replica, Routing
from dadstorm.sinks import make_sink
from dadstorm.sinks.base import Mark, Sink

FIELDS = (
    Field("s"),
    Field("i", "int"),
    Field("f", "float"),
    Field("b", "bool"),
    Field("t", "timestamp"),
)
WORDS = (Field("word"), Field("n", "int"))


def sink_operator(form: str, path: Path | str | None, fields: Sequence[Field] = WORDS, **params: Any) -> Operator:
    where = None if path is None else str(path)
    return Operator(
        name="out",
        kind="sink",
        params={"format": form, "path": where, **params},
        inputs=(),
        fields=tuple(fields),
        slices=1,
        replicas=(Replica("here"),),
        routing=Routing(),
    )


def open_sink(
    operator: Operator, mark: Mark | None = None, cut: int = START, say: Callable[[str], None] | None = None
) -> Sink:
    return make_sink(operator, Plan("test", (operator,)), mark=mark, cut=cut, say=say)


def rows_of(tuples: Sequence[tuple[Any, ...]], fields: Sequence[Field] = WORDS, seq: int = 0) -> Rows:
    """One row per tuple, their seqs counting from ``seq``."""
    schema = sink_operator("csv", None, fields).schema
    columns = list(zip(*tuples, strict=True)) if tuples else [()] * len(fields)
    data = pa.RecordBatch.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
    return Rows(np.arange(seq, seq + len(tuples), dtype=np.int64), np.zeros(len(tuples), dtype=np.int64), data)


def write_all(operator: Operator, rows: Rows, cuts: Iterable[int] = (), commits: Iterable[int] = ()) -> None:
    """A whole run: the rows in pieces that end at ``cuts``, with a commit at those that are also in ``commits``."""
    sink, done, commits = open_sink(operator), 0, set(commits)
    for cut in sorted({*cuts, *commits, len(rows)}):
        sink.write(rows.slice(done, cut))
        done = cut
        if cut in commits:
            sink.commit(cut)
    sink.commit(END)
    sink.close()
