"""Replicas, networks, PCSs and PuppetMaster fail while a topology runs, and its output does not change by a byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import disturbed, needs_pcs, reference
from every_death import borne, deaths

pytestmark = [pytest.mark.cluster, pytest.mark.serial]

SAMPLE = 5


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    found = reference(tmp_path_factory.mktemp("chaos") / "reference")
    assert found["counts.csv"].count(b"\n") > 100_000
    return found


@pytest.mark.parametrize("seed", range(6))
def test_whatever_fails_the_output_stays_the_same(tmp_path: Path, wanted: dict[str, bytes], seed: int) -> None:
    """With an even seed on one host, with an odd one at two PCS daemons."""
    result = disturbed(tmp_path / "round", seed, wanted, faults=5)
    print(result)
    assert result.code == 0 and result.same, str(result)
    assert result.faults, "there was no chaos"


def test_some_of_all_deaths_that_have_to_be_borne(tmp_path: Path) -> None:
    """Of each kind some; scripts/chaos --exhaustive does all."""
    borne(tmp_path / "run", deaths()[::SAMPLE])


@pytest.mark.parametrize("together", [("sums 0", "sums 1"), ("numbers 0", "sums 2")])
def test_deaths_after_which_nobody_is_started_again(tmp_path: Path, together: tuple[str, ...]) -> None:
    assert together in deaths()
    borne(tmp_path / "run", [together], "spread")


def test_all_deaths_are_among_them() -> None:
    every = [set(together) for together in deaths()]
    assert len(every) == 8 + 23 + 3
    assert {"sums 0", "sums 2"} in every and {"numbers 1", "sums.sink 0"} in every and {"some 0"} in every
    assert {"some 0", "some 1"} not in every, "nobody would be left who has their copies"


def test_chaos_knows_whose_copies_only_a_pcs_has() -> None:
    """Seeds 94003 and 94063: it killed the PCS of a sink that it had killed just before."""
    living = ["counts 0", "counts 1", "fresh 2"]
    assert needs_pcs(living, {"counts.sink 0"}), "the kernel is done with it, or not yet:"
    assert needs_pcs([*living, "counts.sink 0"], {"counts.sink 0"})
    assert needs_pcs(living, {"fresh 2"}), "with spread, its peers had died before"
    assert not needs_pcs(living, {"counts 1"}) and not needs_pcs(living, ())
