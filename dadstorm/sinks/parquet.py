"""Parquet: a folder of files that each hold the same number of rows.

``part-000000.parquet``, ``part-000001.parquet``… hold exactly ``PART_ROWS`` rows each but the last; their row groups
end at fixed row counts too (or earlier, after ``GROUP_TEXT_BYTES`` of text, which bounds memory). Nothing depends on
how rows were batched or when commits came, so two runs leave the same bytes.

A Parquet file cannot be read before its footer is written, so the rows of the part under way also go to a *spool*, an
Arrow stream beside it that only grows: a commit flushes it. To resume at a mark (so many parts, so many rows of the
next) those rows are fed again, from the spool, or from the part itself if that was completed after the mark. A part
appears under its name when it is whole and on the disk; only then does its spool go. Readers of a folder skip the names
that begin with ``_``, as the unfinished ones do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator
from dadstorm.sinks.base import Mark
from dadstorm.sinks.disk import close_quietly, ensure_folder, lock, remove, sync, sync_folder, told, unlock
from dadstorm.sinks.rows_out import Progress, Shape

PART_ROWS = 1 << 20
"""Rows of a file: some tens of megabytes, what readers of Parquet like."""

GROUP_ROWS = 1 << 17
"""Rows of a row group: what is held in memory."""

GROUP_TEXT_BYTES = 64 << 20
"""A row group also ends with the row at which its text reaches this size: large rows must not fill the memory."""

SPOOL_ROWS = 1 << 13
"""Rows that gather before they are spooled, unless a commit comes first: single rows would be all overhead."""

_OURS = re.compile(r"(part-\d{6,}\.parquet|_part-\d{6,}\.(tmp|spool|respool))")


class ParquetSink:
    """Rows as a folder of Parquet files. Those of an earlier run are replaced, unless ``mark`` says otherwise."""

    def __init__(self, operator: Operator, *, mark: Mark | None, cut: int, alone: bool = True) -> None:
        self._name = operator.name
        self._path: str = operator.params["path"]
        self._shape = Shape(operator)
        self._progress = Progress(operator, cut)
        self._fsync = bool(operator.params.get("fsync"))
        self._part: _Part | None = None
        self._index = 0 if mark is None else int(mark["parts"])
        with told(self._name, self._path):
            ensure_folder(self._path)
            self._folder: int | None = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if alone:
                    lock(self._folder, self._name, self._path)
                self._refuse_foreign_files()
                if mark is None:
                    self._keep(set())
                else:
                    self._resume(int(mark["rows"]))
            except BaseException:
                self.close()
                raise
        self._mark = self._here()

    def _refuse_foreign_files(self) -> None:
        foreign = sorted(name for name in os.listdir(self._path) if not _OURS.fullmatch(name))
        if foreign:
            raise RunFailed(
                f"sink {self._name}: cannot write {self._path}: expected an empty folder or one of a Parquet "
                f"sink's, found {foreign[0]!r} in it; move it away, or give the sink another path"
            )

    def _keep(self, names: set[str]) -> None:
        """Remove every file but these."""
        for name in os.listdir(self._path):
            if name not in names:
                remove(os.path.join(self._path, name))

    def _resume(self, rows: int) -> None:
        """Go back to a mark: keep its parts, feed the rows after them again, forget everything else."""
        whole = [_name(index) for index in range(self._index)]
        for name in whole:
            if not os.path.exists(os.path.join(self._path, name)):
                raise self._lost(f"{self._index} whole parts", f"no {name}")
        if rows:
            self._part = _Part(self._path, self._index, self._shape.schema, spool="respool")
            found = 0
            for batch in self._old_rows(rows):
                self._part.feed(batch)
                found += batch.num_rows
            if found < rows:
                self._part.abandon()
                raise self._lost(f"{rows} rows of part {self._index} in its spool", f"{found} rows")
            self._part.adopt_spool()
        self._keep({*whole, *(self._part.names if self._part else ())})

    def _old_rows(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The first rows of the part under way, from its spool or, if it was completed since, from itself."""
        part, spool = (os.path.join(self._path, name) for name in (_name(self._index), f"_{_stem(self._index)}.spool"))
        batches = _read_part(part) if os.path.exists(part) else _read_spool(spool)
        for batch in batches:
            yield batch.slice(0, rows)
            rows -= min(rows, batch.num_rows)
            if not rows:
                return

    def _lost(self, expected: str, found: str) -> RunFailed:
        return RunFailed(
            f"sink {self._name}: cannot go on with {self._path}: expected {expected} as committed, found {found}; "
            "put the folder back as the last run left it, or run from the beginning"
        )

    def write(self, rows: Rows, again: bool = False) -> None:
        if not len(rows):
            return
        self._progress.wrote(rows, again)
        batch = self._shape.batch(rows)
        with told(self._name, self._path):
            while batch.num_rows:
                part = self._part = self._part or _Part(self._path, self._index, self._shape.schema)
                head = batch.slice(0, PART_ROWS - part.rows)
                part.feed(head)
                batch = batch.slice(head.num_rows)
                if part.rows == PART_ROWS:
                    self._finish(part)

    def _finish(self, part: _Part) -> None:
        part.finish()
        self._part = None
        self._index += 1

    def commit(self, cut: int) -> None:
        self._progress.check(cut)
        with told(self._name, self._path):
            if cut != END:
                if self._part:
                    self._part.flush(self._fsync)
            elif self._part or not self._index:
                # A topology without a single row leaves one empty part: a reader still learns the columns.
                self._finish(self._part or _Part(self._path, self._index, self._shape.schema))
        if cut == END and self._folder is not None:
            unlock(self._folder)
        self._progress.commit(cut)
        self._mark = self._here()

    def _here(self) -> Mark:
        return {"parts": self._index, "rows": self._part.rows if self._part else 0}

    @property
    def committed(self) -> int:
        return self._progress.committed

    def mark(self) -> Mark:
        return self._mark

    def wake_fds(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        if self._part:
            self._part.abandon()
            self._part = None
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


class _Part:
    """The part under way: its rows in a spool, and as Parquet under a name that does not count yet."""

    def __init__(self, folder: str, index: int, schema: pa.Schema, spool: str = "spool") -> None:
        self._folder = folder
        self._name = _name(index)
        self._schema = schema
        self._text_columns = [i for i, field in enumerate(schema) if pa.types.is_string(field.type)]
        self._tmp_name, self._spool_name = f"_{_stem(index)}.tmp", f"_{_stem(index)}.{spool}"
        self.rows = 0
        self._group: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = 0
        self._unspooled: list[pa.RecordBatch] = []
        self._unspooled_rows = 0
        self._spool_file = open(self._at(self._spool_name), "wb")  # noqa: SIM115
        self._tmp_file = open(self._at(self._tmp_name), "wb")  # noqa: SIM115
        self._spool = pa.ipc.new_stream(self._spool_file, schema)
        self._parquet = pq.ParquetWriter(self._tmp_file, schema, compression="zstd")

    @property
    def names(self) -> list[str]:
        return [self._tmp_name, self._spool_name]

    def _at(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def feed(self, batch: pa.RecordBatch) -> None:
        """Take rows that all belong to this part."""
        self.rows += batch.num_rows
        self._unspooled.append(batch)
        self._unspooled_rows += batch.num_rows
        if self._unspooled_rows >= SPOOL_ROWS:
            self._write_spool()
        while batch.num_rows:
            count, weight = self._room(batch)
            self._group.append(batch.slice(0, count))
            self._group_rows += count
            self._group_bytes += weight
            if self._group_rows == GROUP_ROWS or self._group_bytes >= GROUP_TEXT_BYTES:
                self._write_group()
            batch = batch.slice(count)

    def _room(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """How many of these rows the row group still takes, and their text's size: a function of the rows alone."""
        batch = batch.slice(0, GROUP_ROWS - self._group_rows)
        weights = np.zeros(batch.num_rows, dtype=np.int64)
        for i in self._text_columns:
            weights += pc.fill_null(pc.binary_length(batch.column(i)), 0).to_numpy()
        total = np.cumsum(weights)
        reached = int(np.searchsorted(total, GROUP_TEXT_BYTES - self._group_bytes, side="left"))
        count = min(reached + 1, batch.num_rows)
        return count, int(total[count - 1])

    def _write_group(self) -> None:
        # One contiguous array a column: the pages inside a row group would follow the chunks otherwise.
        table = pa.Table.from_batches(self._group, self._schema).combine_chunks()
        self._parquet.write_table(table, row_group_size=GROUP_ROWS)
        self._group, self._group_rows, self._group_bytes = [], 0, 0

    def _write_spool(self) -> None:
        if self._unspooled:
            self._spool.write_batch(pa.concat_batches(self._unspooled))
            self._unspooled, self._unspooled_rows = [], 0

    def flush(self, fsync: bool) -> None:
        """Every row so far survives this process; the machine too, with ``fsync``."""
        self._write_spool()
        self._spool_file.flush()
        if fsync:
            sync(self._spool_file)
            sync_folder(self._folder)

    def adopt_spool(self) -> None:
        """The respooled rows are all there: let them take the place of the old spool."""
        self.flush(fsync=True)
        name = self._spool_name.replace(".respool", ".spool")
        os.replace(self._at(self._spool_name), self._at(name))
        self._spool_name = name
        sync_folder(self._folder)

    def finish(self) -> None:
        """The part is whole: give it its name, once it is on the disk, and drop the spool."""
        if self._group:
            self._write_group()
        self._parquet.close()
        sync(self._tmp_file)
        self._tmp_file.close()
        os.replace(self._at(self._tmp_name), self._at(self._name))
        sync_folder(self._folder)
        close_quietly(self._spool_file)
        remove(self._at(self._spool_name))

    def abandon(self) -> None:
        """Let go of the files. The spool stays for whoever resumes; the unfinished Parquet file is of no use."""
        with suppress(OSError, pa.ArrowException):
            self._parquet.close()
        close_quietly(self._tmp_file)
        close_quietly(self._spool_file)
        remove(self._at(self._tmp_name))


def _stem(index: int) -> str:
    return f"part-{index:06d}"


def _name(index: int) -> str:
    return f"{_stem(index)}.parquet"


def _read_part(path: str) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(SPOOL_ROWS)


def _read_spool(path: str) -> Iterator[pa.RecordBatch]:
    """Every whole batch of a spool; the torn end that a dying process may leave is no part of any commit."""
    if not os.path.exists(path):
        return
    try:
        with open(path, "rb") as file:
            yield from pa.ipc.open_stream(file)
    except pa.ArrowInvalid:
        return
    except OSError as error:
        if error.errno:  # The disk's own errors have a number; without one it is Arrow that misses the rest of a batch.
            raise
