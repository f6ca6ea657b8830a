"""Replicas die and hang while a topology runs, and its output does not change by a byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import disturbed, reference

pytestmark = [pytest.mark.cluster, pytest.mark.serial]

ROUNDS = 3


def test_replicas_are_killed_and_hung_and_the_output_stays_the_same(tmp_path: Path) -> None:
    wanted = reference(tmp_path / "reference")
    assert wanted["counts.csv"].count(b"\n") > 100_000
    rounds = [disturbed(tmp_path / str(seed), seed, wanted, faults=6) for seed in range(ROUNDS)]
    print("\n".join(map(str, rounds)))
    assert all(r.code == 0 and r.same for r in rounds), "\n".join(map(str, rounds))
    assert sum(len(r.faults) for r in rounds) >= 2 * ROUNDS, "there was next to no chaos"
