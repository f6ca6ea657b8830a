"""Routing: a pure function of the row and its ID. Not of the batch that the row is in, nor of who sends it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from core_kit import ids, rows
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.routing import Router
from dadstorm.core.rows import Rows

SLICES = 4
POLICIES = ["primary", "random", "hashing"]


def router(policy: str, slices: int = SLICES, seed: int = 0) -> Router:
    return Router(policy, (0,) if policy == "hashing" else (), slices, seed)  # type: ignore[arg-type]


def words(values: list[str | None], seq: list[int] | None = None) -> Rows:
    places = np.arange(len(values), dtype=np.int64) if seq is None else np.array(seq, dtype=np.int64)
    data = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["word"])
    return Rows(places, np.zeros_like(places), data)


def places(routing: Router, sent: Rows) -> dict[tuple[int, int], int]:
    """The slice of each ID."""
    grouped, offsets = routing.partition(sent)
    assert (len(offsets), offsets[0], offsets[-1]) == (routing.slices + 1, 0, len(sent))
    found: dict[tuple[int, int], int] = {}
    for index in range(routing.slices):
        part = ids(grouped.slice(int(offsets[index]), int(offsets[index + 1])))
        assert part == sorted(part), "ID order is kept within a slice"
        found |= dict.fromkeys(part, index)
    assert found.keys() == set(ids(sent))
    return found


MANY = words([f"word {number % 50}" for number in range(400)])


def test_primary_sends_everything_to_the_first_slice() -> None:
    assert set(places(router("primary"), MANY).values()) == {0}


@pytest.mark.parametrize("policy", POLICIES)
def test_one_slice_gets_everything(policy: str) -> None:
    assert set(places(router(policy, slices=1), MANY).values()) == {0}


@pytest.mark.parametrize("policy", ["random", "hashing"])
def test_many_rows_reach_every_slice(policy: str) -> None:
    assert set(places(router(policy), MANY).values()) == set(range(SLICES))


@pytest.mark.parametrize("policy", POLICIES)
@given(cuts=st.lists(st.integers(0, 40), max_size=8))
def test_how_rows_are_batched_does_not_matter(policy: str, cuts: list[int]) -> None:
    sent = MANY.slice(0, 40)
    bounds = sorted({0, 40, *cuts})
    in_parts: dict[tuple[int, int], int] = {}
    for start, stop in pairwise(bounds):
        in_parts |= places(router(policy), sent.slice(start, stop))
    assert in_parts == places(router(policy), sent)


def test_equal_keys_meet_whatever_their_ids() -> None:
    values: list[str | None] = ["a", "b", None, "", "é"]
    once = places(router("hashing"), words(values))
    again = places(router("hashing", seed=9), words(values[::-1], [100, 200, 300, 400, 500]))
    assert [once[seq, 0] for seq in range(5)] == [again[seq, 0] for seq in (500, 400, 300, 200, 100)]


def test_random_goes_by_the_id_and_the_seed_and_by_nothing_else() -> None:
    other_fields = Rows(MANY.seq, MANY.sub, words(["same"] * len(MANY)).data)
    assert places(router("random"), MANY) == places(router("random"), other_fields)
    assert places(router("random", seed=1), MANY) != places(router("random", seed=2), MANY)


def test_offspring_of_one_record_spread_by_their_sub() -> None:
    family = rows(*[(7, sub) for sub in range(100)])
    assert set(places(router("random"), family).values()) == set(range(SLICES))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_rows_are_routed_too(policy: str) -> None:
    assert places(router(policy), words([])) == {}
