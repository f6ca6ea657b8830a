"""The data source in a program of a user's that ``spark-submit`` runs: nothing of ours is in it but the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from dadstorm.spark import java
from tests.cluster.kit import ROOT, run
from tests.spark.connect_query import TOPOLOGY

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

PROGRAM = """\
import json, sys
from pyspark.sql import SparkSession
from dadstorm.spark.source import DadstormSource

spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(DadstormSource)
batch = spark.read.format("dadstorm").option("topology", "job.yaml").load().count()
towns = spark.readStream.format("dadstorm").option("topology", "job.yaml").load().groupBy("town").count()
query = towns.writeStream.outputMode("complete").format("memory").queryName("towns")
query = query.option("checkpointLocation", "checkpoint").start()
query.processAllAvailable()
counts = {row["town"]: row["count"] for row in spark.sql("SELECT * FROM towns").collect()}
query.stop()
with open("result.json", "w") as file:
    json.dump([batch, counts], file)
spark.stop()
"""


def test_a_program_that_spark_submit_runs_reads_a_topology(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TOPOLOGY)
    (tmp_path / "program.py").write_text(PROGRAM)
    run("run", "job.yaml", cwd=tmp_path, as_typed=True).ok()
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    environment = os.environ | {
        "JAVA_HOME": java.find().home_for_spark(str(tmp_path)),
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    command = [
        os.path.join(home, "bin", "spark-submit"), "--master", "local[2]",
        "--conf", "spark.sql.shuffle.partitions=1", "--conf", "spark.ui.enabled=false",
        "--driver-java-options", f"-XX:-UsePerfData -Djava.io.tmpdir={tmp_path}", "program.py",
    ]  # fmt: skip
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    lines = (tmp_path / "out" / "plain.csv").read_text().splitlines()
    towns = Counter(line.split(",")[1] for line in lines)
    assert json.loads((tmp_path / "result.json").read_text()) == [19_999, dict(towns)]
