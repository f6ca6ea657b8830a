"""File sources against a reference that reads a file character by character and shares no code with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_kit import LINE, NUMBER_AND_NAME, read, source, write

from dadstorm.core.line import END
from dadstorm.plan import Field
from dadstorm.sources import format_csv
from dadstorm.sources.files import FileReader


def reference_units(data: bytes, limit: int, comment: bytes, quoting: bool) -> list[tuple[int, bytes, bool]]:
    """(line, bytes without line end, broken) of every unit that is no comment; one byte at a time."""
    units = []
    at, line = 0, 1
    while at < len(data):
        lines = data[at:].split(b"\n", 1)
        first = at + len(lines[0])
        end = first
        broken = False
        if quoting and not (comment and data.startswith(comment, at)):
            state = "start"
            end = at
            while end < len(data):
                byte = data[end : end + 1]
                if byte == b"\n" and state != "quoted":
                    break
                if state == "quoted":
                    state = "closing" if byte == b'"' else "quoted"
                elif byte == b'"' and state in ("start", "closing"):
                    state = "quoted"
                else:
                    state = "start" if byte == b"," else "field"
                end += 1
            broken = state == "quoted"
        content = data[at:end]
        content = content[:-1] if content.endswith(b"\r") else content
        if broken or len(content) > limit:
            broken = True
            content, end = data[at:first], first
            content = content[:-1] if content.endswith(b"\r") else content
        if not (comment and data.startswith(comment, at)):
            units.append((line, content, broken))
        line += data.count(b"\n", at, end + 1)
        at = end + 1
    return units


def reference_csv(data: bytes, limit: int, comment: bytes) -> list[tuple[int, tuple[Any, ...] | None]]:
    """(line, values or None if broken) of every record; the record's number is its place in the list."""
    records: list[tuple[int, tuple[Any, ...] | None]] = []
    for line, content, broken in reference_units(data.removeprefix(b"\xef\xbb\xbf"), limit, comment, True):
        if not content:
            continue
        values: list[str] = [""]
        state = "start"
        try:
            text = content.decode()
        except UnicodeDecodeError:
            broken, text = True, ""
        for char in text:
            if state == "quoted":
                if char == '"':
                    state = "closing"
                else:
                    values[-1] += char
            elif char == '"' and state in ("start", "closing"):
                values[-1] += '"' if state == "closing" else ""
                state = "quoted"
            elif char == ",":
                values.append("")
                state = "start"
            else:
                broken = broken or char == "\r"
                values[-1] += char
                state = "field"
        sound = not broken and "\0" not in text and len(values) == 2
        if not sound or not re.fullmatch(r"[ \t]*-?[0-9]+[ \t]*|", values[0]):
            records.append((line, None))
        else:
            records.append((line, (int(values[0]) if values[0] else None, values[1])))
    return records


def reference_jsonl(data: bytes, limit: int, comment: bytes) -> list[tuple[int, tuple[Any, ...] | None]]:
    records: list[tuple[int, tuple[Any, ...] | None]] = []
    for line, content, broken in reference_units(data.removeprefix(b"\xef\xbb\xbf"), limit, comment, False):
        if not content.strip(b" \t\r"):
            continue
        try:
            found = json.loads(content.decode())
            n, name = found.get("n"), found.get("name")
            sound = (
                type(n) in (int, type(None)) and type(name) in (str, type(None)) and not broken and b"\0" not in content
            )
        except (ValueError, AttributeError):
            sound = False
        records.append((line, (n, name) if sound else None))
    return records


def reference_text(data: bytes, limit: int, comment: bytes) -> list[tuple[int, tuple[Any, ...] | None]]:
    records: list[tuple[int, tuple[Any, ...] | None]] = []
    for line, content, broken in reference_units(data.removeprefix(b"\xef\xbb\xbf"), limit, b"", False):
        try:
            text = content.decode()
        except UnicodeDecodeError:
            broken, text = True, ""
        records.append((line, None if broken or "\0" in text else (text,)))
    return records


REFERENCE = {"csv": reference_csv, "jsonl": reference_jsonl, "text": reference_text}
CSV_PIECES = st.sampled_from(
    [b"1", b"-2", b"x", b",", b'"', b'""', b"\n", b"\r\n", b"\n", b"1,a\n", b'2,"b"\n', b'3,"c\nd"\r\n', b"\n%",
     b"% \"c\n", b" ", b"4,y\n5,z\n", b'6,"q""r"\n', "é".encode(), b"\xff", b"\0", b"\r", b"%", b"7,"]
)  # fmt: skip
JSON_PIECES = st.sampled_from(
    [b'{"n":1}\n', b'{"n":2,"name":"b"}\r\n', b"\n", b" \n", b"%\n", b"{", b"}", b'{"n":"x"}\n', b'"n":', b"3",
     b'{"name":"\xff"}\n', b' {"n":4} \n', b'{"n":5}{"n":6}\n', b'{"n":\n7}\n', b"\0",
     b"[]\n", b'{"n":1.5}\n', b"\r", b'{"n":null}', b"\n"]
)  # fmt: skip
PIECES = {"csv": CSV_PIECES, "jsonl": JSON_PIECES, "text": CSV_PIECES}
files = st.sampled_from(["csv", "csv", "jsonl", "text"]).flatmap(
    lambda form: st.tuples(
        st.just(form), st.lists(st.lists(PIECES[form], max_size=40).map(b"".join), min_size=1, max_size=3)
    )
)


FEW = st.sampled_from([0, format_csv.FEW])
"""Up to how many records are taken without Arrow's reader; it must not show."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sets is put back."""
    monkeypatch.setattr(format_csv, "FEW", format_csv.FEW)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given=files,
    block_bytes=st.sampled_from([1, 2, 3, 7, 16, 64, 1000]),
    slices=st.integers(1, 4),
    limit=st.sampled_from([5, 12, 1000]),
    comment=st.sampled_from(["%", None]),
    mark_order=st.sampled_from(["mark", "none"]),
    few=FEW,
)
def test_slices_together_give_what_the_reference_reads_and_every_resume_the_tail(
    tmp_path: Path, given: Any, block_bytes: int, slices: int, limit: int, comment: str | None, mark_order: str,
    few: int,
) -> None:
    format_csv.FEW = few
    form, contents = given
    paths = [write(tmp_path / f"{i}", content) for i, content in enumerate(contents)]
    records = []
    for path, content in zip(paths, contents, strict=True):
        records += [(f"{path}:{n}", row) for n, row in REFERENCE[form](content, limit, (comment or "").encode())]
    expected = [(seq, row) for seq, (_, row) in enumerate(records) if row is not None]
    refused = [(seq, place) for seq, (place, row) in enumerate(records) if row is None]
    operator = source(
        *paths, form=form, fields=LINE if form == "text" else NUMBER_AND_NAME, slices=slices, on_error="dead-letter",
        comment=comment, record_bytes_max=limit,
    )  # fmt: skip

    whole = [read(operator, s, block_bytes=block_bytes) for s in range(slices)]
    assert sorted(row for rows, _ in whole for row in rows) == expected
    assert sorted((seq, letter[0]) for _, dead in whole for seq, letter in dead) == refused

    for s, (rows, dead) in enumerate(whole):
        reader = FileReader(operator, s, block_bytes=block_bytes)
        cuts = list(range(len(records) + 1))
        marks = {}
        hi = 0
        while hi < END:
            hi = reader.read(3, 1 << 20).hi
            while cuts and cuts[0] <= hi:
                cut = cuts.pop(0)
                marks[cut] = reader.mark(cut)
        marks[END] = reader.mark(END)
        reader.close()
        for cut, mark in marks.items():
            tail = read(operator, s, block_bytes=block_bytes, cut=cut, mark=mark if mark_order == "mark" else None)
            assert tail == ([r for r in rows if r[0] >= cut], [d for d in dead if d[0] >= cut])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.text(st.sampled_from('01289.-+eExXnaifNTZ:" \t'), max_size=12)
        | st.sampled_from(
            [
                "TRUE",
                "false",
                "1",
                "0",
                "2020-01-01",
                "2020-01-01T00:00:00Z",
                "2020-02-30",
                "0x1f",
                "nan",
                "1e400",
                "-0",
            ]
        ),
        min_size=1,
        max_size=20,
    ),
    kind=st.sampled_from(["int", "float", "bool", "timestamp"]),
    quoted=st.booleans(),
    few=FEW,
)
def test_whether_a_value_is_accepted_does_not_depend_on_its_neighbours(
    tmp_path: Path, values: list[str], kind: Any, quoted: bool, few: int
) -> None:
    """A block with a broken record goes another way than a block without, and one with few records another than one
    with many: all must judge a value alike."""
    format_csv.FEW = few
    fields = (Field("k"), Field("v", kind))
    quote = '"' if quoted else ""
    lines = [f"k,{quote}{value.replace(chr(34), 2 * quote)}{quote}" for value in values]
    alone = []
    for line in lines:
        path = write(tmp_path / "alone.csv", line)
        alone += [str(row[1]) for _, row in read(source(path, fields=fields, on_error="skip"))[0]]
    path = write(tmp_path / "all.csv", "\n".join([*lines, "broken"]))
    assert [str(row[1]) for _, row in read(source(path, fields=fields, on_error="skip"))[0]] == alone


JSON_VALUES = [
    "null", "true", "false", "0", "-0", "1", "01", "1.0", "-1.5", "1e5", "1E400", "-1e400", "1e-400",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1" * 300, "1" * 500, "0.1",
    "123456789.123456789123456789", "NaN", "Infinity", "Inf", "-Infinity", '""', '"1"', '"true"', '"a\\u0000b"',
    '"\\ud800"', '"\\ud83d\\ude00"', '"2024-05-31"', '"2024-05-31T12:00Z"', '"2024-02-30"', '"é"', "[]", "{}", "[1]",
    '1,"v":2', '"\t"', "+1", ".5", "1.", "0x1", "'a'",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["string", "int", "float", "bool", "timestamp"])
def test_a_json_value_is_judged_alike_with_and_without_a_broken_neighbour(tmp_path: Path, kind: Any) -> None:
    for value in JSON_VALUES:
        for key in ("v", "other"):
            record = f'{{"k":1,"{key}":{value}}}\n'
            results = [
                read(source(write(tmp_path / "a", text), form="jsonl", fields=(Field("v", kind),), on_error="skip"))[0]
                for text in (record, record + "broken\n")
            ]
            assert repr(results[0]) == repr(results[1]), record
