"""The engine on a real standalone cluster, a master and two workers on loopback; an executor is killed meanwhile."""

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
