"""How rows get into Spark, and out of it into files.

The rows of a commit are staged as plain Parquet files, which Spark reads in parallel with its vectorised reader. That
is as fast as handing over Arrow tables where commits are small, twice as fast from 100,000 rows on, and takes no
memory in the Java process where they are large. Every file is one partition, and a union keeps the order of its parts:
Spark writes the rows in the order in which they came. Staged columns are called c0, c1…: names that mean something to
Parquet or SQL cannot get in the way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dadstorm.core.rows import Rows
from dadstorm.errors import UserError
from dadstorm.plan import Field
from dadstorm.spark.session import Session, reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGED_ROWS = 1 << 18
"""Rows of a staged file, and so of a task of Spark's, at most."""
ID_COLUMNS = (Field("_seq", "int"), Field("_sub", "int"), Field("_epoch", "int"))
_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
FORMAT_OPTIONS: dict[str, dict[str, str]] = {
    "csv": {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false", "escape": '"', **_TIMES},
    "json": {"ignoreNullFields": "false", **_TIMES},
}
"""What it takes for a format to give back what was written. Without them blanks are trimmed, nulls are left out, and
timestamps lose their microseconds."""
SPARK_TYPES = {"string": "string", "int": "bigint", "float": "double", "bool": "boolean", "timestamp": "timestamp"}


def columns_of(fields: Sequence[Field], with_id: bool) -> tuple[Field, ...]:
    """The columns of a table, in their order."""
    return (*ID_COLUMNS, *fields) if with_id else tuple(fields)


def options_of(form: str, options: dict[str, str]) -> dict[str, str]:
    """The options for a format, ours and then the user's. They count for reading as well as for writing."""
    own = {key.lower() for key in options}
    return {key: value for key, value in FORMAT_OPTIONS.get(form, {}).items() if key.lower() not in own} | options


def columns_in(rows: Rows, span: int) -> list[pa.Array]:
    """The ID columns and the fields of rows, as they are staged."""
    # Timestamps are UTC: said so, they are the same moment for every reader.
    fields = [
        column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else _plain(column)
        for column in rows.data.columns
    ]
    return [pa.array(rows.seq), pa.array(rows.sub), pa.array(rows.seq // span), *fields]


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


class Writer:
    """Writes the commits of one sink through a session."""

    def __init__(
        self,
        fields: Sequence[Field],
        *,
        form: str,
        with_id: bool,
        span: int,
        partition_by: Sequence[str] = (),
        options: dict[str, str] | None = None,
    ) -> None:
        self._fields = tuple(fields)
        self._form = form
        self._with_id = with_id
        self._span = span
        self._partition_by = list(partition_by)
        self._options = options_of(form, options or {})
        # IDs are staged where they are written, or rows have to be put in their order.
        self._ids = with_id or bool(partition_by)
        self._staged = columns_of(fields, self._ids)

    def probe(self, session: Session, folder: str) -> None:
        """Have Spark write no rows at all: an unknown format, a wrong option, columns that it cannot write and a folder
        that it may not write are found before anything is replaced. Raises UserError."""
        try:
            self.write(session, [], folder)
            found = os.path.isdir(folder)  # Files are not a must: no rows in partitions are none.
        except Exception as error:
            if session.lost(error):
                raise
            raise UserError(f"Spark cannot write this as {self._form}: {reason(error)}") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not found:
            raise UserError(f"{self._form} is no format of files: expected one that writes a folder of files")

    def stage(self, parts: Sequence[Rows], folder: str) -> list[str]:
        """Put rows into files for Spark, in order."""
        import pyarrow.parquet as pq

        os.makedirs(folder, exist_ok=True)
        skipped = 0 if self._ids else len(columns_of((), True))
        names = [f"c{index}" for index in range(len(self._staged))]

        def one(index: int, piece: Sequence[Rows]) -> str:
            tables = [
                pa.Table.from_arrays(columns_in(rows, self._span)[skipped:], names=names) for rows in piece
            ]
            path = os.path.join(folder, f"rows-{index:06d}.parquet")
            pq.write_table(
                pa.concat_tables(tables), path, compression="none", use_dictionary=False, write_statistics=False,
                store_schema=False, row_group_size=STAGED_ROWS,
            )  # fmt: skip
            return path

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, *zip(*enumerate(_pieces(parts)), strict=True))) if parts else []

    def write(self, session: Session, staged: Sequence[str], folder: str) -> None:
        """Have Spark write staged files, in order, to a folder."""
        frame = self._frame(session, staged)
        if self._partition_by:
            by = [_quoted(name) for name in self._partition_by]
            frame = frame.sortWithinPartitions(*by, "_seq", "_sub")
        if self._ids and not self._with_id:
            frame = frame.drop(*(field.name for field in ID_COLUMNS))
        writer: Any = frame.write.format(self._form).mode("overwrite").options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(f"file://{folder}")

    def _frame(self, session: Session, staged: Sequence[str]) -> DataFrame:
        names = [field.name for field in self._staged]
        schema = ", ".join(f"c{index} {SPARK_TYPES[field.type]}" for index, field in enumerate(self._staged))
        if not staged:
            return session.spark.createDataFrame([], schema).toDF(*names).coalesce(1)
        reader = session.spark.read.schema(schema)
        frames = [reader.parquet(f"file://{path}").coalesce(1) for path in staged]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        return whole.toDF(*names)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _pieces(parts: Sequence[Rows]) -> list[list[Rows]]:
    """The rows in lists of about equal length, none too long, two at least if there are many."""
    total = sum(len(rows) for rows in parts)
    count = max(-(-total // STAGED_ROWS), 2 if total >= STAGED_ROWS // 2 else 1)
    size = -(-total // count)
    pieces: list[list[Rows]] = [[]]
    room = size
    for rows in parts:
        while len(rows):
            if not room:
                pieces.append([])
                room = size
            head = rows.slice(0, room)
            pieces[-1].append(head)
            room -= len(head)
            rows = rows.slice(len(head), len(rows))
    return pieces
