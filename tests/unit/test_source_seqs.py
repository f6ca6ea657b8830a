"""Records that bring their seqs along: which seqs are sound, what is said of the others, blocks, slices, resuming."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_kit import everything, source, write

from dadstorm.core.kernel import RecordError
from dadstorm.core.line import END
from dadstorm.errors import RunFailed
from dadstorm.plan import Field, Operator
from dadstorm.sources.files import FileReader
from dadstorm.sources.parquet import ParquetReader
from dadstorm.sources.seqs import SEQ_MAX
from dadstorm.topology.seqs import gap

FIELDS = (Field("name"), Field("id", "int"), Field("n", "int"))
FORMATS = ["csv", "jsonl", "parquet"]
Record = tuple[Any, ...]


def records(*ids: Any) -> list[Record]:
    return [(f"name{number}", value, number) for number, value in enumerate(ids)]


def made(path: Path, form: str, rows: list[Record], group: int = 3) -> Path:
    """A file of records (name, id, n); what stands for a value may be anything that its format can hold."""
    if form == "csv":
        return write(path, "".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in rows))
    if form == "jsonl":
        named = [dict(zip(("name", "id", "n"), row, strict=False)) for row in rows]
        return write(path, "".join(json.dumps(row) + "\n" for row in named))
    texts = [[None if v is None else str(v) for v in column] for column in zip(*rows, strict=True)]
    whole = all(v is None or (isinstance(v, int) and v < 2**63) for _, *numbers in rows for v in numbers)
    columns = [pa.array(column, pa.string()) for column in texts]
    if whole:
        columns[1:] = [column.cast(pa.int64()) for column in columns[1:]]
    pq.write_table(pa.Table.from_arrays(columns, ["name", "id", "n"]), path, row_group_size=group)
    return path


def from_files(*paths: Path, form: str = "csv", **how: Any) -> Operator:
    return source(*paths, form=form, fields=FIELDS, seq=1, **how)


def reader(operator: Operator, slice_index: int = 0, **how: Any) -> Any:
    if operator.params["format"] == "parquet":
        return ParquetReader(operator, slice_index, batch_rows=2, **how)
    return FileReader(operator, slice_index, block_bytes=40, **how)


def read(operator: Operator, slice_index: int = 0, **how: Any) -> tuple[list[Any], list[Any]]:
    return everything(reader(operator, slice_index, **how))


@pytest.mark.parametrize("form", FORMATS)
def test_the_column_is_the_seq_and_stays_a_field(tmp_path: Path, form: str) -> None:
    rows = records(0, 5, 6, 1000, 10**15, SEQ_MAX)
    path = made(tmp_path / "in", form, rows)
    assert read(from_files(path, form=form)) == ([(row[1], row) for row in rows], [])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("slices", [2, 4])
def test_slices_share_the_blocks_and_together_give_what_one_gives(tmp_path: Path, form: str, slices: int) -> None:
    ids = np.cumsum(np.random.default_rng(1).integers(1, 10**6, 200)).tolist()
    paths = [made(tmp_path / f"{n}", form, records(*ids[n * 100 : n * 100 + 100])) for n in (0, 1)]
    whole, _ = read(from_files(*paths, form=form))
    assert [seq for seq, _ in whole] == ids
    parts = [read(from_files(*paths, form=form, slices=slices), n)[0] for n in range(slices)]
    assert all(parts) and sorted(row for part in parts for row in part) == whole


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("slices", [1, 3])
def test_a_reader_goes_on_from_any_cut_also_one_between_two_seqs(tmp_path: Path, form: str, slices: int) -> None:
    ids = [n * 10**9 + n % 7 for n in range(60)]
    paths = [made(tmp_path / "a", form, records(*ids[:30])), made(tmp_path / "b", form, records(*ids[30:]))]
    operator = from_files(*paths, form=form, slices=slices)
    for slice_index in range(slices):
        expected, _ = read(operator, slice_index)
        for steps in range(0, 40, 3):
            first = reader(operator, slice_index)
            given = [first.read(2, 1 << 20) for _ in range(steps)]
            hi = given[-1].hi if given else 0
            for cut in {hi, *(seq for seq in (hi - 10**9 // 2, hi - 1) if seq > 0)}:
                if cut < END:
                    mark = first.mark(cut) if cut == hi else None
                    rest, _ = read(operator, slice_index, mark=mark, cut=cut)
                    assert rest == [row for row in expected if row[0] >= cut]
            first.close()


@pytest.mark.parametrize("form", FORMATS)
def test_a_resumed_reader_still_knows_what_came_before(tmp_path: Path, form: str) -> None:
    paths = [made(tmp_path / "a", form, records(*range(0, 60, 10))), made(tmp_path / "b", form, records(50, 60))]
    first = reader(from_files(*paths, form=form))
    while first.read(2, 1 << 20).hi <= 50:
        pass
    mark = first.mark(51)
    first.close()
    with pytest.raises(RunFailed, match=r"b:(row )?1: .*more than 50"):
        read(from_files(*paths, form=form), mark=mark, cut=51)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "field 'id': expected a seq, an integer from 0 to 9223372036854775805, found nothing"),
        (-1, "field 'id': expected a seq, an integer from 0 to 9223372036854775805, found -1"),
        (SEQ_MAX + 1, "expected a seq, an integer from 0 to 9223372036854775805, found 9223372036854775806"),
        (2**63, "field 'id': expected an integer of 64 bits, found '?9223372036854775808"),
        (1.5, "field 'id': expected an integer of 64 bits, found '?1.5"),
        ("seven", "field 'id': expected an integer of 64 bits, found 'seven'"),
    ],
)
def test_a_record_without_a_sound_seq_is_broken(tmp_path: Path, form: str, value: Any, said: str) -> None:
    path = made(tmp_path / "in", form, records(1, 2, 3, value, 5))
    with pytest.raises(RecordError, match=rf"in:(row )?4: .*{said}(.|\n)*correct it, or .*skip"):
        read(from_files(path, form=form))
    for slices in (1, 3):
        operator = from_files(path, form=form, slices=slices, on_error="skip")
        parts = [read(operator, n)[0] for n in range(slices)]
        assert sorted(seq for part in parts for seq, _ in part) == [1, 2, 3, 5]


@pytest.mark.parametrize("form", FORMATS)
def test_a_dead_letter_has_the_seq_of_its_record_and_without_one_there_is_none(tmp_path: Path, form: str) -> None:
    rows: list[Record] = [("a", 10, 1), ("b", 20, "x"), ("c", 30, 3)]
    path = made(tmp_path / "in", form, rows)
    good, dead = read(from_files(path, form=form, on_error="dead-letter"))
    assert [seq for seq, _ in good] == [10, 30]
    assert [(seq, letter[1]) for seq, letter in dead] == [(20, "field 'n': expected an integer of 64 bits, found 'x'")]
    path = made(tmp_path / "in", form, [*rows, ("d", "?", 4)])
    with pytest.raises(RecordError, match=r"in:(row )?4: (.|\n)*tells none: correct it, or .* drop .*on_error: skip"):
        read(from_files(path, form=form, on_error="dead-letter"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("on_error", ["fail", "skip", "dead-letter"])
@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("again", [7, 8])
def test_seqs_that_do_not_ascend_stop_the_run_whatever_on_error_says(
    tmp_path: Path, form: str, on_error: str, slices: int, again: int
) -> None:
    ids = [*range(again + 1), again, *range(20, 30)]
    operator = from_files(made(tmp_path / "in", form, records(*ids)), form=form, slices=slices, on_error=on_error)
    place = rf"source 'in': .*in:(row )?{again + 2}: field 'id', the seq"
    found = []
    for n in range(slices):
        try:
            read(operator, n)
        except RunFailed as error:
            found.append(str(error))
    assert len(found) >= 1
    for text in found:
        assert re.search(place, text) and f"expected more than {again}" in text, text
        assert f"found {again};" in text and "sort its records by 'id'" in text


@pytest.mark.parametrize("form", FORMATS)
def test_files_in_the_wrong_order_are_found_by_every_slice(tmp_path: Path, form: str) -> None:
    paths = [made(tmp_path / "b", form, records(*range(100, 130))), made(tmp_path / "a", form, records(*range(50, 80)))]
    for n in range(3):
        with pytest.raises(RunFailed, match=r"/a:(row )?\d+: field 'id', the seq: expected more than 129, found \d+"):
            read(from_files(*paths, form=form, slices=3), n)


def test_broken_records_at_the_end_of_others_blocks_do_not_hide_the_order(tmp_path: Path) -> None:
    lines = [f"name{n},{n * 10},{n}" if n % 4 else f"name{n},{n * 10}" for n in range(40)]
    operator = from_files(write(tmp_path / "in", "\n".join(lines)), slices=3, on_error="skip")
    together = sorted(seq for n in range(3) for seq, _ in read(operator, n)[0])
    assert together == [n * 10 for n in range(40) if n % 4]


def test_a_long_gap_is_one_step(tmp_path: Path) -> None:
    operator = from_files(made(tmp_path / "in", "csv", records(10**6, 10**18)))
    one = FileReader(operator, 0)
    assert [one.read(1, 1 << 20).hi for _ in range(3)] == [10**18, 10**18 + 1, END]
    one.close()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (range(100), 1),
        (range(0, 6000, 60), 32),
        ([*range(0, 50_000, 1000), *range(10**15, 10**15 + 50_000, 1000)], 512),
        (range(0, 2**62, 2**60), 2**44),
        ([7], 1),
        ([5, 4], 1),
    ],
)
def test_the_compiler_looks_how_far_apart_the_first_seqs_are(
    tmp_path: Path, form: str, ids: Any, expected: int
) -> None:
    assert gap(from_files(made(tmp_path / "in", form, records(*ids), 1000), form=form)) == expected
