"""File sources: record numbers, blocks, slices, resuming, and what becomes of broken records."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from source_kit import LINE, NUMBER_AND_NAME, everything, read, source, write

from dadstorm.core.kernel import RecordError
from dadstorm.core.line import END
from dadstorm.errors import RunFailed
from dadstorm.plan import Field, Plan
from dadstorm.sources import make_reader
from dadstorm.sources.files import FileReader

# ---------------------------------------------------------------------------------------------- what a record is


def test_a_records_seq_is_its_number_and_blank_lines_and_comments_have_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '% people\n1,ann\n\n2,bob\r\n\r\n% end\n3,"c, d"\n')
    assert read(source(path, comment="%")) == ([(0, (1, "ann")), (1, (2, "bob")), (2, (3, "c, d"))], [])


@pytest.mark.parametrize("few", [0, 1024])
def test_a_record_of_one_field_has_no_delimiter(tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dadstorm.sources.format_csv.FEW", few)
    path = write(tmp_path / "a.csv", "one\ntwo,three\nfour\n")
    rows, letters = read(source(path, fields=LINE, on_error="dead-letter"))
    assert rows == [(0, ("one",)), (2, ("four",))]
    assert letters[0][1][1] == "expected 1 columns, found 2"


@pytest.mark.parametrize("kind", ["string", "int", "float", "bool", "timestamp"])
@pytest.mark.parametrize("data", [b"one\n", b"\xff,1\n", b"\0,1\n"])
def test_a_block_of_nothing_but_broken_records_ends(tmp_path: Path, kind: Any, data: bytes) -> None:
    path = write(tmp_path / "a.csv", data)
    rows, letters = read(source(path, fields=(Field("a"), Field("b", kind)), on_error="dead-letter"))
    assert rows == [] and len(letters) == 1


def test_records_are_numbered_on_over_all_paths(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a", "1,a\n2,b"), write(tmp_path / "empty", ""), write(tmp_path / "b", "3,c\n")]
    assert read(source(*paths))[0] == [(0, (1, "a")), (1, (2, "b")), (2, (3, "c"))]


def test_every_line_of_a_text_file_is_a_record_also_an_empty_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufeffone\n\ntwo\r\n  \nthrée")
    rows, _ = read(source(path, form="text", fields=LINE))
    assert rows == [(0, ("one",)), (1, ("",)), (2, ("two",)), (3, ("  ",)), (4, ("thrée",))]


def test_a_header_names_the_columns_of_its_file_and_is_no_record(tmp_path: Path) -> None:
    first = write(tmp_path / "a.csv", "\ufeff\nname,other,n\nann,x,1\nbob,y,2\n")
    second = write(tmp_path / "b.csv", "n,name\r\n3,cem\r\n")
    assert read(source(first, second, header=True))[0] == [(0, (1, "ann")), (1, (2, "bob")), (2, (3, "cem"))]


@pytest.mark.parametrize("header", ["n,other", "n,name,n,name", 'n,"name'])
def test_a_header_without_the_fields_stops_the_run_with_file_and_line(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "a.csv", f"\n{header}\n1,a\n")
    with pytest.raises(RunFailed, match=r"a\.csv:2: .*header"):
        read(source(path, header=True))


def test_typed_csv_fields(tmp_path: Path) -> None:
    fields = (Field("i", "int"), Field("f", "float"), Field("b", "bool"), Field("t", "timestamp"), Field("s"))
    lines = [
        "1,2.5,true,2024-05-31T12:30:00Z,x",
        "-7,1e3,FALSE,2024-05-31 12:30:00.25,",
        " 8 ,-.5,1,2024-05-31T14:30:00+02:00, y ",
        ",,,,",
        '"9","1","0","2024-05-31",""',
    ]
    rows = [row for _, row in read(source(write(tmp_path / "a.csv", "\n".join(lines)), fields=fields))[0]]
    assert [row[0] for row in rows] == [1, -7, 8, None, 9]
    assert [row[1] for row in rows] == [2.5, 1000.0, -0.5, None, 1.0]
    assert [row[2] for row in rows] == [True, False, True, None, False]
    assert [str(row[3]) for row in rows] == [
        "2024-05-31 12:30:00", "2024-05-31 12:30:00.250000", "2024-05-31 12:30:00", "None", "2024-05-31 00:00:00"
    ]  # fmt: skip
    assert [row[4] for row in rows] == ["x", "", " y ", "", ""]


def test_typed_json_fields_missing_and_null_are_null(tmp_path: Path) -> None:
    fields = (Field("i", "int"), Field("f", "float"), Field("b", "bool"), Field("t", "timestamp"), Field("s"))
    lines = [
        '{"i":1,"f":2,"b":true,"t":"2024-05-31T12:30:00Z","s":"é\\n"}',
        "",
        "{}",
        '{"i":null,"s":null,"x":[{}]}',
        '{"t":"2024-05-31"}',
    ]
    rows = [
        row for _, row in read(source(write(tmp_path / "a.jsonl", "\n".join(lines)), form="jsonl", fields=fields))[0]
    ]
    assert [row[:3] for row in rows] == [(1, 2.0, True)] + 3 * [(None, None, None)]
    assert [str(row[3]) for row in rows] == ["2024-05-31 12:30:00", "None", "None", "2024-05-31 00:00:00"]
    assert [row[4] for row in rows] == ["é\n", None, None, None]


def test_gzip_by_ending_reads_the_same(tmp_path: Path) -> None:
    text = "".join(f"{i},name {i}\n" for i in range(5000)).encode()
    plain = write(tmp_path / "a.csv", text)
    packed = write(tmp_path / "a.csv.gz", gzip.compress(text[:20000]) + gzip.compress(text[20000:]))
    assert read(source(packed), block_bytes=1000) == read(source(plain))


def test_any_number_of_slices_gives_the_same_records_between_them(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "".join(f'{i},"line {i}\nof two"\n' for i in range(3000)))
    whole, _ = read(source(path))
    for slices in (2, 3, 5):
        parts = [read(source(path, slices=slices), s, block_bytes=2048)[0] for s in range(slices)]
        assert all(parts) and sorted(itertools.chain(*parts)) == whole


def test_a_block_is_handed_out_in_pieces_no_larger_than_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "".join(f"{i},x\n" if i % 3 else "broken\n" for i in range(1000)))
    operator = source(path, on_error="dead-letter")
    whole = read(operator)
    assert everything(FileReader(operator, 0), max_rows=7) == whole
    assert everything(FileReader(operator, 0), max_bytes=100) == whole
    assert len(whole[0]) == 666 and len(whole[1]) == 334


# ------------------------------------------------------------------------------------------------ broken records

BROKEN = [
    ("csv", b"1,a\n2\n3,c\n", 2, "expected 2 columns, found 1"),
    ("csv", b"1,a\n2,b,c\n3,c\n", 2, "expected 2 columns, found 3"),
    ("csv", b"1,a\n2x,b\n3,c\n", 2, "field 'n': expected an integer of 64 bits, found '2x'"),
    ("csv", b"1,a\n9223372036854775808,b\n3,c\n", 2, "field 'n': expected an integer"),
    ("csv", b"1,a\n2,\xff\n3,c\n", 2, "invalid UTF-8 at byte 3"),
    ("csv", b"1,a\n2,\0\n3,c\n", 2, "NUL byte at byte 3"),
    ("csv", b"1,a\n2,b\rx\n3,c\n", 2, "carriage return outside quotes"),
    ("csv", b'1,a\n2,"b\n3,c\n', 2, "the double quote opened at byte 3 is not closed before the end of the file"),
    ("csv", b"1,a\n2," + b"x" * 2000 + b"\n3,c\n", 2, "longer than 1,000 bytes"),
    ("csv", b'1,a\n2,"' + b"x\n" * 2000 + b'"\n', 2, "not closed within 1,000 bytes"),
    ("jsonl", b'{"n":1}\n[2]\n{"n":3}\n', 2, "expected a JSON object, found a list"),
    ("jsonl", b'{"n":1}\n{"n":"2"}\n{"n":3}\n', 2, "field 'n': expected an integer of 64 bits, found '2'"),
    ("jsonl", b'{"n":1}\n{"n":2.0}\n{"n":3}\n', 2, "field 'n': expected an integer"),
    ("jsonl", b'{"n":1}\n{"n":2\n{"n":3}\n', 2, "not JSON: .* at character 7"),
    ("jsonl", b'{"n":1}\n{"name":2}\n{"n":3}\n', 2, "field 'name': expected a string, found 2"),
    ("jsonl", b'{"n":1}\n{"x":NaN}\n{"n":3}\n', 2, "NaN"),
    ("jsonl", b'{"n":1}\n{"n":2}{"n":2}\n{"n":3}\n', 2, "not JSON"),
    ("jsonl", b'{"n":1}\n{"name":"\\ud800"}\n{"n":3}\n', 2, "surrogate"),
    ("jsonl", b'{"n":1}\n{"x":"\xff"}\n{"n":3}\n', 2, "invalid UTF-8"),
    ("jsonl", b'{"n":1}\n{"x":' + b"[" * 900 + b"\n" + b'{"n":3}\n', 2, "not JSON"),
]


@pytest.mark.parametrize(("form", "data", "line", "error"), BROKEN)
def test_a_broken_record_follows_on_error(tmp_path: Path, form: str, data: bytes, line: int, error: str) -> None:
    path = write(tmp_path / "a", data)
    with pytest.raises(RecordError, match=rf"(?s)^{re.escape(str(path))}:{line}: .*{error}.*on_error") as caught:
        read(source(path, form=form, record_bytes_max=1000))
    assert len(str(caught.value)) < 1000

    letters = read(source(path, form=form, on_error="dead-letter", record_bytes_max=1000))
    assert letters[1][0][0] == 1 and letters[1][0][1][0] == f"{path}:{line}"
    assert re.search(error, letters[1][0][1][1])
    assert data.split(b"\n")[1].decode(errors="replace").startswith(letters[1][0][1][2].rstrip("…").rstrip("\r"))

    skipped = read(source(path, form=form, on_error="skip", record_bytes_max=1000))
    assert skipped == (letters[0], [])
    assert skipped[0][0][0] == 0 and (2 in [seq for seq, _ in skipped[0]] or b"x\nx" in data)


def test_a_line_of_50_mb_is_passed_over_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(50):
            file.write(b"x" * (1 << 20))
        file.write(b"\nlast\n")
    tracemalloc.start()
    rows, dead = read(source(path, form="text", fields=LINE, on_error="dead-letter", record_bytes_max=4 << 20))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 20 << 20, "a few times the limit"
    assert rows == [(0, ("first",)), (2, ("last",))]
    assert dead[0][0] == 1 and dead[0][1][0] == f"{path}:2" and len(dead[0][1][2]) <= 201
    with pytest.raises(RecordError, match=r"a\.txt:2: the record is longer than 16,777,216 bytes"):
        read(source(path, form="text", fields=LINE))


def test_deep_json_is_judged_alike_with_and_without_a_broken_neighbour(tmp_path: Path) -> None:
    deep = b'{"n":1}\n{"n":2,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    alone = read(source(write(tmp_path / "a", deep), form="jsonl"))[0]
    assert alone == [(0, (1, None)), (1, (2, None))]
    assert read(source(write(tmp_path / "b", deep + b"broken\n"), form="jsonl", on_error="skip"))[0] == alone
    assert read(source(write(tmp_path / "c", deep.replace(b"]}", b"}") * 2), form="jsonl", on_error="skip"))[0] == [
        (0, (1, None)),
        (2, (1, None)),
    ]


def test_a_stray_quote_costs_one_line_not_the_rest_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '1,"oops\n' + "".join(f"{i},x\n" for i in range(2, 5000)))
    rows, dead = read(source(path, on_error="dead-letter", record_bytes_max=2000), block_bytes=512)
    assert [row for row in rows] == [(i - 1, (i, "x")) for i in range(2, 5000)]
    assert len(dead) == 1


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    for name in ("a", "a.gz"):
        for form in ("csv", "jsonl", "text"):
            fields = LINE if form == "text" else NUMBER_AND_NAME
            assert read(source(write(tmp_path / name, ""), form=form, fields=fields, header=True)) == ([], [])


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(30000).hex().encode() + b"\n")
    for damaged in (whole[:-9], whole[:2000], whole[:5000] + b"rubbish" + whole[5007:], b"not gzip at all"):
        path = write(tmp_path / "a.gz", damaged)
        with pytest.raises(RunFailed, match=r"a\.gz: .*(compressed|gzip)"):
            read(source(path, form="text", fields=LINE))


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"source 'in': .*nowhere\.csv: cannot be opened"):
        FileReader(source(tmp_path / "nowhere.csv"), 0)
    with pytest.raises(RunFailed, match="source 'in'"):
        FileReader(source(tmp_path), 0)


def test_a_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"123,some name\n" * (1 << 16))
    reader = FileReader(source(path, slices=2), 0)
    tracemalloc.start()
    while reader.read(1 << 20, 1 << 30).hi < END:
        pass
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 16 << 20, "a few blocks, whatever the file's size"


@pytest.mark.parametrize("change", ["shrink", "grow", "remove", "replace"])
def test_a_file_that_changes_while_it_is_read_stops_the_run(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a.csv", "".join(f"{i},x\n" for i in range(100_000)))
    reader = FileReader(source(path), 0, block_bytes=4096)
    assert len(reader.read(1 << 20, 1 << 30).rows)
    if change == "shrink":
        os.truncate(path, 20_000)
    elif change == "grow":
        path.open("a").write("1,x\n")
    elif change == "remove":
        path.unlink()
    else:
        os.replace(write(tmp_path / "b", "1,x\n"), path)
    with pytest.raises(RunFailed, match=r"a\.csv: .*while it was read"):
        everything(reader)
    reader.close()


def test_drain_gives_what_is_parsed_and_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "".join(f"{i},x\n" for i in range(10_000)))
    reader = FileReader(source(path), 0, block_bytes=1024)
    first = reader.read(5, 1 << 30)
    reader.drain()
    rest, _ = everything(reader)
    assert first.hi == 5 and 0 < len(rest) < 1000 and rest[0][0] == 5


def test_make_reader_opens_by_type(tmp_path: Path) -> None:
    operator = source(write(tmp_path / "a.csv", "1,a\n"))
    reader = make_reader(operator, Plan("p", (operator,)), 0, run_dir=str(tmp_path))
    assert reader.read(10, 1000).rows.data.to_pylist() == [{"n": 1, "name": "a"}]
    assert reader.wake_fds() == []
    reader.close()
