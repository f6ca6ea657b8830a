"""The vault: a base and the deltas above it, folded so that each key's last word stays."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from dadstorm.core.line import END, START
from dadstorm.core.numbered import SLOT, Numbered
from dadstorm.core.vault import DRAINED, OUTWEIGHS, Delta, Vault, fold
from dadstorm.errors import RunFailed

SCHEMA = pa.schema([("key_0", pa.string()), ("value", pa.int64()), ("gone", pa.bool_())])


def table(values: dict[str, int | None]) -> pa.RecordBatch:
    """What changed; None: the key is gone."""
    rows = [{"key_0": key, "value": value or 0, "gone": value is None} for key, value in values.items()]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def numbered(values: dict[int, int], key: Callable[[int], str] = lambda slot: "same") -> pa.RecordBatch:
    """Changes of keys that are numbered; what the key is hardly matters then."""
    columns = {SLOT: list(values), "key_0": [key(slot) for slot in values], "value": list(values.values())}
    return pa.RecordBatch.from_pydict(columns)


def state(delta: Delta) -> dict[str, int]:
    rows = [] if delta.table is None else delta.table.to_pylist()
    assert not any(row["gone"] for row in rows), "what is gone is forgotten"
    assert len({row["key_0"] for row in rows}) == len(rows), "each key once"
    return {row["key_0"]: row["value"] for row in rows}


def filled() -> Vault:
    vault = Vault()
    vault.add(Delta(4, table({"a": 1, "b": 1})))
    vault.add(Delta(8, table({"a": 2, "b": None})))
    vault.add(Delta(16, table({"c": 3})))
    return vault


def test_nothing_is_settled_before_it_is_said() -> None:
    vault = filled()
    assert (vault.settled, vault.newest, state(vault.base())) == (START, 16, {})


def test_settling_moves_deltas_into_the_base() -> None:
    vault = filled()
    vault.settle(8)
    assert (vault.settled, vault.newest) == (8, 16)
    assert state(vault.base()) == {"a": 2}
    assert [delta.cut for delta in vault.since(8)] == [16]


def test_settling_between_cuts_settles_what_lies_below() -> None:
    vault = filled()
    vault.settle(15)
    assert vault.settled == 8


@pytest.mark.parametrize("limit, cut", [(0, 0), (3, 0), (4, 4), (7, 4), (15, 8), (99, 16)])
def test_the_newest_cut_up_to_a_limit(limit: int, cut: int) -> None:
    assert filled().newest_up_to(limit) == cut


def test_a_key_that_is_gone_and_comes_back_is_there() -> None:
    vault = filled()
    vault.add(Delta(20, table({"b": 7})))
    vault.settle(20)
    assert state(vault.base()) == {"a": 2, "b": 7, "c": 3}


def test_the_mark_is_that_of_the_settled_cut() -> None:
    vault = Vault()
    vault.add(Delta(4, None, {"line": 4}))
    vault.add(Delta(8, None, {"line": 8}))
    vault.settle(4)
    assert vault.base() == Delta(4, None, {"line": 4})


@pytest.mark.parametrize("seed", range(20))
def test_any_history_folds_to_what_a_dict_would_hold(seed: int) -> None:
    chance = random.Random(seed)
    vault, plain, settled = Vault(), {}, {}
    for cut in range(1, 60):
        keys = chance.sample("abcdefghijklmnop", chance.randrange(0, 9))
        changes = {key: None if chance.random() < 0.3 else chance.randrange(100) for key in keys}
        plain.update(changes)
        vault.add(Delta(cut, table(changes)))
        if chance.random() < 0.4:
            vault.settle(cut)
            settled = {key: value for key, value in plain.items() if value is not None}
        if chance.random() < 0.2:
            assert state(vault.base()) == settled
    assert state(vault.base()) == settled


def test_folding_costs_a_few_operations_a_key_however_much_state_there_is() -> None:
    """A small delta on a large base does not make anybody copy the base."""
    vault = Vault(Delta(1, table({f"k{n}": n for n in range(10_000)})))
    for cut in range(2, 12):
        vault.add(Delta(cut, table({f"k{cut}": 0})))
        vault.settle(cut)
    assert vault._base[0].num_rows == 10_000, "the large table was not touched"
    assert len(state(vault.base())) == 10_000


def test_what_is_gone_is_kept_as_long_as_something_older_lies_below() -> None:
    kept = fold([table({"a": 1}), table({"a": None})], forget=False)
    assert kept.to_pylist() == [{"key_0": "a", "value": 0, "gone": True}]
    assert fold([table({"a": 1}), table({"a": None})], forget=True).num_rows == 0


def test_what_lies_unfolded_stays_a_small_multiple_of_the_state() -> None:
    """However often all keys change, and with however small deltas."""
    everything = {f"k{n}": n for n in range(2000)}
    vault, weight = Vault(), table(everything).nbytes
    for cut in range(1, 60):
        part = everything if cut % 2 else {key: value for key, value in everything.items() if value % 10 == cut % 10}
        vault.add(Delta(cut, table(part)))
        vault.settle(cut)
        assert sum(piece.nbytes for piece in vault._base) <= (1 + OUTWEIGHS + 1) * weight
    assert state(vault.base()) == everything


def test_many_small_deltas_lie_in_few_tables() -> None:
    vault = Vault(Delta(1, table({f"k{n}": n for n in range(10_000)})))
    for cut in range(2, 1002):
        vault.add(Delta(cut, table({f"k{cut}": 0})))
        vault.settle(cut)
    assert len(vault._base) <= 12
    assert len(state(vault.base())) == 10_000


def test_a_set_of_keys_that_only_grows_is_laid_together_without_being_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dadstorm.core.vault.fold", None)
    vault = Vault()
    for cut in range(1, 1001):
        vault.add(Delta(cut, pa.RecordBatch.from_pydict({"key_0": [f"k{cut}"], "key_1": [cut]})))
        vault.settle(cut)
    assert len(vault._base) <= 12
    monkeypatch.undo()
    found = vault.base().table
    assert found is not None and found.column("key_1").to_pylist() == list(range(1, 1001))


@pytest.mark.parametrize("seed", range(10))
def test_what_changes_of_numbered_keys_is_written_to_its_place(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dadstorm.core.vault.fold", None)
    chance = random.Random(seed)
    vault, plain = Vault(), dict[int, int]()
    for cut in range(1, 60):
        known, new = len(plain), chance.randrange(9)
        slots = [*sorted(chance.sample(range(known), chance.randrange(known + 1))), *range(known, known + new)]
        changes = {slot: chance.randrange(100) for slot in slots}
        plain.update(changes)
        vault.add(Delta(cut, numbered(changes, str) if changes else None))
        vault.settle(cut)
        if chance.random() < 0.1:
            vault = Vault(vault.base())
    found = vault.base().table
    assert found is not None
    assert [tuple(row.values()) for row in found.to_pylist()] == [(n, str(n), v) for n, v in sorted(plain.items())]
    assert len(vault._numbered._keys) <= 8, "keys lie in few tables"


@pytest.mark.parametrize(
    "odd",
    [
        numbered({0: 7, 3: 9}),
        numbered({1: 7, 0: 9}),
        numbered({0: 7}).rename_columns([SLOT, "key_1", "value"]),
        numbered({0: 7}).rename_columns([SLOT, "key_0", "other"]),
        numbered({0: 7}).set_column(2, "value", pa.array(["seven"])),
        numbered({0: 7}).set_column(2, "value", pa.array([None], pa.int64())),
        numbered({0: 7}).set_column(0, SLOT, pa.array([None], pa.int64())),
        numbered({0: 7}).set_column(0, SLOT, pa.array(["0"])),
        numbered({2: 7}).set_column(1, "key_0", pa.array([5])),
        numbered({0: 7}).drop_columns([SLOT]),
    ],
)
def test_what_is_not_numbered_by_the_rule_changes_nothing(odd: pa.RecordBatch) -> None:
    base = Numbered()
    assert base.write(numbered({0: 1, 1: 2}))
    before = base.tables()
    assert not base.write(odd)
    assert base.tables() == before


@pytest.mark.parametrize("far", [1, 1000], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", range(10))
def test_numbered_keys_fold_to_what_a_dict_would_hold_in_order(seed: int, far: int) -> None:
    chance = random.Random(seed)
    vault, plain = Vault(), dict[int, int]()
    for cut in range(1, 60):
        slots = sorted(chance.sample(range(40), chance.randrange(1, 9)))
        changes = {far * slot: chance.randrange(100) for slot in slots}
        plain.update(changes)
        vault.add(Delta(cut, numbered(changes)))
        vault.settle(cut)
        if chance.random() < 0.2:
            vault.base()
    found = vault.base().table
    assert found is not None
    assert [(row[SLOT], row["value"]) for row in found.to_pylist()] == sorted(plain.items())


def test_superseded_texts_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column holds 2 GiB of text at most; three times the state must not be laid into one."""
    laid: list[int] = []
    concat = pa.concat_batches

    def counted(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
        laid.append(sum(part.num_rows for part in parts))
        return concat(parts)

    monkeypatch.setattr(pa, "concat_batches", counted)
    assert fold([numbered({0: 1, 1: 2}), numbered({1: 3}), numbered({0: 4, 1: 5})], forget=True).num_rows == 2
    assert laid == [2]


def test_tables_without_rows_fold_to_one_without_rows() -> None:
    nothing = numbered({1: 1}).slice(1)
    assert fold([nothing, nothing], forget=True).num_rows == 0


def test_the_settled_snapshot_of_a_drained_source_says_that_its_stream_ends_there() -> None:
    """Also before the end is settled: who gets it alone is to know it too."""
    vault = Vault(Delta(4, None, {"offset": 9}))
    vault.add(Delta(8, None, {"offset": 11}))
    vault.settle(8)
    assert vault.base().mark == {"offset": 11}
    vault.add(Delta(END, None, {"offset": 11, DRAINED: True}))
    assert vault.base() == Delta(8, None, {"offset": 11, DRAINED: True})
    assert Vault(vault.base()).base() == vault.base()


def huge() -> pa.RecordBatch:
    """A table with one key of 1.5 GB, of which nothing is ever touched."""
    size = 3 << 29
    ends = pa.py_buffer(np.array([0, size], dtype=np.int32))
    key = pa.StringArray.from_buffers(1, ends, pa.py_buffer(np.zeros(size, dtype=np.uint8)))
    return pa.RecordBatch.from_pydict({"key_0": key, "value": pa.array([1])})


@pytest.mark.parametrize("fields", [["key_0"], ["key_0", "value"]])
def test_more_text_than_one_table_takes_is_kept_and_what_cannot_be_given_is_told(fields: list[str]) -> None:
    """Two gigabytes of text cannot be laid in one column."""
    vault = Vault()
    for cut in (1, 2, 3):
        vault.add(Delta(cut, huge().select(fields)))
        vault.settle(cut)
    assert vault.settled == 3
    with pytest.raises(RunFailed, match=r"a slice has \d+ MB, more than one table takes .* several replicas"):
        vault.base()


def test_heavy_tables_of_numbered_keys_are_left_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dadstorm.core.numbered.HEAVY_BYTES", 1 << 10)
    vault = Vault()
    for cut in range(1, 41):
        vault.add(Delta(cut, numbered({cut - 1: cut}, key=lambda slot: f"{slot:0100}")))
        vault.settle(cut)
    assert vault._numbered is not None and 4 <= len(vault._numbered._keys) <= 10
    found = vault.base().table
    assert found is not None
    assert found.column("key_0").to_pylist() == [f"{slot:0100}" for slot in range(40)]
    assert found.column("value").to_pylist() == list(range(1, 41))
