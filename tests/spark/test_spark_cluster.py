"""Engine and sink on a real standalone cluster, a master and two workers on loopback, whose executors are killed."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")

from tests.cluster.kit import run, running, until
from tests.spark.standalone import EXECUTOR_MEMORY, cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]

TOPOLOGY = """\
sources:
  made: {generate: {n: counter, k: {int: [0, 999]}, w: {words: {count: 3, vocabulary: 500}}}, count: 40000}
operators:
  words:  {input: made, split: w}
  times:  {input: words, count: w, slices: 4}
  firsts: {input: made, uniq: k, slices: 3}
  both:   {input: [words, firsts], dup: }
sinks:
  csv:    {input: both, csv: both.csv, with_id: true}
  rows:   {input: times, parquet: times}
"""


def executors(cluster_pid: int) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(cluster_pid).children(recursive=True):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


def test_both_engines_give_the_same_bytes_though_an_executor_is_killed(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    run("run", "t.yaml", "--audit", "--out", "native", "--runs", "runs-native", cwd=tmp_path).ok()
    arguments = ["run", "t.yaml", "--audit", "--out", "spark", "--engine", "spark", "--checkpoint", "kept"]
    with cluster(tmp_path / "cluster") as master:
        arguments += ["--master", master, "--conf", f"spark.executor.memory={EXECUTOR_MEMORY}"]
        with running(*arguments, cwd=tmp_path) as command:
            until(lambda: command.process.poll() is not None or any(tmp_path.glob("kept/run-*/book")), "a commit", 300)
            for victim in executors(os.getpid())[:1]:
                victim.kill()
            outcome = command.ended(300)
    outcome.ok()
    assert "the same" in run("diff", "runs-native/t-1", "runs/t-1", cwd=tmp_path).ok().out
    assert (tmp_path / "spark" / "both.csv").read_bytes() == (tmp_path / "native" / "both.csv").read_bytes()


SINK = """\
window: {{rows: 4096}}
sources:
  made: {{generate: {{n: counter, k: {{int: [0, 999]}}}}, count: 40000}}
sinks:
  rows: {{input: made, spark: parquet, with_id: true, commit_every: 300ms, master: "{master}",
          conf: {{spark.executor.memory: {memory}}}}}
"""


def test_a_sink_s_table_has_each_row_once_though_its_executors_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as master:
        (tmp_path / "t.yaml").write_text(SINK.format(master=master, memory=EXECUTOR_MEMORY))
        with running("run", "t.yaml", "--out", "out", cwd=tmp_path) as command:
            for commits in (1, 3):
                until(
                    lambda wanted=commits: command.process.poll() is not None  # type: ignore[misc]
                    or len(list(tmp_path.glob("out/rows/_dadstorm/*-*.json"))) >= wanted,
                    f"{commits} commits", 300,
                )  # fmt: skip
                victims = executors(os.getpid())
                assert victims and command.process.poll() is None
                for victim in victims:
                    victim.kill()
            command.ended(300).ok()
    assert "40,000" in run("verify", "out/rows", cwd=tmp_path).ok().out
    import pyarrow.dataset as ds

    rows = ds.dataset(str(tmp_path / "out" / "rows"), partitioning="hive").to_table(columns=["n"])
    assert sorted(rows["n"].to_pylist()) == list(range(40_000))
