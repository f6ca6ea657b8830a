"""A user's Structured Streaming query over a running topology, as a program: it joins each batch of the stream with a
table, and writes what comes out to ``result/batch=<id>``, over whatever an earlier attempt at the batch has left there.
It goes on from its checkpoint, and ends when the topology's output does.

    python stream_query.py FOLDER [MAX_ROWS]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from dadstorm.core.line import END
from dadstorm.spark.session import Settings, open_session
from dadstorm.spark.source import DadstormSource

ATTEMPTS = 5
CONF = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m"}


def main(folder: Path, max_rows: str | None) -> None:
    session = open_session(Settings("query", "local[2]", CONF), str(folder))
    spark: Any = session.spark
    spark.dataSource.register(DadstormSource)
    reader = spark.readStream.format("dadstorm").option("topology", str(folder / "job.yaml"))
    reader = reader.option("out", str(folder / "out")).option("with_id", "true")
    if max_rows is not None:
        reader = reader.option("max_rows", max_rows)
    codes = spark.createDataFrame([("red", 1), ("green", 2)], "w string, code int")

    def write(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"file://{folder}/result/batch={number:06d}")

    rows = reader.load().join(codes, "w").select("_seq", "n", "code")
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"file://{folder}/checkpoint")
    for attempt in range(ATTEMPTS):
        query = writer.start()
        try:
            while not ended(query):
                query.awaitTermination(0.2)
            query.stop()
            break
        except StreamingQueryException:
            # On a busy machine Spark gives its workers too little time to start.
            if attempt == ATTEMPTS - 1:
                raise
    session.close()


def ended(query: Any) -> bool:
    """Whether a batch that reaches to the end of the line has been made."""
    last = query.lastProgress
    return last is not None and str(END) in str(last["sources"][0]["endOffset"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
