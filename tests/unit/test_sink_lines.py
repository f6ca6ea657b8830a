"""CSV and JSON-lines sinks: the bytes of every value, commit and resume, and disks that refuse."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dadstorm.core.line import END
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Field
from dadstorm.sinks import disk
from dadstorm.sinks.text import csv_lines, json_lines
from tests.unit.sink_kit import FIELDS, open_sink, rows_of, sink_operator, write_all

NEW_YEAR = datetime(2026, 1, 2, 3, 4, 5, 6)

texts = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(',"\r\n\\\t\x00\x1f ')), max_size=8)
values = st.tuples(
    st.none() | texts,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats() | st.integers(-(10**17), 10**17).map(float),
    st.none() | st.booleans(),
    st.none() | st.datetimes(),
)
tables = st.lists(values, min_size=1, max_size=12)


def iso(moment: datetime) -> str:
    return moment.strftime("%m-%dT%H:%M:%S.%fZ").join([f"{moment.year:04d}-", ""])


def write(form: str, path: Path, *tuples: tuple, fields: tuple[Field, ...] = FIELDS, **params: object) -> str:
    write_all(sink_operator(form, path, fields, **params), rows_of(tuples, fields))
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (("plain", 1, 0.1, True, NEW_YEAR), "plain,1,0.1,true,2026-01-02T03:04:05.000006Z"),
        (("", -5, 1.0, False, datetime(1970, 1, 1)), ",-5,1.0,false,1970-01-01T00:00:00.000000Z"),
        ((None, None, None, None, None), ",,,,"),
        (("a,b", 0, -0.0, None, None), '"a,b",0,-0.0,,'),
        (('say "hi"', 0, 1e15, None, None), '"say ""hi""",0,1e+15,,'),
        (("two\nlines", 0, 1e300, None, None), '"two\nlines",0,1e+300,,'),
        (("back\rwards", 0, math.inf, None, None), '"back\rwards",0,inf,,'),
        ((" blanks ", 0, -math.inf, None, None), " blanks ,0,-inf,,"),
        (("déjà 語 🎈", 2**63 - 1, math.nan, None, None), "déjà 語 🎈,9223372036854775807,nan,,"),
    ],
)
def test_csv_text_of_values(tmp_path: Path, value: tuple, text: str) -> None:
    assert write("csv", tmp_path / "out.csv", value) == text + "\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (("plain", 1, 0.1, True, NEW_YEAR), '{"s":"plain","i":1,"f":0.1,"b":true,"t":"2026-01-02T03:04:05.000006Z"}'),
        ((None, None, None, None, None), '{"s":null,"i":null,"f":null,"b":null,"t":null}'),
        (("", -1, 2.0, False, None), '{"s":"","i":-1,"f":2.0,"b":false,"t":null}'),
        (('"\\', 0, math.nan, None, None), '{"s":"\\"\\\\","i":0,"f":null,"b":null,"t":null}'),
        (("\n\t\x00é語", 0, math.inf, None, None), '{"s":"\\n\\t\\u0000é語","i":0,"f":null,"b":null,"t":null}'),
    ],
)
def test_json_text_of_values(tmp_path: Path, value: tuple, text: str) -> None:
    assert write("jsonl", tmp_path / "out.jsonl", value) == text + "\n"


def test_a_json_key_is_escaped_too(tmp_path: Path) -> None:
    assert write("jsonl", tmp_path / "o", (1,), fields=(Field('a"b', "int"),)) == '{"a\\"b":1}\n'


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_id_goes_in_front_on_request(tmp_path: Path, form: str) -> None:
    expected = {"csv": "0,0,a,1\n", "jsonl": '{"_seq":0,"_sub":0,"word":"a","n":1}\n'}
    fields = (Field("word"), Field("n", "int"))
    assert write(form, tmp_path / "o", ("a", 1), fields=fields, with_id=True) == expected[form]


def test_a_row_of_one_empty_field_is_not_a_blank_line(tmp_path: Path) -> None:
    assert write("csv", tmp_path / "s", ("",), ("a",), (None,), fields=(Field("s"),)) == '""\na\n""\n'
    assert write("csv", tmp_path / "i", (None,), (3,), fields=(Field("i", "int"),)) == '""\n3\n'


@given(tables)
@settings(max_examples=150, deadline=None)
def test_csv_reads_back_as_written(table: list[tuple]) -> None:
    text = csv_lines(rows_of(table, FIELDS).data).to_pybytes().decode()
    # The csv module takes a lone CR for the end of a line even inside quotes unless newline="" keeps it.
    back = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len(back) == len(table)
    for (s, i, f, b, t), read in zip(table, back, strict=True):
        assert read[0] == (s or "")
        assert read[1] == ("" if i is None else str(i))
        assert (read[2] == "") if f is None else same(float(read[2]), f)
        assert f is None or any(mark in read[2] for mark in ".en")
        assert read[3] == {None: "", True: "true", False: "false"}[b]
        assert read[4] == ("" if t is None else iso(t))


@given(tables)
@settings(max_examples=150, deadline=None)
def test_json_reads_back_as_written(table: list[tuple]) -> None:
    lines = json_lines(rows_of(table, FIELDS).data).to_pybytes().decode().split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(table)
    for (s, i, f, b, t), line in zip(table, lines, strict=True):
        read = json.loads(line)
        assert list(read) == ["s", "i", "f", "b", "t"]
        number = read.pop("f")
        assert number is None if f is None or not math.isfinite(f) else same(number, f) and isinstance(number, float)
        assert read == {"s": s, "i": i, "b": b, "t": t and iso(t)}


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@given(tables, st.sampled_from(["csv", "jsonl"]), st.data())
@settings(max_examples=100, deadline=None)
def test_text_does_not_depend_on_batches(table: list[tuple], form: str, data: st.DataObject) -> None:
    """Columns with and without special characters take different ways through the code: cutting mixes them."""
    lines = {"csv": csv_lines, "jsonl": json_lines}[form]
    whole = rows_of(table, FIELDS)
    cut = data.draw(st.integers(0, len(table)))
    pieces = [whole.slice(0, cut), whole.slice(cut, len(table))]
    parts = b"".join(lines(piece.data).to_pybytes() for piece in pieces if len(piece))
    assert parts == lines(whole.data).to_pybytes()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_many_rows_in_any_pieces_give_the_same_bytes(tmp_path: Path, form: str) -> None:
    start = datetime(2026, 1, 1)
    rows = rows_of(
        [(f"w{i}" if i % 7 else 'a "b"', i, i / 4, i % 2 == 0, start + timedelta(seconds=i)) for i in range(70_000)],
        FIELDS,
    )
    write_all(sink_operator(form, tmp_path / "once", FIELDS), rows)
    write_all(sink_operator(form, tmp_path / "often", FIELDS), rows, range(0, 70_000, 911), range(0, 70_000, 9_973))
    assert (tmp_path / "often").read_bytes() == (tmp_path / "once").read_bytes()
    assert (tmp_path / "once").read_bytes().count(b"\n") == 70_000


def test_a_commit_is_in_the_file_before_it_returns(tmp_path: Path) -> None:
    sink = open_sink(sink_operator("csv", tmp_path / "o"))
    sink.write(rows_of([("a", 1), ("b", 2)]))
    assert (sink.committed, sink.mark()) == (0, {"bytes": 0})
    sink.commit(2)
    assert (sink.committed, sink.mark()) == (2, {"bytes": 8})
    assert (tmp_path / "o").read_bytes() == b"a,1\nb,2\n"
    sink.close()


@pytest.mark.parametrize("fsync", [False, True])
def test_resume_discards_what_was_not_committed(tmp_path: Path, fsync: bool) -> None:
    operator = sink_operator("csv", tmp_path / "o", fsync=fsync)
    first = open_sink(operator)
    first.write(rows_of([("a", 1)]))
    first.commit(1)
    mark = first.mark()
    first.write(rows_of([("b", 2), ("torn", 3)], seq=1))
    first.commit(3)
    first.close()
    again = open_sink(operator, mark=mark, cut=1)
    assert (again.committed, again.mark()) == (1, mark)
    assert (tmp_path / "o").read_bytes() == b"a,1\n"
    again.write(rows_of([("b", 2)], seq=1))
    again.commit(END)
    again.close()
    assert (tmp_path / "o").read_bytes() == b"a,1\nb,2\n"
    assert again.committed == END


def test_a_first_start_replaces_an_old_file_and_makes_the_folder(tmp_path: Path) -> None:
    assert write("csv", tmp_path / "new" / "deep" / "o", ("a", 1), fields=(Field("a"), Field("b", "int"))) == "a,1\n"
    assert write("csv", tmp_path / "new" / "deep" / "o", ("b", 2), fields=(Field("a"), Field("b", "int"))) == "b,2\n"


def test_no_rows_leave_an_empty_file(tmp_path: Path) -> None:
    assert write("csv", tmp_path / "o") == ""


def test_resume_of_a_file_that_is_too_short_says_so(tmp_path: Path) -> None:
    operator = sink_operator("csv", tmp_path / "o")
    (tmp_path / "o").write_bytes(b"a,1\n")
    with pytest.raises(RunFailed, match=r"sink out: .*at least the 9 bytes .*found 4 bytes; put the file back"):
        open_sink(operator, mark={"bytes": 9}, cut=5)
    assert (tmp_path / "o").read_bytes() == b"a,1\n"
    (tmp_path / "o").unlink()
    with pytest.raises(RunFailed, match="found no such file"):
        open_sink(operator, mark={"bytes": 9}, cut=5)
    assert not (tmp_path / "o").exists()


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=rf"sink out: cannot write {tmp_path}: Is a directory; a folder is in the way"):
        open_sink(sink_operator("csv", tmp_path))


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunFailed, match="a file stands where a folder is needed"):
        open_sink(sink_operator("csv", tmp_path / "file" / "o"))
    with pytest.raises(RunFailed, match="a file stands where a folder is needed"):
        open_sink(sink_operator("csv", tmp_path / "file" / "deeper" / "o"))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_full_disk_stops_the_run(form: str) -> None:
    sink = open_sink(sink_operator(form, "/dev/full"))
    with pytest.raises(RunFailed, match="sink out: cannot write /dev/full: No space left on device; free some space"):
        sink.write(rows_of([("a", 1)]))
    assert sink.committed == 0
    sink.close()


def test_who_follows_the_file_sees_rows_before_they_are_committed(tmp_path: Path) -> None:
    sink = open_sink(sink_operator("csv", tmp_path / "o"))
    sink.write(rows_of([("a", 1)]))
    assert (tmp_path / "o").read_text() == "a,1\n"
    sink.close()


def test_rows_at_or_above_the_cut_are_the_callers_mistake(tmp_path: Path) -> None:
    sink = open_sink(sink_operator("csv", tmp_path / "o"))
    sink.write(rows_of([("a", 1), ("b", 2)]))
    with pytest.raises(AssertionError, match="commit at 1 with rows written up to 1"):
        sink.commit(1)
    sink.commit(2)
    with pytest.raises(AssertionError, match="rows from seq 1 came after"):
        sink.write(rows_of([("b", 2)], seq=1))
    sink.close()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_an_output_has_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(disk.lock, "__defaults__", (0.1,))
    operator = sink_operator(form, tmp_path / "out", FIELDS)
    row = rows_of([("a", 1, 1.0, True, NEW_YEAR)], FIELDS)
    first = open_sink(operator)
    first.write(row)
    for mark in (None, first.mark()):
        with pytest.raises(UserError, match=r"sink out: \S+out is being written by another run; .*--attach"):
            open_sink(operator, mark=mark)
    first.commit(END)  # Complete: whoever wants to may replace it, though this one is still open.
    written = files(tmp_path / "out")
    assert all(written), "who was refused has touched nothing"
    second = open_sink(operator)
    second.write(row)
    second.commit(END)
    second.close()
    assert files(tmp_path / "out") == written
    first.close()


def files(path: Path) -> list[bytes]:
    return [part.read_bytes() for part in (sorted(path.iterdir()) if path.is_dir() else [path])]


def test_pipes_and_devices_are_for_all() -> None:
    sinks = [open_sink(sink_operator("csv", "/dev/null", FIELDS)) for _ in range(2)]
    for sink in sinks:
        sink.write(rows_of([("a", 1, 1.0, True, NEW_YEAR)], FIELDS))
        sink.commit(END)
        sink.close()
