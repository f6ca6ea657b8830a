"""What Spark reads for a source: which columns it must have, and in which order its rows stand.

The order is a property of the data alone, so that the same input gives every row the same seq in every run. Files are
taken by path, and within a file by position: Spark may split and pack them as it likes, for within one split rows come
in their order. With ``order_by``, and where there are no files (a table, a query), rows are sorted by the named columns
and then by all fields; rows that are still equal then cannot be told apart by anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from dadstorm.errors import UserError
from dadstorm.plan import Field, Operator
from dadstorm.spark.session import Session, reason
from dadstorm.topology.report import nearest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GROUP_BYTES = 8 << 20
"""Of a staged row group: slices share out row groups."""
_TEXT = ("string", "varchar", "char", "void")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
READABLE: dict[str, tuple[str, ...]] = {
    "string": _TEXT,
    "int": (*_TEXT, *_WHOLE),
    "float": (*_TEXT, *_WHOLE, "float", "double", "decimal"),
    "bool": (*_TEXT, "boolean"),
    "timestamp": (*_TEXT, "timestamp", "timestamp_ntz", "date"),
}
"""Per field type, the types of Spark's columns that it is read from. Text is read as a CSV field would be."""


class Reading(msgspec.Struct, frozen=True):
    """All that says which rows a source reads, and in which order."""

    format: str | None
    paths: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    table: str | None = None
    sql: str | None = None
    schema: str | None = None
    order_by: tuple[str, ...] = ()
    options: dict[str, str] = {}

    @staticmethod
    def of(operator: Operator) -> Reading:
        params = operator.params
        fields = tuple((field.name, field.type) for field in operator.fields)
        return Reading(
            params["format"], tuple(params["paths"]), fields, params.get("table"), params.get("sql"),
            params.get("schema"), tuple(params.get("order_by", ())), dict(params.get("options", {})),
        )  # fmt: skip

    def __str__(self) -> str:
        if self.format is None:
            return f"table {self.table}" if self.table is not None else "the query"
        return ", ".join(self.paths) or self.format


def misfits(columns: Mapping[str, str], fields: Sequence[Field], order_by: Sequence[str] = ()) -> list[str]:
    """What is wrong with columns (names and Spark's types) that are to be read as fields, in words."""
    problems = []
    for name in dict.fromkeys([*(field.name for field in fields), *order_by]):
        if name not in columns:
            hint = nearest(name, columns) or f"; there are {', '.join(list(columns)[:50])}"
            problems.append(f'there is no column "{name}"{hint}')
    for field in fields:
        kind = columns.get(field.name)
        if kind is not None and kind.partition("(")[0] not in READABLE[field.type]:
            problems.append(f'column "{field.name}" is {kind}; expected what can be read as {field.type}')
    return problems


def write_rows(session: Session, reading: Reading, folder: str) -> None:
    """Have Spark write the rows, in order, as Parquet: the files in the order of their names.

    Raises UserError for what Spark cannot read at all, and for columns that do not fit."""
    try:
        frame = _loaded(session, reading)
        rows = ordered(frame, reading, columns_of(frame, reading))
    except UserError:
        raise
    except Exception as error:
        if session.lost(error):
            raise
        raise UserError(f"Spark cannot read {reading}: {reason(error)}") from None
    put(rows, folder)


def stream_of(session: Session, reading: Reading) -> DataFrame:
    """A stream with the fields, and with the columns that its batches are sorted by. Raises UserError as
    ``write_rows`` does."""
    from pyspark.sql import functions as F

    try:
        reader = session.spark.readStream.options(**reading.options)
        if reading.table is not None:
            frame = reader.table(reading.table)
        else:
            assert reading.format is not None
            reader = reader.format(reading.format)
            if reading.schema is not None:
                reader = reader.schema(reading.schema)
            frame = reader.load(located(reading.paths[0])) if reading.paths else reader.load()
        columns = columns_of(frame, reading)
        keys = [F.col(quoted(name)).alias(f"_key{index}") for index, name in enumerate(reading.order_by)]
        return frame.select(*(_column(name, columns[name]).alias(name) for name, _ in reading.fields), *keys)
    except UserError:
        raise
    except Exception as error:
        if session.lost(error):
            raise
        raise UserError(f"Spark cannot read {reading} as a stream: {reason(error)}") from None


def sorted_batch(batch: DataFrame, reading: Reading) -> DataFrame:
    """The fields of one micro-batch, by the columns that were named, else as Spark gives them."""
    rows = batch.orderBy(*(f"_key{index}" for index in range(len(reading.order_by)))) if reading.order_by else batch
    return rows.select(*(quoted(name) for name, _ in reading.fields))


def columns_of(frame: DataFrame, reading: Reading) -> dict[str, str]:
    """The columns of a frame and their types. Raises UserError if they do not fit the fields."""
    columns = {column.name: column.dataType.simpleString() for column in frame.schema}
    fields = [Field(name, kind) for name, kind in reading.fields]  # type: ignore[arg-type]
    if problems := misfits(columns, fields, reading.order_by):
        raise UserError(*(f"{reading}: {problem}" for problem in problems))
    return columns


def put(frame: DataFrame, folder: str) -> None:
    """Write a frame as staged rows."""
    writer = frame.write.mode("overwrite").option("parquet.block.size", str(GROUP_BYTES))
    writer.parquet(f"file://{folder}")


def _loaded(session: Session, reading: Reading) -> DataFrame:
    spark = session.spark
    if reading.sql is not None:
        return spark.sql(reading.sql)
    reader = spark.read.options(**reading.options)
    if reading.table is not None:
        return reader.table(reading.table)
    assert reading.format is not None
    reader = reader.format(reading.format)
    if reading.schema is not None:
        reader = reader.schema(reading.schema)
    return reader.load([located(path) for path in reading.paths]) if reading.paths else reader.load()


def located(path: str) -> str:
    """A path as Spark takes it: those without a scheme are of this machine, whatever its default is."""
    return path if "://" in path else f"file://{path}"


def ordered(frame: DataFrame, reading: Reading, columns: Mapping[str, str]) -> DataFrame:
    """The fields of a frame, its rows in their order."""
    from pyspark.sql import functions as F

    wanted = [_column(name, columns[name]).alias(name) for name, _ in reading.fields]
    if reading.paths and not reading.order_by and "_metadata" not in columns:
        places = ("file_path", "file_block_start")
        placed = frame.select(
            *wanted,
            *(F.col(f"_metadata.{name}").alias(f"_place{index}") for index, name in enumerate(places)),
            F.monotonically_increasing_id().alias("_place2"),
        )
        rows = placed.orderBy("_place0", "_place1", "_place2")
    else:
        keys = [F.col(quoted(name)).alias(f"_key{index}") for index, name in enumerate(reading.order_by)]
        placed = frame.select(*wanted, *keys)
        by = [F.col(f"_key{index}") for index in range(len(keys))]
        for name, _ in reading.fields:
            by.append(F.col(quoted(name)))
            if columns[name] in ("float", "double"):
                # To Spark -0.0 and 0.0 are equal; to those who read the rows they are not.
                by.append(F.when(by[-1] == 0, by[-1].cast("string")))
        rows = placed.orderBy(*by)
    return rows.select(*(quoted(name) for name, _ in reading.fields))


def _column(name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    column = F.col(quoted(name))
    return column.cast("string") if kind == "void" else column


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
