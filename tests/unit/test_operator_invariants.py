"""What every kernel owes: output that depends neither on how the stream is cut nor on moving the state elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_kit import Case, cuts_of, same

from dadstorm.core.kernel import RecordError

MODULE = '''
import pyarrow as pa
import pyarrow.compute as pc

def shout(word, number):
    if word == "b":
        raise ValueError("no b")
    if number is None:
        return None
    if number > 5:
        return [(word.upper(), number), (word, -number)]
    return (word, 1.5 if number == 2 else number)

def letters(word, number):
    for letter in word or "":
        if letter == "b":
            raise ValueError("no b")
        yield letter

def doubled(batch):
    return pa.RecordBatch.from_arrays([batch.column(0), pc.multiply(batch.column(1), 2)], names=["a", "b"])

def picky(batch, ids):
    parents = []
    for i, (word, seq) in enumerate(zip(batch.column(0).to_pylist(), ids.seq)):
        if word == "b" and seq % 2:
            raise ValueError("no b")
        parents += [i] * (len(word or "") % 3)
    return batch.take(pa.array(parents, pa.int64())), parents

class Sessions:
    def process(self, state, word, number, id):
        seen = state.get([])
        seen.append(number)
        if number == 0:
            state.delete()
        elif number != 1:
            state.set(seen)
        if number == 3:
            raise ValueError("after the state was set")
        return [(word, len(seen)), (repr(state.key), id.seq)]

class Total:
    def process(self, state, word, number):
        total = state.get(0) + (number or 0)
        state.set(total)
        return (word, "wrong" if number == 4 else total)
'''

CASES = {
    "dup": Case("dup", {}, ["w", "n:int"], ["w", "n:int"]),
    "filter": Case("filter", {"conditions": [{"field": 1, "op": ">", "value": 1}]}, ["w", "n:int"], ["w", "n:int"]),
    "uniq": Case("uniq", {"fields": [0]}, ["w", "n:int"], ["w", "n:int"]),
    "uniq of two": Case("uniq", {"fields": [1, 0]}, ["w", "n:int"], ["w", "n:int"]),
    "count": Case("count", {"by": []}, ["w", "n:int"], ["count:int"]),
    "count by": Case("count", {"by": [0]}, ["w", "n:int"], ["w", "count:int"]),
    "count by two": Case("count", {"by": [1, 0]}, ["w", "n:int"], ["n:int", "w", "count:int"]),
    "count by float": Case("count", {"by": [1]}, ["w", "x:float"], ["x:float", "count:int"]),
    "count by bool, moment": Case(
        "count", {"by": [0, 1]}, ["b:bool", "t:timestamp"], ["b:bool", "t:timestamp", "count:int"]
    ),
    "split": Case("split", {"field": 0, "separator": None}, ["w", "n:int"], ["w", "n:int"], output_bits=1),
    "split at b": Case("split", {"field": 0, "separator": "b"}, ["w", "n:int"], ["w", "n:int"], output_bits=2),
    "row": Case("custom", {"function": "sample.shout", "mode": "row"}, ["w", "n:int"], ["w", "n:int"], 1),
    "row generator": Case("custom", {"function": "sample.letters", "mode": "row"}, ["w", "n:int"], ["w"], 2),
    "batch": Case("custom", {"function": "sample.doubled", "mode": "batch"}, ["w", "n:int"], ["w", "n:int"]),
    "batch with parents": Case(
        "custom", {"function": "sample.picky", "mode": "batch", "with_id": True}, ["w", "n:int"], ["w", "n:int"], 1
    ),
    "keyed": Case(
        "custom",
        {"function": "sample.Sessions", "mode": "keyed", "key": [0], "with_id": True},
        ["w", "n:int"],
        ["w", "n:int"],
        1,
    ),
    "keyed by float and word": Case(
        "custom",
        {"function": "sample.Sessions", "mode": "keyed", "key": [1, 0], "with_id": True},
        ["w", "n:float"],
        ["w", "n:int"],
        1,
    ),
    "keyed without key": Case(
        "custom", {"function": "sample.Total", "mode": "keyed", "key": []}, ["w", "n:int"], ["w", "n:int"]
    ),
}

WORDS = st.none() | st.sampled_from(["", "a", "b", "c", "a b", " c  d é", "bab", "ccc"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "": WORDS,
    "int": st.none() | st.integers(-1, 7),
    "float": st.none() | st.sampled_from([0.0, -0.0, 1.0, 3.0, float("nan"), float("inf")]),
    "bool": st.none() | st.booleans(),
    "timestamp": st.none() | st.datetimes().filter(lambda moment: moment.second % 2 == 0),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lib")
    (folder / "sample.py").write_text(MODULE)
    return folder


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_cutting_and_restoring_change_nothing(name: str, on_error: str, base: Path, data: st.DataObject) -> None:
    case = CASES[name]
    case.on_error, case.base = on_error, str(base)
    kinds = [VALUES[field.partition(":")[2]] for field in case.inputs]
    tuples = data.draw(st.lists(st.tuples(*kinds), max_size=30))
    whole = case.run(tuples)
    assert same(case.run(tuples, cuts=range(len(tuples))), whole), "one row at a time"
    cuts, snapshots, restores = (data.draw(cuts_of(len(tuples))) for _ in range(3))
    assert same(case.run(tuples, cuts, snapshots, restores, data.draw(st.booleans())), whole)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].kind in ("split", "custom")])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_run_fails_at_the_same_tuple_however_it_is_cut(name: str, base: Path, data: st.DataObject) -> None:
    case = CASES[name]
    case.on_error, case.base = "fail", str(base)
    kinds = [VALUES[field.partition(":")[2]] for field in case.inputs]
    tuples = data.draw(st.lists(st.tuples(*kinds), max_size=15))

    def ending(cuts: list[int]) -> str:
        try:
            return repr(case.run(tuples, cuts))
        except RecordError as error:
            return str(error)

    assert ending(list(range(len(tuples)))) == ending([]) == ending(data.draw(cuts_of(len(tuples))))


@pytest.mark.parametrize("name", CASES)
def test_no_rows_make_no_output_and_no_change(name: str, base: Path) -> None:
    case = CASES[name]
    case.base = str(base)
    kernel = case.kernel()
    output = kernel.process(case.rows([]))
    assert output.data.num_rows == 0 and output.data.schema == case.schema
    assert kernel.delta() is None


@pytest.mark.parametrize("name", CASES)
def test_columns_may_come_sliced_and_dictionary_encoded(name: str, base: Path) -> None:
    case = CASES[name]
    case.on_error, case.base = "skip", str(base)
    if case.inputs[0] != "w":
        return
    tuples = [("a b", 2), ("b", 1), (None, None), ("a b", 7), ("c", 5), ("", 0)]
    expected = case.run(tuples)
    rows = case.rows(tuples)
    columns = [rows.data.column(0).dictionary_encode(), rows.data.column(1)]
    encoded = type(rows)(rows.seq, rows.sub, type(rows.data).from_arrays(columns, names=rows.data.schema.names))
    result = type(expected)()
    kernel = case.kernel()
    case.process(kernel, encoded.slice(0, 3), result)
    case.process(kernel, encoded.slice(3, 6), result)
    assert same(result, expected)
