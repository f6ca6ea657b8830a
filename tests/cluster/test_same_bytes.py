"""The output is the same to the byte, whatever the number of replicas and slices, the routing, the timing, the batches.

Everything here is one topology that has every operator in it (see ``everything``), run by the command that users run.
The bytes it must give do not come from a first run but from plain Python.
"""

from __future__ import annotations

from pathlib import Path

import everything
import pyarrow.parquet as pq
import pytest
from everything import Sizes
from kit import Outcome, run

pytestmark = pytest.mark.cluster

LARGE = Sizes(orders=1500, clicks=1000, ticks=1500)
MEDIUM = Sizes(orders=500, clicks=300, ticks=400)
SMALL = Sizes(orders=60, clicks=40, ticks=50)
TINY = Sizes(orders=12, clicks=9, ticks=10)


def run_everything(folder: Path, sizes: Sizes, *options: str, **how: object) -> Outcome:
    topology = everything.write(folder, sizes, **how)  # type: ignore[arg-type]
    return run("run", topology, "--quiet", *options, cwd=folder).ok()


def differences(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """Which files differ and where: assertions on megabytes of bytes explain nothing."""
    told = [f"{name}: not expected" for name in found.keys() - wanted.keys()]
    for name, text in wanted.items():
        lines, others = text.splitlines(), found.get(name, b"").splitlines()
        if found.get(name) != text:
            pairs = enumerate(zip(lines, others, strict=False), 1)
            first = next((f"line {n}: {b!r}, not {a!r}" for n, (a, b) in pairs if a != b), "the end of one")
            told.append(f"{name}: {len(others)} lines, expected {len(lines)}; they differ at {first}")
    return told


def test_twenty_runs(tmp_path: Path) -> None:
    """Each with another seed of Python's own hash, too: the processes have none in common."""
    wanted = everything.files(MEDIUM)
    for number in range(20):
        outcome = run_everything(tmp_path / str(number), MEDIUM, replicas=2, slices=2)
        assert not differences(outcome.files, wanted), f"in run {number}"


@pytest.mark.parametrize("slices", [1, 4, 16])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_any_number_of_replicas_and_slices(tmp_path: Path, replicas: int, slices: int) -> None:
    outcome = run_everything(tmp_path, LARGE, replicas=replicas, slices=slices)
    assert not differences(outcome.files, everything.files(LARGE))


@pytest.mark.parametrize("routing", ["primary", "random", "hashing(1)"])
def test_any_routing_of_operators_without_state(tmp_path: Path, routing: str) -> None:
    outcome = run_everything(tmp_path, MEDIUM, replicas=2, slices=4, routing=routing)
    assert not differences(outcome.files, everything.files(MEDIUM))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_delay_of_messages(tmp_path: Path, seed: int) -> None:
    outcome = run_everything(tmp_path, MEDIUM, "--shake-delay", "40", "--shake-seed", str(seed))
    assert not differences(outcome.files, everything.files(MEDIUM))


@pytest.mark.parametrize(("rows", "sizes"), [(1, SMALL), (2, SMALL), (7, SMALL), (1000, MEDIUM), (0, MEDIUM)])
def test_any_size_of_batches(tmp_path: Path, rows: int, sizes: Sizes) -> None:
    """Zero stands for no limit. Few records for small batches: a step for every row of every operator takes time."""
    outcome = run_everything(tmp_path, sizes, "--shake-batch", str(rows))
    assert not differences(outcome.files, everything.files(sizes))


def test_small_batches_and_delays_at_once(tmp_path: Path) -> None:
    outcome = run_everything(tmp_path, SMALL, "--shake-batch", "5", "--shake-delay", "10", "--shake-seed", "4")
    assert not differences(outcome.files, everything.files(SMALL))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_start_order_of_replicas(tmp_path: Path, seed: int) -> None:
    """The delay stretches the order: it holds back what the replicas are told, Start among it."""
    shake = ("--shake-order", "--shake-delay", "100", "--shake-seed", str(seed))
    outcome = run_everything(tmp_path, SMALL, *shake)
    assert not differences(outcome.files, everything.files(SMALL))


@pytest.mark.parametrize("rows", [2, 16])
def test_any_window(tmp_path: Path, rows: int) -> None:
    outcome = run_everything(tmp_path, TINY if rows == 2 else SMALL, window=rows)
    assert not differences(outcome.files, everything.files(TINY if rows == 2 else SMALL))


@pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once"])
def test_any_semantics_as_long_as_nothing_fails(tmp_path: Path, semantics: str) -> None:
    outcome = run_everything(tmp_path, MEDIUM, semantics=semantics)
    assert not differences(outcome.files, everything.files(MEDIUM))


def test_json_lines(tmp_path: Path) -> None:
    outcome = run_everything(tmp_path, MEDIUM, "--sink", "jsonl")
    assert not differences(outcome.files, everything.files(MEDIUM, "jsonl"))


def test_parquet(tmp_path: Path) -> None:
    """The rows are those that plain Python says; the bytes around them are the same for two very different runs."""
    one = run_everything(tmp_path / "one", MEDIUM, "--sink", "parquet", replicas=1, slices=1)
    shake = ("--shake-batch", "100", "--shake-delay", "20", "--shake-order")
    other = run_everything(tmp_path / "other", MEDIUM, "--sink", "parquet", *shake, replicas=2, slices=3)
    assert sorted(one.files) == sorted(other.files)
    assert [name for name in one.files if one.files[name] != other.files[name]] == []
    wanted = everything.expected(MEDIUM)
    wanted.pop(everything.DEAD)
    for name, rows in wanted.items():
        table = pq.read_table(tmp_path / "one" / "out" / f"{name}.parquet")
        assert table.column_names == list(everything.NAMES[name])
        assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == [row.values for row in rows]
