"""A spool: the rows of a stream between the topology that writes them and whoever reads them, as a folder.

    DIR/spool.json                               whose it is, its columns, and the run that writes it
    DIR/run-<run>/<lo>-<hi>-<rows>.arrow         the rows of one range of the line, in ID order
    DIR/run-<run>/trimmed.json                   up to where rows have been read and may be gone

A range appears by one rename and never changes. Ranges tile the line, as tiles on a channel do: each begins where the
one before ends. So a position on the line means the same to writer and reader, whatever either of them has
forgotten: the reader asks for the rows between two seqs, and gets the same ones every time until it has said that it
needs them no more. Only the writer adds ranges, only the reader removes them, from the lowest on. Another run has
another folder: who still reads the old one can do no harm to the new one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import UserError
from dadstorm.plan import Field
from dadstorm.sinks.disk import ensure_folder, remove, sync_folder
from dadstorm.spark import manifest
from dadstorm.spark.writer import columns_in, columns_of

HEADER = "spool.json"
TRIMMED = "trimmed.json"
VERSION = 1
_RANGE = re.compile(r"(\d{19})-(\d{19})-(\d+)\.arrow\Z")
_OURS = re.compile(r"(spool\.json(\.tmp)?|run-[0-9A-Za-z_-]+)\Z")
_ARROW = {
    "string": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose spool it is, and what its rows look like."""

    topology: str
    sink: str
    columns: tuple[tuple[str, str], ...]
    """Names and types of the fields."""
    span: int
    run: str
    version: int = VERSION

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, kind) for name, kind in self.columns)  # type: ignore[arg-type]


class Trimmed(msgspec.Struct, frozen=True):
    below: int


class Range(NamedTuple):
    """One file of the spool: the rows from ``lo`` up to ``hi``."""

    lo: int
    hi: int
    rows: int
    path: str


class Gone(Exception):
    """Rows that are asked for are not there, and will not come."""


def header_in(folder: str) -> Header | None:
    """What a spool says about itself; None: there is none yet. Raises UserError for one that is not ours."""
    return manifest.load(os.path.join(folder, HEADER), Header, VERSION)


def begin(folder: str, header: Header) -> Spool:
    """A new spool in place of that of an earlier run, which is gone when this returns."""
    ensure_folder(folder)
    foreign = sorted(name for name in os.listdir(folder) if not _OURS.fullmatch(name))
    if foreign:
        raise UserError(
            f"{folder}: expected an empty folder or a spool, found {foreign[0]!r} in it; move it away, "
            "or give the sink another path"
        )
    ensure_folder(os.path.join(folder, f"run-{header.run}"))
    manifest.put(os.path.join(folder, HEADER), msgspec.json.format(msgspec.json.encode(header)) + b"\n", fsync=True)
    for name in os.listdir(folder):
        if name.startswith("run-") and name != f"run-{header.run}":
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return Spool(folder, header)


class Spool:
    """The spool of one run."""

    def __init__(self, folder: str, header: Header) -> None:
        self.header = header
        self.folder = os.path.join(folder, f"run-{header.run}")
        self._schema = pa.schema([(field.name, _ARROW[field.type]) for field in columns_of(header.fields, True)])

    def ranges(self) -> list[Range]:
        """What is there, lowest first."""
        try:
            names = sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
        found = ((match, name) for name in names if (match := _RANGE.fullmatch(name)))
        return [Range(int(m[1]), int(m[2]), int(m[3]), os.path.join(self.folder, name)) for m, name in found]

    def trimmed(self) -> int:
        """Up to where rows are needed no more."""
        try:
            with open(os.path.join(self.folder, TRIMMED), "rb") as file:
                return msgspec.json.decode(file.read(), type=Trimmed).below
        except FileNotFoundError:
            return START

    def stand(self) -> int:
        """Up to where the writer has come."""
        there = self.ranges()
        return max(self.trimmed(), there[-1].hi if there else START)

    def weight(self) -> int:
        """Bytes of all that is there."""
        sizes = 0
        for one in self.ranges():
            with contextlib.suppress(FileNotFoundError):
                sizes += os.path.getsize(one.path)
        return sizes

    # -- the writer ----------------------------------------------------------------------------------------------

    def add(self, lo: int, hi: int, parts: Sequence[Rows], fsync: bool) -> None:
        """The rows from ``lo``, where the spool stands, up to ``hi``."""
        count = sum(len(rows) for rows in parts)
        path = os.path.join(self.folder, f"{lo:019d}-{hi:019d}-{count}.arrow")
        with open(f"{path}.tmp", "wb") as file:
            with pa.ipc.new_file(file, self._schema) as writer:
                for rows in parts:
                    columns = columns_in(rows, self.header.span)
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.rename(f"{path}.tmp", path)
        if fsync:
            sync_folder(self.folder)

    def tidy(self) -> None:
        """Remove what a writer that died has left half done."""
        for name in os.listdir(self.folder):
            if name.endswith(".arrow.tmp"):
                remove(os.path.join(self.folder, name))

    # -- the reader ----------------------------------------------------------------------------------------------

    def between(self, start: int, end: int) -> list[Range]:
        """The ranges that hold the rows from ``start`` up to ``end``. Raises Gone if some are not there."""
        if start >= end:
            return []
        there = [one for one in self.ranges() if one.hi > start and one.lo < end]
        covered = start
        for one in there:
            if one.lo > covered:
                break
            covered = one.hi
        if covered < end:
            raise Gone(
                f"{self.folder}: rows from {start} up to {end} were asked for, and those from {covered} on are not "
                f"there; rows up to {self.trimmed()} have been trimmed"
            )
        return there

    def end_within(self, start: int, most: int | None) -> int:
        """How far to read from ``start``: up to where the writer stands, or as far as so many rows go. The rows of
        one seq stay together, so that it may be more of them if a single seq has more."""
        left = most
        end = start
        for one in self.ranges():
            if one.hi <= start:
                continue
            if left is not None and (one.rows > left or one.lo < start):
                seqs = seqs_in(one.path)
                seqs = seqs[np.searchsorted(seqs, start) :]
                if len(seqs) > left:
                    # The last seq that begins within what is left, but at least the first one.
                    cut = int(seqs[left])
                    first = int(seqs[0])
                    return cut if cut > first or end > start else _after(seqs, first, one.hi)
                left -= len(seqs)
            elif left is not None:
                left -= one.rows
            end = one.hi
        return end

    def trim(self, below: int) -> None:
        """Rows below are needed no more."""
        if below <= self.trimmed():
            return
        with contextlib.suppress(FileNotFoundError):  # Another run has begun, and this one is gone.
            manifest.put(os.path.join(self.folder, TRIMMED), msgspec.json.encode(Trimmed(below)), fsync=False)
            for one in self.ranges():
                if one.hi <= below:
                    remove(one.path)


def _after(seqs: np.ndarray, first: int, hi: int) -> int:
    """The next seq after the first one's rows; ``hi`` if there is none."""
    index = int(np.searchsorted(seqs, first, side="right"))
    return int(seqs[index]) if index < len(seqs) else hi


def seqs_in(path: str) -> np.ndarray:
    """The seqs of a range's rows."""
    with pa.memory_map(path) as file:
        column = pa.ipc.open_file(file).read_all().column("_seq")
        return np.array(column.to_numpy()) if len(column) else np.empty(0, np.int64)


def rows_between(path: str, lo: int, hi: int, with_id: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a range from ``lo`` up to ``hi``."""
    skipped = 0 if with_id else len(columns_of((), True))
    with pa.memory_map(path) as file:
        reader = pa.ipc.open_file(file)
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            seqs = batch.column(0).to_numpy()
            first, last = (int(np.searchsorted(seqs, seq)) for seq in (lo, hi if hi < END else END))
            if first < last:
                part = batch.slice(first, last - first)
                yield part.select(part.schema.names[skipped:])
