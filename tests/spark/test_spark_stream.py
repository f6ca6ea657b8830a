"""Spark's data source ``dadstorm``: a running topology's output in somebody's Structured Streaming query."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from dadstorm.core.line import END
from dadstorm.spark.session import Session, Settings, open_session
from dadstorm.spark.source import DadstormSource
from tests.cluster.kit import run, running, until
from tests.spark.stream_kills import kills
from tests.spark.stream_query import ended

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

TOPOLOGY = """\
sources:
  sales: {generate: {n: counter, town: {choice: [Lisbon, Porto, Faro]}, at: timestamp}, count: 9000, rate: 3000}
operators:
  some: {input: sales, filter: n != 7}
sinks:
  live: {input: some, spool: }
  plain: {input: some, csv: }
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    conf = {"spark.sql.shuffle.partitions": "1"}
    one = open_session(Settings("test", "local[2]", conf), str(tmp_path_factory.mktemp("spark")))
    one.spark.dataSource.register(DadstormSource)
    yield one
    one.close()


def stream_of(session: Session, folder: Path, **options: str) -> Any:
    reader = session.spark.readStream.format("dadstorm").options(**options)
    return reader.option("topology", str(folder / "job.yaml")).option("out", str(folder / "out")).load()


def test_a_query_joins_and_aggregates_the_output_of_a_topology_while_it_runs(tmp_path: Path, session: Session) -> None:
    (tmp_path / "job.yaml").write_text(TOPOLOGY)
    spark: Any = session.spark
    codes = spark.createDataFrame([("Lisbon", 1), ("Porto", 2)], "town string, code int")
    # The query may begin before the topology does.
    counts = stream_of(session, tmp_path, max_rows="2000").join(codes, "town").groupBy("code").count()
    query = counts.writeStream.outputMode("complete").format("memory").queryName("counts")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with running("run", "job.yaml", cwd=tmp_path) as topology:
        until(lambda: ended(query) or query.exception() is not None, "the end of the stream")
        assert query.exception() is None
        topology.ended().ok()
    with open(tmp_path / "out" / "plain.csv", newline="") as file:
        towns = Counter(row[1] for row in csv.reader(file))
    found = {row["code"]: row["count"] for row in spark.sql("SELECT * FROM counts").collect()}
    assert found == {1: towns["Lisbon"], 2: towns["Porto"]}
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert sum(one["numInputRows"] for one in progress) == 8999
    assert all(one["numInputRows"] <= 2000 for one in progress)
    assert str(END) in str(progress[-1]["sources"][0]["latestOffset"])
    # Nothing new comes, and still the last batch is trimmed.
    until(lambda: not list((tmp_path / "out" / "live.spool").glob("run-*/*.arrow")), "the trimming of the last batch")
    query.stop()


def test_a_batch_of_what_is_there_and_a_stream_that_ends_with_it(tmp_path: Path, session: Session) -> None:
    (tmp_path / "job.yaml").write_text(TOPOLOGY.replace(", rate: 3000", ""))
    run("run", "job.yaml", cwd=tmp_path).ok()
    spool = str(tmp_path / "out" / "live.spool")
    table = session.spark.read.format("dadstorm").option("with_id", "true").load(spool)
    assert table.columns == ["_seq", "_sub", "_epoch", "n", "town", "at"]
    assert [row["n"] for row in table.orderBy("_seq").select("n").collect()] == [n for n in range(9000) if n != 7]
    writer = stream_of(session, tmp_path, trim="false").writeStream.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "copy"))
    query.awaitTermination(100)
    copy: Any = session.spark.read.parquet(str(tmp_path / "copy"))
    assert copy.count() == 8999 and copy.select("n").distinct().count() == 8999
    assert table.count() == 8999, "nothing was trimmed"


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"sink": "lively"}, "no spool sink 'lively'; there are live"), ({"max_rows": "0"}, "max_rows: found '0'")],
)
def test_wrong_options_are_told(options: dict[str, str], expected: str, tmp_path: Path, session: Session) -> None:
    (tmp_path / "job.yaml").write_text(TOPOLOGY)
    with pytest.raises(Exception) as caught:
        stream_of(session, tmp_path, **options)
    assert expected in str(caught.value)


@pytest.mark.timeout(600)
def test_each_row_comes_once_though_the_query_and_the_spool_are_killed(tmp_path: Path) -> None:
    """A sample: scripts/stream-kills does more of it."""
    kills(tmp_path, 2, seed=3, rows=4000)
