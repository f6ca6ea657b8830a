"""The benchmarks work: each is run as a whole, with sizes at which its figures mean nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchkit import peers
from benchkit.checks import judged

pytestmark = pytest.mark.cluster
HERE = Path(__file__).resolve().parent


def bench(name: str, *arguments: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """What a benchmark printed, and the JSON it left."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments, "--out", str(folder / "figures")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout, json.loads((folder / "figures" / f"{name}.json").read_text())


def test_workloads_are_run_by_both_sides_in_turns_and_checked(tmp_path: Path) -> None:
    told, found = bench("workloads", "W1", "W2", "W3", "--scale", "0.001", "--rounds", "1", "--data", "data",
                        folder=tmp_path)  # fmt: skip
    assert [(run["workload"], run["side"]) for run in found["runs"]] == [
        (workload, side) for workload in ("W1", "W2", "W3") for side in ("dadstorm", "loop")
    ]
    for run in found["runs"]:
        assert run["cpu_s"] > 0 and (run["peak_mb"] > 0 or run["side"] == "loop") and run["start_s"] > 0
        assert run["output"] == "exact"
        assert run["lines"] == {"W1": 4000, "W3": 2000}.get(run["workload"], run["lines"])
    assert "ours is × as fast" in told and found["commit"]


def test_latency_is_that_of_every_tuple(tmp_path: Path) -> None:
    _, found = bench("latency", "--rate", "500", "--keys", "100", "--seconds", "0.2", folder=tmp_path)
    (case,) = found["cases"]
    assert 0 < case["p50_ms"] <= case["p99_ms"] <= case["most_ms"]


def test_scaling_shows_the_cost_of_a_tuple_along_its_axes(tmp_path: Path) -> None:
    _, found = bench("scaling", "--axis", "operators", "known", "apart", "state", "--most-operators", "1",
                     "--most-slices", "1", "--most-keys", "1000", "--tuples", "2000", "--rounds", "1",
                     folder=tmp_path)  # fmt: skip
    assert {axis: list(points) for axis, points in found["cpu_us_per_tuple"].items()} == {
        "operators": ["1"],
        "known": ["1000"],
        "apart": ["1"],
        "state": ["1000"],
    }


def test_replicas_share_the_work(tmp_path: Path) -> None:
    _, found = bench("replicas", "--replicas", "2", "--tuples", "5", folder=tmp_path)
    assert 0 < found["tuples_per_s"]["2"] < 2 / found["sleep"] * 1.5


def test_the_cost_of_a_function_is_told_apart_from_the_function(tmp_path: Path) -> None:
    _, found = bench("custom", "--function", "same", "--tuples", "2000", "--rounds", "1", folder=tmp_path)
    cost = found["functions"]["same"]
    assert cost["above_us"] == pytest.approx(cost["with_us"] - cost["dup_us"] - cost["alone_us"])


def test_start_up_ends_with_the_first_output(tmp_path: Path) -> None:
    _, found = bench("startup", "--rounds", "1", "--data", "data", folder=tmp_path)
    (run,) = found["runs"]
    assert 0 < run["first_s"] <= run["seconds"]


def test_the_overhead_is_told_for_each_semantics(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "overhead.py"), "--rounds", "1", "--tuples", "2000"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True).stdout
    assert re.findall(r"^  (\S+-once) +\d+\.\d+ s, ", told, re.MULTILINE) == [
        "at-most-once", "at-least-once", "exactly-once"
    ]  # fmt: skip


def test_every_peer_can_be_asked_for_its_command(tmp_path: Path) -> None:
    assert {"loop", "bytewax"} <= set(peers.names())
    for peer in map(peers.load, peers.names()):
        for workload in peer.workloads:
            for step in filter(None, (peer.before, peer.command)):
                command = step("python", workload, tmp_path / "data", tmp_path / "out")
                programs = [Path(word.partition(":")[0]) for word in command if "_program.py" in word]
                assert command[0] == "python" and all(path.is_file() for path in programs)


def test_a_wrong_output_is_called_wrong(tmp_path: Path) -> None:
    expected = tmp_path / "expected.csv"
    expected.write_text("a,1\nb,1\na,2\n")

    def verdict(*parts: str, kind: str = "counts") -> str:
        paths = [tmp_path / f"part-{number}" for number in range(len(parts))]
        for path, text in zip(paths, parts, strict=True):
            path.write_text(text)
        return judged(paths, expected, kind).text.partition(":")[0]

    assert verdict("a,1\nb,1\na,2\n") == "exact"
    assert verdict("a,1\nb,1\n", "a,2\n") == "exact"
    assert verdict("b,1\n", "a,1\na,2\n") == "any order"
    assert verdict("b,1\na,2\n") == "last counts"
    assert verdict("a,1\nb,1\n") == "WRONG"
    assert verdict("a,1\nb,1\na,2\na,2\na,3\n") == "WRONG"
    assert verdict("") == "WRONG"
    assert verdict("a,1\nb,1\nb,2\n") == "WRONG"
    assert verdict("a,1\nb,1\nb,2\n", kind="first counts") == "last total"
    assert verdict("b,1\na,2\n", kind="lines") == "WRONG"
