"""A running topology as a source of Spark's: ``spark.readStream.format("dadstorm")``, and ``spark.read``.

The topology has a ``spool`` sink; this reads it. An offset is a run and a seq: a position on the ID line. The rows
between two offsets are the same whenever they are asked for, so a query that is restarted from its checkpoint gets the
batch that it had begun again, row by row. What Spark has committed is trimmed from the spool, and a full spool has room
again.

Two habits of Spark's to know. It asks for the latest offset every few milliseconds while there is nothing new, so that
call waits for a while. And it says that a batch is done only when it plans the next one: while nothing new comes, the
last batch would stay in the spool, and a topology that waits for room in it could wait for ever. So what lies below the
offset from which Spark asks on is trimmed when there is nothing new: a batch is planned when the one before is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dadstorm.core.line import START
from dadstorm.errors import UserError
from dadstorm.plan import Field
from dadstorm.spark.spool import Gone, Header, Spool, header_in, rows_between
from dadstorm.spark.writer import SPARK_TYPES, columns_of

OPTIONS = ("path", "topology", "out", "sink", "with_id", "max_rows", "trim")
POLL_S = 1.0
"""How long Spark is kept waiting for something new."""
LOOK_EVERY_S = 0.02

Offset = dict[str, Any]


class DadstormSource(DataSource):  # type: ignore[misc]
    """``spark.dataSource.register(DadstormSource)`` makes it known as ``dadstorm``."""

    @classmethod
    def name(cls) -> str:
        return "dadstorm"

    def schema(self) -> str:
        chosen = Chosen.of(self.options)
        fields = columns_of(chosen.fields, chosen.with_id)
        return ", ".join(f"`{field.name}` {SPARK_TYPES[field.type]}" for field in fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SpoolReader(Chosen.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SpoolStreamReader(Chosen.of(self.options))


@dataclass(frozen=True)
class Chosen:
    """What the options of a query say."""

    folder: str
    fields: tuple[Field, ...]
    with_id: bool
    max_rows: int | None
    trim: bool

    @staticmethod
    def of(options: Mapping[str, str]) -> Chosen:
        if unknown := sorted(key for key in options if key.lower() not in OPTIONS):
            raise UserError(f"dadstorm: unknown option {unknown[0]!r}; expected one of {', '.join(OPTIONS)}")
        folder, fields = _place(options)
        most = options.get("max_rows")
        if most is not None and not (most.isdecimal() and int(most) > 0):
            raise UserError(f"dadstorm: option max_rows: found {most!r}; expected a whole number from 1 on")
        return Chosen(
            folder, fields, _flag(options, "with_id", False), None if most is None else int(most),
            _flag(options, "trim", True),
        )  # fmt: skip

    def spool(self) -> Spool | None:
        """The spool, if the topology has begun."""
        header = header_in(self.folder)
        if header is not None and header.fields != self.fields:
            raise UserError(f"{self.folder} has other columns by now; begin the query anew")
        return None if header is None else Spool(self.folder, header)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise UserError(f"dadstorm: option {name}: found {value!r}; expected true or false")
    return value == "true"


def _place(options: Mapping[str, str]) -> tuple[str, tuple[Field, ...]]:
    """The folder of the spool, and its columns: from the topology, or from the spool itself."""
    if (path := options.get("topology")) is not None:
        from dadstorm import topology

        plan = topology.load(os.path.abspath(path), out=options.get("out"))
        spools = {one.name: one for one in plan.operators if one.kind == "sink" and one.params["format"] == "spool"}
        wanted = options.get("sink")
        if wanted is None and len(spools) == 1:
            wanted = next(iter(spools))
        if wanted not in spools:
            there = f"there are {', '.join(spools)}" if spools else "there is none: sinks: {NAME: {input: …, spool: }}"
            asked = "which spool sink is not said" if wanted is None else f"no spool sink {wanted!r}"
            raise UserError(f"dadstorm: {path}: {asked}; {there}")
        return spools[wanted].params["path"], spools[wanted].fields
    if (path := options.get("path")) is None:
        raise UserError("dadstorm: expected option topology, a topology's file, or path, a spool's folder")
    folder = os.path.abspath(path)
    header: Header | None = header_in(folder)
    if header is None:
        raise UserError(f"dadstorm: {folder} is no spool; start the topology first, or give its file as topology")
    return folder, header.fields


@dataclass
class Piece(InputPartition):  # type: ignore[misc]
    """The rows of one file of the spool between two seqs."""

    path: str
    lo: int
    hi: int


def _pieces(spool: Spool, start: int, end: int) -> list[Piece]:
    return [Piece(one.path, max(one.lo, start), min(one.hi, end)) for one in spool.between(start, end)]


class SpoolReader(DataSourceReader):  # type: ignore[misc]
    """All rows that are in the spool now."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen

    def partitions(self) -> Sequence[InputPartition]:
        spool = self._chosen.spool()
        return [] if spool is None else _pieces(spool, spool.trimmed(), spool.stand())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        return rows_between(partition.path, partition.lo, partition.hi, self._chosen.with_id)


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The rows of the spool, range by range, as they come."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._target: int | None = None
        """Where a query ends that wants only what is there now."""

    def initialOffset(self) -> Offset:
        spool = self._chosen.spool()
        # A topology that has not begun may have any run.
        return {"run": "", "seq": START} if spool is None else _offset(spool, spool.trimmed())

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._chosen.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        spool = self._chosen.spool()
        self._target = START if spool is None else spool.stand()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        until = time.monotonic() + (POLL_S if self._target is None else 0.0)
        while True:
            spool = self._spool_of(start)
            if spool is not None:
                end = spool.end_within(start["seq"], most)
                end = end if self._target is None else min(end, max(self._target, start["seq"]))
                if end > start["seq"]:
                    return _offset(spool, end)
            if time.monotonic() >= until:
                if spool is not None:
                    self.commit(start)
                return start
            time.sleep(LOOK_EVERY_S)

    def reportLatestOffset(self) -> Offset | None:
        spool = self._chosen.spool()
        return None if spool is None else _offset(spool, spool.stand())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        spool = self._spool_of(end)
        if spool is None or start["seq"] >= end["seq"]:
            return []
        try:
            return _pieces(spool, start["seq"], end["seq"])
        except Gone as error:
            raise UserError(f"{error}; one query trims a spool, others say trim=false") from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        return rows_between(partition.path, partition.lo, partition.hi, self._chosen.with_id)

    def commit(self, end: Offset) -> None:
        spool = self._spool_of(end)
        if spool is not None and self._chosen.trim:
            spool.trim(end["seq"])

    def _spool_of(self, offset: Offset) -> Spool | None:
        """The spool that an offset is a position in; None while there is none."""
        spool = self._chosen.spool()
        if offset["run"] and (spool is None or spool.header.run != offset["run"]):
            raise UserError(
                f"{self._chosen.folder} is the spool of another run than the one that this query has read; "
                "begin the query anew with another checkpoint location"
            )
        return spool


def _offset(spool: Spool, seq: int) -> Offset:
    return {"run": spool.header.run, "seq": seq}
