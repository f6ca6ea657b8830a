"""A sample of tests/bench/engine_kills.py: two lives of the engine are killed, the third one goes on to the end."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.bench.engine_kills import check, compare, in_peace, lives_on

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


def test_a_run_that_is_killed_and_resumed_gives_the_bytes_of_one_in_peace(tmp_path: Path) -> None:
    assert check(kills=2, seed=11, master="local[2]", count=60_000, folder=tmp_path, slack=0.02) >= 1


def test_a_run_whose_workers_are_killed_goes_on_by_itself(tmp_path: Path) -> None:
    in_peace(tmp_path, 60_000)
    told, complete = lives_on(tmp_path, "local[2]")
    assert complete, told
    compare(tmp_path, complete)
