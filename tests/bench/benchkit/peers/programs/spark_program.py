"""The workloads as queries of Spark Structured Streaming.

    python spark_program.py W1|W2|W3 FOLDER

Every micro-batch overwrites the folder that bears its number, so one that is done again after a crash leaves one
result.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_functions import remade

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SITE = "www.tecnico.ulisboa.pt"
CORES = 2


def session():
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": CORES,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream(spark, folder):
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def count_words(spark, pieces):
    words = stream(spark, pieces / "lines").select(F.explode(F.split("value", " ")).alias("word"))
    return words.groupBy("word").count()


def count_visitors(spark, pieces):
    field = F.split("value", ",")
    visits = stream(spark, pieces / "visits").select(
        field[0].alias("user"), field[1].alias("site"), field[2].alias("url")
    )
    return visits.filter(F.col("site") == SITE).dropDuplicates(["user"]).groupBy("url").count()


def merge(spark, pieces):
    both = stream(spark, pieces / "left").union(stream(spark, pieces / "right"))
    field = F.split("value", ",", 2)
    made = F.udf(remade, "string", useArrow=True)
    return both.select(field[0].cast("long").alias("id"), made(field[1]).alias("text"))


WORKLOADS = {"W1": count_words, "W2": count_visitors, "W3": merge}


def main(workload, folder):
    spark = session()

    def write(batch, number):
        if workload == "W3":
            batch = batch.orderBy("id").coalesce(1)
        lines = batch.select(F.concat_ws(",", *(F.col(name).cast("string") for name in batch.columns)))
        lines.write.mode("overwrite").text(f"{folder}/batches/{number}")

    query = WORKLOADS[workload](spark, Path(folder) / "pieces").writeStream
    query = query.outputMode("append" if workload == "W3" else "update").foreachBatch(write)
    query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
