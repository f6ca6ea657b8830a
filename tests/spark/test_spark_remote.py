"""A checkpoint of the Spark engine in an object store: a server on loopback that speaks S3's protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
server = pytest.importorskip("moto.server")

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = """\
sources:
  made: {generate: {n: counter, k: {int: [0, 999]}, w: {words: {count: 3, vocabulary: 500}}}, count: 60_000}
operators:
  words:  {input: made, split: w}
  times:  {input: words, count: w, slices: 4}
  firsts: {input: made, uniq: k, slices: 3}
sinks:
  lines:  {input: times, csv: times.csv, with_id: true}
  rows:   {input: firsts, jsonl: firsts.jsonl}
"""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with one bucket, ``jobs``; the environment says where it is."""
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    for name, value in {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": str(ROOT),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{address}/jobs", method="PUT")).close()
    yield address
    running.stop()


def test_a_run_is_resumed_from_an_object_store(s3: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    assert _run(tmp_path, "--out", "native").returncode == 0
    first = _started(tmp_path, s3)
    first.kill()
    first.wait()
    assert "run-" in _objects(s3)
    refused = _on_spark(tmp_path)
    assert refused.returncode == 2
    assert "has not ended. Go on with it: --resume" in refused.stderr
    went_on = _on_spark(tmp_path, "--resume")
    assert went_on.returncode == 0, went_on.stderr
    assert _outputs(tmp_path / "spark") == _outputs(tmp_path / "native")
    assert "run-" not in _objects(s3)
    assert "the last run is complete" in _on_spark(tmp_path, "--resume").stderr


def test_who_was_taken_for_dead_stops_before_it_writes(s3: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    assert _run(tmp_path, "--out", "native").returncode == 0
    first = _started(tmp_path, s3)
    first.send_signal(signal.SIGSTOP)
    try:
        went_on = _on_spark(tmp_path, "--resume")
        assert went_on.returncode == 0, went_on.stderr
    finally:
        first.send_signal(signal.SIGCONT)
    _, told = first.communicate(timeout=120)
    assert first.returncode == 1
    assert "somebody else goes on with the run in s3://jobs/one: this one stops" in told
    assert _outputs(tmp_path / "spark") == _outputs(tmp_path / "native")


@pytest.mark.parametrize(
    ("place", "told"), [("s3://nowhere/one", "NO_SUCH_BUCKET"), ("hdfs://127.0.0.1:1/one", "cannot use hdfs://")]
)
def test_a_place_that_cannot_be_used_is_told(s3: str, tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    found = _on_spark(tmp_path, place=place)
    assert found.returncode == 2
    assert told in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "spark").exists()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dadstorm", "run", "t.yaml", "--quiet", *arguments]


def _spark(place: str, *arguments: str) -> list[str]:
    return _command("--engine", "spark", "--master", "local[2]", "--out", "spark", "--checkpoint", place, *arguments)


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*arguments), cwd=folder, capture_output=True, text=True, timeout=240)


def _on_spark(folder: Path, *arguments: str, place: str = "s3a://jobs/one") -> subprocess.CompletedProcess[str]:
    return subprocess.run(_spark(place, *arguments), cwd=folder, capture_output=True, text=True, timeout=240)


def _started(folder: Path, address: str) -> subprocess.Popen[str]:
    """A run that has committed something."""
    process = subprocess.Popen(_spark("s3a://jobs/one"), cwd=folder, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while "/book" not in _objects(address):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    return process


def _objects(address: str) -> str:
    with urllib.request.urlopen(f"{address}/jobs?list-type=2") as answer:
        return str(answer.read(), "utf-8")


def _outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder)) if "." in name}
