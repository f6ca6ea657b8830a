"""Reading back what a sink wrote with Spark: exactly, as its own types, and how it begins, for people.

What ``dadstorm run`` shows when all is written is read by the session that wrote it: no second Java process has to
start. The text goes to the run's folder, beside Spark's log, where the front end finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.schemas import schema_of
from dadstorm.errors import printable
from dadstorm.plan import Field
from dadstorm.sinks.text import as_text
from dadstorm.spark.commits import Commit
from dadstorm.spark.session import Session
from dadstorm.spark.table import Header
from dadstorm.spark.writer import SPARK_TYPES, columns_of, options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_OPTIONS: dict[str, dict[str, str]] = {
    # Spark writes "" for an empty text and nothing for null, and takes both for null unless null has another name.
    "csv": {"multiLine": "true", "nullValue": "\ue000null"},
    "json": {"allowNonNumericNumbers": "true"},
}
"""What it takes to read exactly what was written."""
SHOWN_ROWS = 10
SHOWN_WIDTH = 60
"""Characters of a value that is shown, at most."""


class Reader:
    """Reads rows of a table, as its columns in their order. Without a session it reads Parquet, directly."""

    def __init__(self, header: Header, session: Session | None) -> None:
        self._header = header
        self._session = session
        fields = [Field(name, kind) for name, kind in header.columns]  # type: ignore[arg-type]
        self._columns = columns_of(fields, header.with_id)
        self.schema = schema_of(self._columns)

    def folder(self, folder: str) -> list[pa.RecordBatch]:
        """All rows of one commit."""
        return self._typed(self._parquet(folder) if self._session is None else self._spark([folder]).toArrow())

    def head(self, path: str, commits: Iterable[Commit], limit: int) -> list[pa.RecordBatch]:
        """The first rows of these commits of a table, by commit, file and place in it. Only as many commits are read
        as that takes."""
        from pyspark.sql import functions as f

        there = [commit for commit in commits if commit.folder is not None]
        before = accumulate((commit.rows for commit in there), initial=0)
        taken = takewhile(lambda pair: pair[1] < limit, zip(there, before, strict=False))
        folders = [os.path.join(path, commit.folder or "") for commit, _ in taken]
        if not folders:
            return []
        places = [f.input_file_name().alias("_file"), f.monotonically_increasing_id().alias("_place")]
        frame = self._spark(folders, base=path).select("*", *places)
        return self._typed(frame.orderBy("_file", "_place").limit(limit).toArrow())

    def _typed(self, table: pa.Table) -> list[pa.RecordBatch]:
        table = table.select(self.schema.names)
        columns = [_as(column, field.type) for column, field in zip(table.columns, self.schema, strict=True)]
        batches: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=self.schema).combine_chunks().to_batches()
        return batches

    def _parquet(self, folder: str) -> pa.Table:
        import pyarrow.dataset as ds

        by = [(name, self.schema.field(name).type) for name in self._header.partition_by]
        parts = ds.partitioning(pa.schema(by), flavor="hive") if by else None
        return ds.dataset(folder, format="parquet", partitioning=parts, partition_base_dir=folder).to_table()

    def _spark(self, folders: Sequence[str], base: str | None = None) -> DataFrame:
        assert self._session is not None
        schema = ", ".join(f"`{field.name.replace('`', '``')}` {SPARK_TYPES[field.type]}" for field in self._columns)
        form = self._header.format
        options = READ_OPTIONS.get(form, {}) | options_of(form, self._header.options)
        if base is not None:
            options["basePath"] = f"file://{base}"
        reader: Any = self._session.spark.read.format(form).schema(schema).options(**options)
        return reader.load([f"file://{folder}" for folder in folders])


def shown(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Rows as a table for people."""
    lines = [list(schema.names)]
    for batch in batches:
        columns = [["null" if text is None else text for text in as_text(one).to_pylist()] for one in batch.columns]
        lines += [list(row) for row in zip(*columns, strict=True)]
    cells = [[_short(printable(text)) for text in row] for row in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in schema]
    rows = [
        "| " + " | ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) + " |"
        for row in cells
    ]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    return "\n".join([rule, rows[0], rule, *rows[1:], rule]) + "\n"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_WIDTH else text[: SHOWN_WIDTH - 1] + "…"


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else pc.cast(column, kind)
