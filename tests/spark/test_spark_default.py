"""What a user gets who says nothing about sinks: results written with Spark, and shown as Spark reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.cluster.kit import ROOT, run

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster]

WITHIN_S = 30.0

SHOWN = """\
out/reach: 8 rows, read back through Spark:
  +-------+
  | count |
  +-------+
  |     1 |
  |     2 |
"""


@pytest.mark.serial
def test_reach_is_written_with_spark_and_read_back_by_the_one_session_that_there_is(tmp_path: Path) -> None:
    """This is what scripts/run does."""
    outcome = run("run", ROOT / "configs" / "reach.yaml", cwd=tmp_path, as_typed=True).ok()
    assert outcome.out.startswith(SHOWN) and "|     8 |\n  +-------+\n" in outcome.out
    assert outcome.seconds < WITHIN_S
    table = ds.dataset(tmp_path / "out" / "reach", format="parquet", partitioning="hive").to_table()
    assert table.column("count").to_pylist() == list(range(1, 9))
    said = [json.loads(line)["event"] for line in (tmp_path / "runs/reach-1/reach.sink.0.log").read_text().splitlines()]
    assert said.count("spark is there") == 1


def test_the_first_rows_of_every_table_are_shown_in_their_order_whatever_the_format(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("""\
sources:
  made: {generate: {n: counter, w: {choice: [" a", "b|c", ""]}, at: timestamp}, count: 40, rate: 40}
sinks:
  table: {input: made, spark: json, commit_every: 100ms, partition_by: w, with_id: true, master: "local[1]"}
""")
    outcome = run("run", "job.yaml", cwd=tmp_path).ok()
    lines = outcome.out.splitlines()
    assert lines[0] == "out/table: 40 rows, read back through Spark:"
    assert [name.strip() for name in lines[2].strip(" |").split("|")] == ["_seq", "_sub", "_epoch", "n", "w", "at"]
    assert len(lines) == 1 + 4 + 10 + 1 and lines[-1] == "  … 30 more"
