"""Ragged topologies, on which old configurations run: tuples that lack fields, from the source to the sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm import topology
from dadstorm.core.kernel import RecordError
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Field, Operator, Plan, Replica, Routing
from dadstorm.sinks.text import console_lines, csv_lines, json_lines
from dadstorm.sources.format_ragged import BLANKS, RaggedFormat, Splitter
from dadstorm.sources.formats import Declined
from tests.unit.legacy_kit import outputs, records
from tests.unit.operator_kit import Case

LINES = [
    ("1, ana, x", ["1", "ana", "x"]),
    ("1", ["1"]),
    ("  1 ,\tana  ", ["1", "ana"]),
    (",", ["", ""]),
    ('""', [""]),
    ('"a, b" , c', ["a, b", "c"]),
    ('"say ""hi""", c', ['say "hi"', "c"]),
    ('"open, c', ['"open', "c"]),
    ('a "b" c, d', ['a "b" c', "d"]),
    ('"a" "b", c', ['a" "b', "c"]),
    ('"a"b, c', ['"a"b', "c"]),
    ("a,b,", ["a", "b", ""]),
    ("'a', b", ["'a'", "b"]),
]


@pytest.mark.parametrize(("line", "fields"), LINES)
def test_a_line_is_split_as_people_mean_it(line: str, fields: list[str]) -> None:
    assert Splitter().fields(line) == fields


def read(text: bytes, tmp_path: Path, fields: int = 3, on_error: Any = "fail", **params: Any) -> list[tuple[Any, ...]]:
    """What a source makes of a file."""
    path = tmp_path / "data.dat"
    path.write_bytes(text)
    source = Operator(
        "s", "source",
        {"type": "file", "format": "csv", "paths": [str(path)], "ragged": True, "comment": "%", **params},
        (), tuple(Field(f"f{i}") for i in range(fields)), 1, (Replica("localhost"),), Routing(), on_error=on_error,
    )  # fmt: skip
    rows = records(Plan("p", (source,)), source, str(tmp_path))
    return [tuple(row.values()) for row in rows.data.to_pylist()]


def test_absent_fields_are_null_and_empty_ones_are_not(tmp_path: Path) -> None:
    assert read(b"\xef\xbb\xbf1,2,3\r\n% no\n\n   \n4\n,\n", tmp_path) == [
        ("1", "2", "3"), ("4", None, None), ("", "", None),
    ]  # fmt: skip


def test_a_stray_quote_costs_no_other_line(tmp_path: Path) -> None:
    assert read(b'1, "a\n2, b\n3, c"\n', tmp_path) == [("1", '"a', None), ("2", "b", None), ("3", 'c"', None)]


def test_a_tab_may_separate_fields(tmp_path: Path) -> None:
    assert read(b" a b \t\tc\n", tmp_path, delimiter="\t") == [("a b", "", "c")]


def test_a_record_with_more_fields_is_broken(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"data.dat:2: expected at most 3 fields, found 4"):
        read(b"1\n1,2,3,4\n", tmp_path)
    assert read(b"1\n1,2,3,4\n5,6\n", tmp_path, on_error="skip") == [("1", None, None), ("5", "6", None)]


def test_bytes_that_are_no_text_are_a_broken_record(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"data.dat:2: invalid UTF-8"):
        read(b"1\nJo\xe3o\n", tmp_path)


TEXTS = st.lists(st.text(st.sampled_from('ab,"% \té'), max_size=8), min_size=1, max_size=6)


@given(TEXTS)
def test_the_fast_way_gives_what_the_slow_one_gives(lines: list[str]) -> None:
    form = RaggedFormat(tuple(Field(f"f{i}") for i in range(20)), 1 << 20, comment="%")
    data = "\n".join(lines).encode()
    split = form.rules.split(data, max(1, len(data)), True)
    assert split is not None
    kept = [line for line in lines if line.strip(BLANKS) and not line.startswith("%")]
    slow, broken = form.rows(kept)
    assert not broken
    if kept:
        try:
            assert form.batch(data, split).equals(slow)
        except Declined:
            assert b'"' in data


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(column, pa.string()) for column in columns[:2]] + [pa.array(columns[2], pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, names=["a", "b", "n"])


ROWS = [("x", "y", 1), ("x", None, 2), ("x,", "", None), ("", None, None), (None, "z", None), (None, None, None)]


def test_sinks_leave_out_what_is_absent() -> None:
    assert csv_lines(batch(ROWS), ragged=True).to_pybytes().decode().split("\n") == [
        "x,y,1", "x,,2", '"x,",', '""', ",z", "", "",
    ]  # fmt: skip
    lines = json_lines(batch(ROWS), ragged=True).to_pybytes().decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"a": "x", "b": "y", "n": 1}, {"a": "x", "b": None, "n": 2}, {"a": "x,", "b": ""}, {"a": ""},
        {"a": None, "b": "z"}, {},
    ]  # fmt: skip
    assert console_lines(batch(ROWS[:2]), "op", ragged=True).to_pybytes() == b"op: x, y, 1\nop: x, , 2\n"


@given(st.lists(st.tuples(*[st.one_of(st.none(), st.text("a,\"\n\\\x01", max_size=3))] * 3), min_size=1, max_size=5))
def test_rows_that_lack_nothing_are_written_as_ever(rows: list[tuple[str | None, ...]]) -> None:
    whole = [(*row[:2], 7) for row in rows]
    assert csv_lines(batch(whole), ragged=True).equals(csv_lines(batch(whole)))
    assert json_lines(batch(whole), ragged=True).equals(json_lines(batch(whole)))
    assert console_lines(batch(whole), "o", ragged=True).equals(console_lines(batch(whole), "o"))


def test_uniq_drops_a_tuple_without_the_field_whatever_the_batches() -> None:
    case = Case("uniq", {"fields": [1], "drop_nulls": True}, ["a", "b"], ["a", "b"])
    rows = [("1", None), ("2", "x"), ("3", None), ("4", "x"), ("5", "")]
    for cuts in ([], [1, 2, 3, 4], [3]):
        assert case.run(rows, cuts).values == [("2", "x"), ("5", "")]


@pytest.mark.parametrize(
    ("op", "value", "passed"),
    [
        ("=", "5", ["5", "5.0", "+5", "005", "5e0"]),
        ("=", "5 ", []),
        ("<", "10", ["5", "5.0", "9", "+5", "005", "5e0", "-1", ""]),
        (">", "9007199254740992", ["9007199254740993", "a", "é"]),
        (">", "a", ["é"]),
        ("!=", "a", ["5", "5.0", "9", "10", "+5", "005", "5e0", "-1", "", "9007199254740993", "é"]),
    ],
)
def test_a_loose_comparison_takes_numbers_for_numbers(op: str, value: str, passed: list[str]) -> None:
    texts = ["5", "5.0", "9", "10", "+5", "005", "5e0", "-1", "", "9007199254740993", "a", "é", None]
    case = Case("filter", {"conditions": [{"field": 0, "op": op, "value": value, "compare": "loose"}]}, ["a"], ["a"])
    assert [row[0] for row in case.run([(text,) for text in texts], []).values] == passed


def custom(text: str, tmp_path: Path, fields: int = 2) -> Case:
    (tmp_path / "listing.py").write_text(text)
    params = {"function": "listing.f", "mode": "list", "key": [], "with_id": False, "args": {}}
    return Case("custom", params, ["a", "b:int"], [f"f{i}" for i in range(fields)], output_bits=4, base=str(tmp_path))


def test_a_list_function_gets_what_is_there_as_texts(tmp_path: Path) -> None:
    case = custom("def f(t):\n    return [[len(t), *t][:2], [], t]\n", tmp_path)
    assert case.run([("x", 7), ("y", None), (None, None)], []).values == [
        ("2", "x"), (None, None), ("x", "7"), ("1", "y"), (None, None), ("y", None), ("0", None), (None, None),
        (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'ab'", "returned 'ab' (str); expected a list of lists of fields, or None"),
        ("['ab']", "one of its outputs is 'ab' (str); expected a list of fields, such as ['a', 'b']"),
        ("[[None]]", "a field of an output is a NoneType; expected text or a number"),
        ("[[1, 2, 3]]", "an output has 3 fields, but the operator has 2; declare as many as it can have"),
        ("[['a']] * 17", "more than 16 outputs for one tuple"),
    ],
)
def test_what_a_list_function_may_not_return(returned: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError) as caught:
        custom(f"def f(t):\n    return {returned}\n", tmp_path).run([("x", 7)], [])
    assert message in str(caught.value)


TOPOLOGY = """\
ragged: true
sources:
  s: {csv: data.csv, fields: 3, comment: "%"}
operators:
  n: {input: s, count: , fields: 3}
  u: {input: [s, n], uniq: 2}
  o: {input: [s, n], dup: }
"""


def test_a_ragged_topology_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a, b\nc\nd, b\ne, f, g\n")
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY)
    plan = topology.load(str(path), out=str(tmp_path))
    assert outputs(plan) == {"u": "a,b\ne,f,g\n", "o": "a,b\n1\nc\n2\nd,b\n3\ne,f,g\n4\n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ragged: maybe", 'ragged: found "maybe"; expected true or false'),
        ("s: {csv: data.csv, header: true, fields: 3}", "header: a ragged topology finds fields by position"),
        ("n: {input: s, count: , fields: [a:float, b, c]}", '"a" is a float; expected int or string'),
        ("n: {input: s, count: 1, fields: n}", "fields: found 1 fields; expected 2: (f1, count:int)"),
        ("o: {input: s, filter: {field: 1, op: in, value: x, compare: loose}}", "not with in"),
        ("o: {input: s, filter: {field: 1, op: '=', value: x, compare: los}}", 'expected loose; did you mean "loose"?'),
        ("o: {input: s, dup: , address: autos}", "expected an address such as tcp://10.0.0.1:11000, or auto"),
    ],
)
def test_mistakes_in_a_ragged_topology(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a\n")
    key = text.partition(":")[0]
    lines = [line for line in TOPOLOGY.splitlines() if line.split(":")[0].strip() != key]
    indent = "" if key == "ragged" else "  "
    at = {"ragged": 0, "s": lines.index("sources:") + 1 if "sources:" in lines else 0}.get(key, len(lines))
    lines.insert(at, indent + text)
    path = tmp_path / "t.yaml"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError) as caught:
        topology.load(str(path), out=str(tmp_path))
    assert message in str(caught.value)
