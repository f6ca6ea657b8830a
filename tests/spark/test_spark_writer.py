"""What Spark writes is what it was given: every type, every format, in the order of the IDs; and what it cannot write.

One session for all of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")

from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.errors import UserError
from dadstorm.plan import Field
from dadstorm.spark.commits import Commit, commit_name, summed
from dadstorm.spark.session import Session, Settings, open_session
from dadstorm.spark.table import Header, Table
from dadstorm.spark.verify import verify
from dadstorm.spark.writer import Writer
from tests.unit.sink_kit import FIELDS, rows_of

pytestmark = [pytest.mark.spark]

NEW_YEAR = datetime(2026, 1, 2, 3, 4, 5, 6)
VALUES = [
    ("plain", 1, 1.5, True, NEW_YEAR),
    (' blanks around, a comma and a "quote" ', -(2**63), -0.0, False, datetime(1900, 1, 1)),
    (None, None, None, None, None),
    ("back\\slash, tab\tand é ☃", 2**63 - 1, float("nan"), True, datetime(2399, 12, 31, 23, 59, 59, 999999)),
    ("", 0, float("inf"), False, NEW_YEAR),
    ("two\nlines", 7, 1e300, None, NEW_YEAR),
]
SPAN = 4


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    one = open_session(Settings("test", "local[2]"), str(tmp_path_factory.mktemp("spark")))
    yield one
    one.close()
    assert not one.alive


def committed(
    folder: Path, session: Session, form: str, rows: Rows, *, with_id: bool = True, by: tuple[str, ...] = ()
) -> Table:
    """A table of one commit, as the sink makes it."""
    columns = tuple((field.name, field.type) for field in FIELDS)
    table = Table(str(folder / "table"))
    table.write_header(Header("t", "s", form, columns, with_id, SPAN, by, {}, ("run",)))
    writer = Writer(FIELDS, form=form, with_id=with_id, span=SPAN, partition_by=by)
    middle = len(rows) // 2
    staged = writer.stage([rows.slice(0, middle), rows.slice(middle, len(rows))], f"{table.staging}/rows")
    writer.write(session, staged, f"{table.staging}/out")
    count, digest, epochs = summed([rows], SPAN, with_id)
    commit = Commit(0, END, count, digest, epochs, f"commit={commit_name(0, 0, END)}")
    table.add(commit, f"{table.staging}/out", fsync=False)
    return table


@pytest.mark.parametrize("form", ["parquet", "orc", "json", "csv"])
@pytest.mark.parametrize("with_id", [True, False])
def test_every_value_comes_back_as_it_was(
    form: str, with_id: bool, tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    table = committed(tmp_path, session, form, rows_of(VALUES, FIELDS), with_id=with_id)
    assert verify(table.path, session) == 0, capsys.readouterr().out


def test_spark_reads_the_folder_as_one_table(tmp_path: Path, session: Session) -> None:
    table = committed(tmp_path, session, "parquet", rows_of(VALUES, FIELDS))
    frame = session.spark.read.parquet(table.path)
    assert frame.columns == ["_seq", "_sub", "_epoch", "s", "i", "f", "b", "t", "commit"]
    assert frame.count() == len(VALUES)


def test_verify_sees_a_change(tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    table = committed(tmp_path, session, "json", rows_of(VALUES, FIELDS))
    (file,) = Path(table.path).glob("commit=*/part-*.json")
    file.write_text(file.read_text().replace("plain", "plane"))
    for crc in Path(table.path).glob("commit=*/.*.crc"):
        crc.unlink()
    assert verify(table.path, session) == 1
    assert "digest" in capsys.readouterr().out


def test_rows_of_many_files_are_in_the_order_of_their_ids(tmp_path: Path, session: Session) -> None:
    count = 700_000
    data = pa.record_batch({"n": np.arange(count) % 7, "k": np.arange(count) % 3})
    fields = (Field("n", "int"), Field("k", "int"))
    rows = Rows(np.arange(count, dtype=np.int64), np.zeros(count, dtype=np.int64), data)
    for by in ((), ("k",)):
        folder = tmp_path / f"out{len(by)}"
        writer = Writer(fields, form="parquet", with_id=True, span=SPAN, partition_by=by)
        staged = writer.stage([rows], str(tmp_path / "rows"))
        assert len(staged) == 3
        writer.write(session, staged, str(folder))
        if not by:
            seqs = ds.dataset(folder, format="parquet").to_table(columns=["_seq"]).column("_seq")
            assert seqs.to_numpy().tolist() == list(range(count))
            continue
        for key in range(3):
            seqs = ds.dataset(folder / f"k={key}", format="parquet").to_table(columns=["_seq"]).column("_seq")
            assert seqs.to_numpy().tolist() == list(range(key, count, 3))


@pytest.mark.parametrize(
    ("form", "options", "expected"),
    [
        ("parkett", {}, "parkett"),
        ("parquet", {"compression": "squeeze"}, "squeeze"),
        ("csv", {"sep": ""}, "Delimiter"),
        ("text", {}, "column"),
        ("noop", {}, "no format of files"),
    ],
)
def test_what_spark_cannot_write_is_found_before_anything_is_written(
    form: str, options: dict[str, str], expected: str, tmp_path: Path, session: Session
) -> None:
    writer = Writer(FIELDS, form=form, with_id=False, span=SPAN, options=options)
    with pytest.raises(UserError, match=expected) as caught:
        writer.probe(session, str(tmp_path / "probe"))
    assert "\n" not in str(caught.value) and "java." not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_session_that_was_killed_is_known_to_be_lost_and_another_can_be_opened(
    tmp_path: Path, session: Session
) -> None:
    """Last, for it ends the session of the others."""
    os.kill(session.pid, signal.SIGKILL)
    with pytest.raises(Exception) as caught:
        session.spark.range(3).count()
    assert session.lost(caught.value)
    session.close()
    other = open_session(Settings("other", "local[1]"), str(tmp_path))
    assert other.spark.range(3).count() == 3
    other.close()
    assert not other.alive and not (tmp_path / "spark-other").exists()
