"""The Spark engine on a word count: the same bytes as the native engine's, and how fast beside plain PySpark.

    scripts/bench spark_engine [--lines 200000] [--master 'local[2]'] [--slices 1 4 16]

Ten words a line, a running count of each word, to CSV. The native engine says what has to come out: digests per epoch
and bytes. Then the engine, for each number of slices, one run to warm up and one that counts. Then plain PySpark, also
the second of two runs: the same work as one batch job of Python functions over Arrow batches, split, repartition by
word, sort within partitions, count, sort, CSV. It keeps no state, commits nothing on the way and cannot
be resumed, so it is what one would be glad to reach. All in one session; CPU time is that of this process, of Java and
of the workers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.spark.engine.sessions import Sessions
from puppetmaster.engine import EngineOptions
from puppetmaster.engine import run as run_on_spark

WORDS = 10
VOCABULARY = 20_000
TOPOLOGY = """\
sources:
  lines: {{text: lines.txt}}
operators:
  words:  {{input: lines, split: {{field: line, as: word}}}}
  counts: {{input: words, count: word, slices: {slices}}}
sinks:
  table:  {{input: counts, csv: counts.csv}}
"""


def make(folder: Path, lines: int) -> None:
    """The text, the same in every run."""
    known = np.array([f"word{n}" for n in range(VOCABULARY)])
    drawn = np.minimum(np.random.default_rng(5).zipf(1.3, (lines, WORDS)), VOCABULARY) - 1
    with open(folder / "lines.txt", "w") as file:
        file.writelines(" ".join(line) + "\n" for line in known[drawn])


def dadstorm(folder: Path, *arguments: str) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-m", "dadstorm", *arguments], cwd=folder, env=environment).returncode


def measured(name: str, words: int, act: Callable[[], object]) -> float:
    begun, computed = time.monotonic(), cpu_s()
    act()
    seconds = time.monotonic() - begun
    print(f"{name}: {seconds:.2f} s, {words / seconds:,.0f} words/s, {cpu_s() - computed:.1f} s of CPU", flush=True)
    return seconds


def cpu_s() -> float:
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def on_spark(spark: Sessions, slices: int, out: str, audit: bool) -> None:
    Path(f"spark{slices}.yaml").write_text(TOPOLOGY.format(slices=slices))
    options = EngineOptions(f"spark{slices}.yaml", out=out, runs=f"runs-{out}", quiet=True, audit=audit)
    run_on_spark(options, spark)


# -- plain PySpark ---------------------------------------------------------------------------------------------------


def split_words(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lists = pc.utf8_split_whitespace(batch.column(1))
        parent = pc.list_parent_indices(lists)
        place = np.arange(len(parent)) - np.searchsorted(parent.to_numpy(), parent.to_numpy())
        ids = batch.column(0).take(parent).to_numpy() * 64 + place
        yield pa.record_batch([pa.array(ids), lists.flatten()], ["id", "word"])


def count_words(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts: dict[str, int] = {}
    for batch in batches:
        encoded = batch.column(1).dictionary_encode()
        words, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        before = np.array([counts.get(word, 0) for word in words])
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes, minlength=len(words))
        rank = np.empty(len(codes), dtype=np.int64)
        rank[order] = np.arange(len(codes)) - (np.cumsum(sizes) - sizes)[codes[order]]
        counts.update(zip(words, (before + sizes).tolist(), strict=True))
        yield pa.record_batch([batch.column(0), batch.column(1), pa.array(before[codes] + rank + 1)],
                              ["id", "word", "count"])  # fmt: skip


def map_in_arrow(frame: Any, function: object, schema: str) -> Any:
    """As DataFrame.mapInArrow, which asks for pandas and makes no use of it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.functions import vectorized_udf
    from pyspark.util import PythonEvalType

    udf: Any = vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, "pandas")
    column = udf(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def plain(session: Any, folder: Path) -> None:
    from pyspark.sql import functions as f

    lines = session.read.text(f"file://{folder}/lines.txt").select(f.monotonically_increasing_id().alias("id"), "value")
    words = map_in_arrow(lines, split_words, "id long, word string")
    sorted_words = words.repartition(2, "word").sortWithinPartitions("id")
    counts = map_in_arrow(sorted_words, count_words, "id long, word string, count long")
    counts.sort("id").select("word", "count").write.mode("overwrite").csv(f"file://{folder}/plain")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 4, 16])
    options = parser.parse_args()
    words = options.lines * WORDS
    with tempfile.TemporaryDirectory(prefix="dadstorm-bench-") as name:
        folder = Path(name)
        os.chdir(folder)
        make(folder, options.lines)
        Path("native.yaml").write_text(TOPOLOGY.format(slices=2))
        native = ["run", "native.yaml", "--audit", "--quiet", "--out", "native", "--runs", "runs-native"]
        if measured("native, its start included", words, lambda: dadstorm(folder, *native)) < 0:
            return 1
        spark = Sessions(options.master, {}, str(folder))
        good = True
        try:
            measured("Spark starts", words, spark.now)
            for slices in options.slices:
                out = f"out{slices}"
                on_spark(spark, slices, out, True)
                same = dadstorm(folder, "diff", "runs-native/native-1", f"runs-{out}/spark{slices}-1") == 0
                same = same and Path(out, "counts.csv").read_bytes() == Path("native", "counts.csv").read_bytes()
                good = good and same
                print(f"{slices} slices: digests and bytes {'are the same' if same else 'DIFFER'}", flush=True)
                measured(f"engine, {slices} slices", words, lambda s=slices: on_spark(spark, s, "again", False))
            plain(spark.now().spark, folder)
            measured("plain PySpark", words, lambda: plain(spark.now().spark, folder))
            parts = sorted(Path("plain").glob("part-*.csv"))
            same = b"".join(part.read_bytes() for part in parts) == Path("native", "counts.csv").read_bytes()
            print(f"plain PySpark: its bytes {'are the same' if same else 'DIFFER'}")
        finally:
            spark.close()
            os.chdir("/")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
