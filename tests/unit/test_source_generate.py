"""The generator: values depend on seed, field and seq only; the clock decides when, never what."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dadstorm.core.line import END
from dadstorm.plan import Field, Operator, Replica, Routing
from dadstorm.sources.generate import GenerateReader, vocabulary

FIELDS = (
    Field("n", "int"), Field("i", "int"), Field("f", "float"), Field("c"), Field("w"),
    Field("b", "bool"), Field("t", "timestamp")
)  # fmt: skip
GENERATORS = [
    {"kind": "counter"},
    {"kind": "int", "low": -5, "high": 5},
    {"kind": "float", "low": 1.0, "high": 2.0},
    {"kind": "choice", "values": ["a", "b", "c"]},
    {"kind": "words", "count": 3, "vocabulary": 500},
    {"kind": "bool"},
    {"kind": "timestamp", "start": 1_700_000_000_000_000, "step": 1_000_000},
]


def source(count: int | None = 5000, slices: int = 1, seed: int = 7, rate: float | None = None) -> Operator:
    params = {"type": "generate", "count": count, "rate": rate, "seed": seed, "generators": GENERATORS}
    return Operator("gen", "source", params, (), FIELDS, slices, (Replica("here"),), Routing())


def everything(reader: GenerateReader, max_rows: int = 1 << 20, max_bytes: int = 1 << 30) -> list[Any]:
    rows: list[Any] = []
    hi = 0
    while hi < END:
        records = reader.read(max_rows, max_bytes)
        assert len(records.rows) <= max_rows and records.hi > hi
        assert all(hi <= seq < records.hi for seq in records.rows.seq.tolist())
        rows += zip(records.rows.seq.tolist(), (tuple(r.values()) for r in records.rows.data.to_pylist()), strict=True)
        hi = records.hi
    return rows


def test_values_are_what_was_asked_for() -> None:
    rows = everything(GenerateReader(source(), 0))
    assert [seq for seq, _ in rows] == list(range(5000)) == [row[0] for _, row in rows]
    assert {row[1] for _, row in rows} == set(range(-5, 6))
    assert all(1.0 <= row[2] < 2.0 for _, row in rows) and len({row[2] for _, row in rows}) == 5000
    assert {row[3] for _, row in rows} == {"a", "b", "c"}
    assert {word for _, row in rows for word in row[4].split(" ")} == set(vocabulary(7, 500))
    assert all(row[4].count(" ") == 2 for _, row in rows)
    assert {row[5] for _, row in rows} == {True, False}
    assert rows[10][1][6].timestamp() - rows[0][1][6].timestamp() == 10


def test_values_do_not_depend_on_batches_slices_or_cuts_but_on_the_seed() -> None:
    whole = everything(GenerateReader(source(), 0))
    assert everything(GenerateReader(source(), 0), max_rows=77) == whole
    assert everything(GenerateReader(source(), 0), max_bytes=1000) == whole
    for slices in (2, 3, 7):
        parts = [everything(GenerateReader(source(slices=slices), s)) for s in range(slices)]
        assert sorted(itertools.chain(*parts)) == whole
    for cut in (0, 1, 1023, 1024, 3000, 4999, 5000, 6000):
        reader = GenerateReader(source(slices=2), 1)
        parts = everything(GenerateReader(source(slices=2), 1, cut=cut, mark=reader.mark(cut)))
        assert parts == [row for row in everything(reader) if row[0] >= cut]
    assert everything(GenerateReader(source(seed=8), 0)) != whole


def test_the_same_values_as_ever() -> None:
    """A golden row: a change of the generator would change the output of every topology that uses it."""
    (_, row), *_ = everything(GenerateReader(source(count=1), 0))
    assert row[:6] == GOLDEN


GOLDEN = (0, 3, 1.3460363636881656, "a", "xaza ruhi xutu", False)


def test_the_whole_range_of_integers() -> None:
    operator = source()
    params = {**operator.params, "generators": [{"kind": "int", "low": -(2**63), "high": 2**63 - 1}]}
    operator = Operator("gen", "source", params, (), (Field("i", "int"),), 1, (Replica("here"),), Routing())
    values = [row[0] for _, row in everything(GenerateReader(operator, 0))]
    assert min(values) < -(2**62) and max(values) > 2**62


def test_the_rate_paces_by_the_clock_and_holds_over_all_slices() -> None:
    now = [100.0]
    readers = [GenerateReader(source(count=None, slices=2, rate=1000.0), s, clock=lambda: now[0]) for s in range(2)]
    given = [0, 0]
    for step in range(33):
        now[0] = 100.0 + step / 8
        for s, reader in enumerate(readers):
            records = reader.read(10_000, 1 << 30)
            given[s] += len(records.rows)
            assert records.hi == step * 125
    assert sum(given) == 4000 and given[0] == 2048


def test_an_endless_source_ends_when_it_is_drained() -> None:
    reader = GenerateReader(source(count=None), 0)
    assert reader.read(10, 1 << 20).hi == 10
    reader.drain()
    records = reader.read(10, 1 << 20)
    assert records.hi == END and len(records.rows) == 0


@pytest.mark.parametrize("size", [1, 100, 12_345])
def test_vocabularies_hold_distinct_words(size: int) -> None:
    words = vocabulary(3, size)
    assert len(set(words)) == size and words != vocabulary(4, size)
