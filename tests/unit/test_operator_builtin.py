"""FILTER, UNIQ, COUNT, DUP and SPLIT against what a few lines of plain Python say they are."""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_kit import Case, Result, oracle, same

from dadstorm.core.kernel import RecordError
from dadstorm.core.rows import Rows
from dadstorm.core.schemas import ARROW
from dadstorm.errors import RunFailed

COMPARE: dict[str, Any] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, members: value in members,
    "matches": lambda value, pattern: re.search(pattern, value) is not None,
}
TYPED: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["", "a", "b", "ab", "é", "B"]),
    "int": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]),
    "float": st.sampled_from([-1.5, -0.0, 0.0, 2.0, math.inf, math.nan]),
    "bool": st.booleans(),
}


def filtering(kind: str, *conditions: tuple[int, str, Any]) -> Case:
    params = {"conditions": [{"field": f, "op": op, "value": value} for f, op, value in conditions]}
    return Case("filter", params, [f"x:{kind}", "n:int"], [f"x:{kind}", "n:int"])


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">=", "in"])
@given(data=st.data())
def test_filter_compares_by_type_and_null_never_passes(kind: str, op: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | TYPED[kind], max_size=15))
    one = TYPED[kind].filter(lambda value: value == value)  # Python finds NaN in a list that holds it.
    wanted = data.draw(st.lists(one, min_size=1, max_size=3) if op == "in" else TYPED[kind])
    tuples = list(zip(values, range(len(values)), strict=True))
    expected = oracle(tuples, lambda t: [t] if t[0] is not None and COMPARE[op](t[0], wanted) else [])
    assert same(filtering(kind, (0, op, wanted)).run(tuples).out, expected)


def test_filter_compares_timestamps() -> None:
    noon, one = datetime.datetime(2024, 5, 1, 12), datetime.datetime(2024, 5, 1, 13)
    microseconds = 1_714_564_800_000_000
    case = filtering("timestamp", (0, ">", microseconds))
    assert case.run([(noon, 1), (one, 2), (None, 3)]).values == [(one, 2)]
    case = filtering("timestamp", (0, "in", [microseconds]))
    assert case.run([(noon, 1), (one, 2), (None, 3)]).values == [(noon, 1)]


@pytest.mark.parametrize("pattern", ["b", "^b", "b$", "a|B", "^.$", "[[:upper:]]|é", "(?i)B"])
def test_filter_matches_anywhere_in_the_text(pattern: str) -> None:
    values = ["", "a", "b", "ab", "é", "B", None]
    plain = pattern.replace("[[:upper:]]", "[A-Z]")
    expected = [(v, 0) for v in values if v is not None and re.search(plain, v)]
    assert filtering("string", (0, "matches", pattern)).run([(v, 0) for v in values]).values == expected


def test_all_conditions_of_a_filter_must_hold() -> None:
    case = filtering("string", (0, "!=", "a"), (1, ">", 1))
    assert case.run([("a", 5), ("b", 1), ("b", 2), (None, 3), ("c", None)]).out == [(1, 0, 0, "b", 2)]


def test_no_number_is_equal_to_nan() -> None:
    for condition in ((0, "in", [math.nan, 1.0]), (0, "=", 1.0)):
        assert filtering("float", condition).run([(math.nan, 1), (1.0, 2)]).values == [(1.0, 2)]


def test_a_filter_that_drops_nothing_needs_no_parents() -> None:
    case = filtering("string", (1, ">", 0))
    output = case.kernel().process(case.rows([("a", 1), ("b", 2)]))
    assert output.parent is None and output.ordinal is None


def test_dup_passes_everything_on() -> None:
    case = Case("dup", {}, ["a", "n:int"], ["a", "n:int"])
    assert case.run([("x", 1), (None, None)]).out == [(0, 0, 0, "x", 1), (0, 1, 0, None, None)]


def canonical(value: Any) -> Any:
    """A key under which -0.0 is 0.0 and NaN is NaN."""
    return "nan" if value != value else value


KEYED = st.lists(st.tuples(*[st.none() | TYPED[kind] for kind in TYPED]), max_size=40)
ALL = [f"{kind[0]}:{kind}" for kind in TYPED]


@given(KEYED, st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
def test_uniq_emits_a_tuple_when_its_key_is_new(tuples: list[tuple[Any, ...]], fields: list[int]) -> None:
    seen = set()

    def step(row: Any) -> list[Any]:
        key = tuple(canonical(row[field]) for field in fields)
        new = key not in seen
        seen.add(key)
        return [row] if new else []

    assert same(Case("uniq", {"fields": fields}, ALL, ALL).run(tuples).out, oracle(tuples, step))


@given(KEYED, st.lists(st.integers(0, 3), max_size=4, unique=True))
def test_count_runs_over_the_stream_or_by_key(tuples: list[tuple[Any, ...]], by: list[int]) -> None:
    counts: Counter[Any] = Counter()

    def step(row: Any) -> list[Any]:
        counts[key := tuple(canonical(row[field]) for field in by)] += 1
        return [(*[row[field] for field in by], counts[key])]

    case = Case("count", {"by": by}, ALL, [*[ALL[field] for field in by], "count:int"])
    assert same(case.run(tuples).out, oracle(tuples, step))


def test_more_keys_than_sixteen_bits_tell_apart() -> None:
    case = Case("count", {"by": [0]}, ["k:int"], ["k:int", "count:int"])
    keys = [i * 7919 % 70_001 for i in range(70_001)]
    result = case.run([(key,) for key in keys * 2], cuts=[100_000])
    assert result.values == [(key, 1) for key in keys] + [(key, 2) for key in keys]


def test_a_delta_holds_what_changed_since_the_last_and_no_more() -> None:
    count_by = Case("count", {"by": [0]}, ["k"], ["k", "count:int"])
    kernel = count_by.kernel()
    kernel.process(count_by.rows([("a",), ("b",), ("a",)]))
    first = kernel.delta()
    kernel.process(count_by.rows([("b",), (None,)]))
    second = kernel.delta()
    assert first is not None and second is not None
    assert first.to_pylist() == [{"slot": 0, "key_0": "a", "count": 2}, {"slot": 1, "key_0": "b", "count": 1}]
    assert second.to_pylist() == [{"slot": 1, "key_0": "b", "count": 2}, {"slot": 2, "key_0": None, "count": 1}]

    uniq = Case("uniq", {"fields": [1, 0]}, ["k", "x:float"], ["k", "x:float"])
    kernel = uniq.kernel()
    kernel.process(uniq.rows([("a", 0.0)]))
    kernel.delta()
    kernel.process(uniq.rows([("a", -0.0), ("b", None)]))
    delta = kernel.delta()
    assert delta is not None and delta.to_pylist() == [{"key_0": None, "key_1": "b"}]


def test_who_was_restored_from_tables_without_slots_writes_none() -> None:
    """An earlier version's tables are told apart by their keys, and have any order: their slots would not be ours."""
    count_by = Case("count", {"by": [0]}, ["k"], ["k", "count:int"])
    kernel = count_by.kernel()
    kernel.restore(pa.RecordBatch.from_pydict({"key_0": ["b", "a"], "count": [3, 4], "gone": [False, False]}))
    kernel.process(count_by.rows([("a",), ("c",)]))
    delta = kernel.delta()
    assert delta is not None
    assert delta.to_pylist() == [{"key_0": "a", "count": 5, "gone": False}, {"key_0": "c", "count": 1, "gone": False}]


def test_state_whose_slots_are_not_in_order_is_refused() -> None:
    kernel = Case("count", {"by": [0]}, ["k"], ["k", "count:int"]).kernel()
    with pytest.raises(RunFailed, match="cannot be resumed"):
        kernel.restore(pa.RecordBatch.from_pydict({"slot": [1, 0], "key_0": ["b", "a"], "count": [3, 4]}))


TEXTS = st.none() | st.text(st.sampled_from("ab ;é\t\u2003"), max_size=12)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 9)), max_size=20))
def test_split_emits_one_tuple_per_word(tuples: list[tuple[Any, int]]) -> None:
    by_blank = Case("split", {"field": 0, "separator": None}, ["t", "n:int"], ["t", "n:int"], 4)
    words = oracle(tuples, lambda t: [(word, t[1]) for word in (t[0] or "").split()])
    assert by_blank.run(tuples).out == words
    by_mark = Case("split", {"field": 0, "separator": "; "}, ["t", "n:int"], ["word", "n:int"], 4)
    parts = oracle(tuples, lambda t: [(part, t[1]) for part in (t[0] or "").split("; ") if part])
    assert by_mark.run(tuples).out == parts


@pytest.mark.parametrize("behind", [b"", b" ", b"x", b"\xc2", b"\xe3\x80", b"\xff"])
def test_split_does_not_see_what_lies_behind_a_text(behind: bytes) -> None:
    """A text that ends with a blank, and in its buffer bytes that are not of it, as when a batch was cut there."""
    case = Case("split", {"field": 0, "separator": None}, ["t"], ["t"], 4)
    rows = case.rows([("tile slices ",)])
    text = pa.StringArray.from_buffers(1, rows.data.column(0).buffers()[1], pa.py_buffer(b"tile slices " + behind))
    data = pa.RecordBatch.from_arrays([text], names=["t"])
    output = case.kernel().process(Rows(rows.seq, rows.sub, data))
    assert output.data.column(0).to_pylist() == ["tile", "slices"]


def splitting(on_error: str) -> Result:
    case = Case("split", {"field": 1, "separator": None}, ["n:int", "t"], ["n:int", "t"], 1, on_error)
    return case.run([(1, "a b"), (2, "a b c"), (3, "d")])


def test_a_tuple_with_too_many_words_follows_on_error() -> None:
    with pytest.raises(RecordError, match=r"operator op .* ID \(0, 1\).* more than 2 outputs .* raise max_outputs"):
        splitting("fail")
    rest = [(0, 0, 0, 1, "a"), (0, 0, 1, 1, "b"), (1, 0, 0, 3, "d")]
    assert splitting("skip") == Result(rest, [])
    error = "more than 2 outputs for one tuple, for which its IDs have no room; raise max_outputs"
    letter = (0, 1, "operator op, ID (0, 1)", error, '{"n":2,"t":"a b c"}')
    assert splitting("dead-letter") == Result(rest, [letter])


def test_every_field_type_is_tried_here() -> None:
    assert set(TYPED) | {"timestamp"} == set(ARROW)
    assert pa.types.is_timestamp(ARROW["timestamp"])
