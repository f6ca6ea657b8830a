"""``dadstorm verify``: does a table that Spark wrote hold what its manifest says?

Every commit is read back and its rows and digest are compared with those written down before Spark got them: nothing
was lost, doubled or changed on the way. With IDs in the table the digests are compared epoch by epoch, and IDs have to
ascend. Parquet is read directly; other formats are read by Spark.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.errors import UserError
from dadstorm.spark.commits import Commit, chain, summed
from dadstorm.spark.reading import Reader
from dadstorm.spark.session import Session, SessionLost, Settings, open_session, reason
from dadstorm.spark.table import META, Header, Table


def verify(path: str, session: Session | None = None) -> int:
    """Print what was found; the exit code: 0 all is as written down, 1 it is not. Raises UserError where there is
    nothing to verify. A session that is open is used where Spark has to read."""
    table = Table(os.path.abspath(path))
    header = table.header()
    if header is None:
        raise UserError(f"{path}: expected a table that a spark sink wrote, found no {META} in it")
    commits = table.commits()
    problems = [*_chain_problems(header, commits), *_stray(table, commits)]
    rows = 0
    with _reader(header, session) as read:
        for commit in commits:
            rows += commit.rows
            if commit.folder is not None:
                problems += [f"commit {commit.name}: {found}" for found in _commit(table, header, commit, read)]
    for problem in problems:
        print(f"{path}: {problem}")
    if problems:
        print(f"{path}: not as its manifest says: {len(problems)} problem{'s' * (len(problems) > 1)}")
        return 1
    count = len(commits)
    digest = sum(int(commit.digest, 16) for commit in commits) & (2**64 - 1)
    print(f"{path}: {rows:,} rows in {count} commit{'s' * (count != 1)}, as the manifest says; digest {digest:016x}")
    return 0


def _chain_problems(header: Header, commits: list[Commit]) -> Iterator[str]:
    for run in range(len(header.runs)):
        mine = [commit for commit in commits if commit.run == run]
        found = chain(mine, END)
        for commit in found.stray:
            yield f"commit {commit.name} does not begin where another one ends"
        if found.reaches < END:
            yield f"run {run + 1} is not complete: its commits end at {found.reaches}"


def _stray(table: Table, commits: list[Commit]) -> Iterator[str]:
    known = {commit.folder for commit in commits}
    for name in table.folders():
        if name not in known:
            yield f"{name} is no commit of the manifest"


@contextlib.contextmanager
def _reader(header: Header, session: Session | None) -> Iterator[Reader]:
    if header.format == "parquet" or session is not None:
        yield Reader(header, None if header.format == "parquet" else session)
        return
    with tempfile.TemporaryDirectory(prefix="dadstorm-") as folder:
        try:
            session = open_session(Settings("verify", "local[2]"), folder)
        except SessionLost as error:
            raise UserError(str(error)) from None
        try:
            yield Reader(header, session)
        finally:
            session.close()


def _commit(table: Table, header: Header, commit: Commit, read: Reader) -> Iterator[str]:
    assert commit.folder is not None
    folder = os.path.join(table.path, commit.folder)
    if not os.path.isdir(folder):
        yield f"there is no {commit.folder}"
        return
    try:
        batches = read.folder(folder)
    except Exception as error:  # Of Arrow or of Spark, whatever is wrong with the files.
        yield f"{commit.folder} cannot be read: {reason(error)}"
        return
    rows = [_rows(batch, header.with_id) for batch in batches]
    count, digest, epochs = summed(rows, header.span, header.with_id)
    if count != commit.rows:
        yield f"{count} rows; expected {commit.rows}"
    elif digest != commit.digest:
        yield f"the digest of its rows is {digest}; expected {commit.digest}"
    if not header.with_id or count != commit.rows:
        return
    for was, now in zip(commit.epochs, epochs, strict=False):
        if was != now:
            found = f"{now.rows} rows of digest {now.digest} in epoch {now.epoch}"
            yield f"{found}; expected {was.rows} of {was.digest} in epoch {was.epoch}"
            break
    if not header.partition_by and any(_unordered(one) for one in rows):
        yield "its rows are not in the order of their IDs"


def _rows(batch: pa.RecordBatch, with_id: bool) -> Rows:
    if not with_id:
        nothing = np.zeros(batch.num_rows, dtype=np.int64)
        return Rows(nothing, nothing, batch)
    seq, sub = (batch.column(index).to_numpy() for index in (0, 1))
    return Rows(seq, sub, batch.select(batch.schema.names[3:]))


def _unordered(rows: Rows) -> bool:
    seq, sub = np.diff(rows.seq), np.diff(rows.sub)
    return bool(((seq < 0) | ((seq == 0) & (sub <= 0))).any())
