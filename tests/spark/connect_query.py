"""The data source in a session of Spark Connect: a client that has no ``SparkContext``, and a server of its own.

    scripts/spark-connect

Runs a topology, reads its spool as a batch, and as a stream that is grouped and counted; ends with 1 if that is not
what the topology wrote beside it.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dadstorm.cli import main as dadstorm
from dadstorm.spark import java
from dadstorm.spark.source import DadstormSource

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = """\
sources:
  sales: {generate: {n: counter, town: {choice: [Lisbon, Porto, Faro]}}, count: 20000}
operators:
  some: {input: sales, filter: n != 7}
sinks:
  live: {input: some, spool: }
  plain: {input: some, csv: }
"""
PATIENCE_S = 120


def counted(spark: Any, folder: Path, wanted: int) -> dict[str, int]:
    """How often each town comes, by a streaming query; when so many rows are in, or patience is at its end."""
    stream = spark.readStream.format("dadstorm").option("topology", str(folder / "job.yaml"))
    towns = stream.option("out", str(folder / "out")).load().groupBy("town").count()
    writer = towns.writeStream.outputMode("complete").format("memory").queryName("towns")
    query = writer.option("checkpointLocation", f"file://{folder}/checkpoint").start()
    deadline = time.monotonic() + PATIENCE_S
    counts: dict[str, int] = {}
    while sum(counts.values()) < wanted and time.monotonic() < deadline and query.exception() is None:
        time.sleep(0.5)
        counts = {row["town"]: row["count"] for row in spark.sql("SELECT * FROM towns").collect()}
    if query.exception() is not None:
        print(query.exception(), file=sys.stderr)
    query.stop()
    return counts


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="dadstorm-connect-") as made:
        folder = Path(made)
        os.chdir(folder)
        (folder / "job.yaml").write_text(TOPOLOGY)
        if dadstorm(["run", "job.yaml", "--quiet"]) != 0:
            return 1
        os.environ |= {
            "JAVA_HOME": java.find().home_for_spark(str(folder)),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        from pyspark.sql import SparkSession

        spark: Any = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
        try:
            spark.dataSource.register(DadstormSource)
            batch = spark.read.format("dadstorm").load(str(folder / "out" / "live.spool"))
            rows = batch.count()
            with open(folder / "out" / "plain.csv", newline="") as file:
                wanted = Counter(row[1] for row in csv.reader(file))
            found = counted(spark, folder, sum(wanted.values()))
        finally:
            spark.stop()
    same = rows == sum(wanted.values()) and found == wanted
    print(f"{type(spark).__module__}: {rows:,} rows as a batch, {found} as a stream: {'right' if same else 'WRONG'}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
