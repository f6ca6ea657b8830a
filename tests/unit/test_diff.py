"""dadstorm diff: two runs' records and outputs side by side; run folders as replicas leave them, without replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from core_kit import operator, plan_of, rows

from dadstorm import audit, diff_outputs
from dadstorm.cli import main
from dadstorm.core.audit import Audit, Audited, Digest
from dadstorm.core.line import END
from dadstorm.diff_outputs import Difference, compare
from dadstorm.errors import RunFailed
from dadstorm.plan import Plan

VALUES = range(20)


def plan(out: Path, slices: int = 1, form: str = "csv", span: int = 4) -> Plan:
    path = str(out / f"copy.{form}")
    return plan_of(
        operator("numbers", "source"),
        operator("copy", "custom", ["numbers"], slices=slices, replicas=slices),
        operator("copy.sink", "sink", ["copy"], params={"format": form, "path": path}),
        audit=True,
        span=span,
    )


def record(folder: Path, made: Plan, values: dict[str, Sequence[int]], upto: int = END) -> None:
    """Leave what the replicas of an operator leave that emit these values at the seqs 0, 1, 2… below ``upto``."""
    for one in made.operators:
        for index in range(one.slices):
            numbers = values.get(one.name, VALUES)
            mine = [seq for seq in range(len(numbers)) if seq % one.slices == index and seq < upto]
            action = Audit(index, made.span).emitted(upto, (rows(*mine, values=[numbers[seq] for seq in mine]),))
            if action is not None:
                audit.DigestFile(str(folder), f"{one.name}.{one.home(index)}", 0).write(action)


def a_run(where: Path, name: str, slices: int = 1, upto: int = END, span: int = 4, **values: Sequence[int]) -> Path:
    """The folder of a run, and its output beside it."""
    folder, out = where / name, where / f"out-{name}"
    folder.mkdir()
    out.mkdir()
    made = plan(out, slices, span=span)
    audit.note_run(str(folder), made, str(out))
    record(folder, made, values | {"copy.sink": values.get("copy", VALUES)}, upto)
    written = list(values.get("copy", VALUES))[: min(upto, 1000)]
    (out / "copy.csv").write_text("".join(f"{value}\n" for value in written))
    return folder


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str | Path) -> str:
    found = main(["diff", *map(str, arguments)])
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert found == code, text
    assert "Traceback" not in text
    return text


def test_runs_that_emitted_the_same_are_the_same_however_many_slices_they_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", slices=3)
    assert said(capsys, 0, one, other) == "the same: 15 epochs of 3 operators\n"


def test_the_first_operator_and_epoch_that_differ_and_then_the_first_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", copy=[*range(9), 90, 91, *range(11, 20)])
    lines = said(capsys, 1, one, other).splitlines()
    assert lines[0] == "operator copy, epoch 2 (seqs 8 to 11):"
    assert lines[1].startswith(f"  {one}: 4 tuples, digest ")
    assert lines[2].startswith(f"  {other}: 4 tuples, digest ")
    assert lines[1].split()[-1] != lines[2].split()[-1]
    assert lines[3] == "  what it was given (numbers) is the same: copy itself makes the difference"
    assert lines[4] == "different too: copy.sink (from epoch 2)"
    assert lines[5] == "output copy.csv, line 10:"
    assert [line.split(": ")[1] for line in lines[6:8]] == ["9", "90"]
    assert lines[8:] == ["different"]


def test_an_epoch_without_tuples_differs_from_one_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", numbers=range(12), copy=range(12))
    text = said(capsys, 1, one, other)
    assert "operator numbers, epoch 3 (seqs 12 to 15):" in text
    assert f"  {other}: no tuples\n  it is a source: the runs did not read the same" in text
    assert "line 13:" in text and "it has ended" in text


def test_a_run_that_did_not_end_is_compared_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, short = a_run(tmp_path, "one"), a_run(tmp_path, "short", slices=2, upto=10)
    text = said(capsys, 1, one, short)
    assert f"{short} did not come to its end" in text
    assert text.endswith("the same as far as both are known\n")
    wrong = a_run(tmp_path, "wrong", upto=10, copy=[0, 1, 2, 3, 40, *range(5, 20)])
    assert "operator copy, epoch 1 (seqs 4 to 7):" in said(capsys, 1, one, wrong)


def test_a_digest_that_was_lost_is_not_taken_for_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    file = other / "copy.0.audit.log"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2] + lines[3:]))
    text = said(capsys, 1, one, other)
    assert "some of its digests were lost" in text
    assert audit.conclude(str(other), plan(tmp_path)).endswith("or a host was lost")
    assert "operator copy" not in text


def test_a_line_that_was_cut_off_and_recorded_again_is_as_good_as_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    file = other / "copy.0.audit.log"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    again = [msgspec.json.decode(line, type=audit.Line) for line in lines[2:-1]]
    digests = [Digest(a.number or 0, a.epoch or 0, a.rows or 0, int(a.digest or "", 16)) for a in again]
    audit.DigestFile(str(other), "copy.0", 1).write(Audited(0, tuple(digests), 5))
    assert said(capsys, 0, one, other) == "the same: 15 epochs of 3 operators\n"


def test_what_two_incarnations_recorded_differently_fails_the_run_and_shows_in_a_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    audit.DigestFile(str(other), "copy.0", 1).write(Audited(0, (Digest(2, 2, 4, 7),)))
    made = plan(tmp_path)
    assert "15 epochs of 3 operators" in audit.conclude(str(one), made)
    with pytest.raises(RunFailed, match=r"(?s)operator copy .* epoch 2 \(seqs 8 to 11\), slice 0.*not deterministic"):
        audit.conclude(str(other), made)
    assert f"{other}: operator copy recorded different digests of epoch 2" in said(capsys, 1, one, other)


def test_outputs_that_were_changed_or_moved_or_overwritten_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    output = tmp_path / "out-other" / "copy.csv"
    output.write_text(output.read_text().replace("7\n", "8\n", 1))
    assert "the runs wrote the same: one of the files has been changed since" in said(capsys, 1, one, other)
    assert "the same: " in said(capsys, 0, one, other, "--out2", tmp_path / "out-one")
    output.unlink()
    assert f"{output} is not there any more" in said(capsys, 0, one, other)
    assert f"expected the output of copy.sink of {one} at " in said(capsys, 2, one, other, "--out1", tmp_path)
    assert "where only the later output is" in said(capsys, 0, one, one)


@pytest.mark.parametrize("damage", ["no folder", "no run", "not audited", "other span", "rubbish"])
def test_what_cannot_be_compared_is_a_mistake(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = a_run(tmp_path, "one"), tmp_path / "other"
    wanted = {
        "no folder": f"{other}: expected the folder of a run",
        "no run": f"{other} is not the folder of a run: expected run.json in it",
        "not audited": f"{other} was run without --audit",
        "other span": f"{one} has span 4, {other} has 8",
        "rubbish": "run.json is damaged",
    }[damage]
    if damage == "no run":
        other.mkdir()
    elif damage != "no folder":
        a_run(tmp_path, "other", span=8)
    note = other / "run.json"
    if damage == "not audited":
        note.write_text(note.read_text().replace('"audit": true', '"audit": false'))
    elif damage == "rubbish":
        note.write_bytes(b"{\xff")
    text = said(capsys, 2, one, other)
    assert text.startswith("error: ") and wanted in text


def test_an_operator_that_only_one_run_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    note = other / "run.json"
    note.write_text(note.read_text().replace('"name": "copy"', '"name": "clone"'))
    text = said(capsys, 1, one, other)
    assert f"operator copy is only in {one}" in text
    assert f"operator clone is only in {other}" in text


# -- outputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    "one, other, wanted",
    [
        ("a\nb\n", "a\nb\n", None),
        ("", "", None),
        ("a\nb\n", "a\nc\n", Difference("line 2", "b", "c")),
        ("a\nbb\nc\n", "a\nbx\nc\n", Difference("line 2", "bb", "bx")),
        ("a\nb\n", "a\n", Difference("line 2", "b", None)),
        ("", "a\n", Difference("line 1", None, "a")),
        ("a\nbc\n", "a\nb\nc\n", Difference("line 2", "bc", "b")),
        ("a\nb", "a\nb\n", Difference("line 2", "b", "b")),
        ("\x1b[31m\n", "x\n", Difference("line 1", "\\x1b[31m", "x")),
    ],
)
def test_text_is_compared_by_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, one: str, other: str, wanted: Difference | None
) -> None:
    monkeypatch.setattr(diff_outputs, "PIECE_BYTES", piece)
    for name, text in (("one", one), ("other", other)):
        (tmp_path / name).write_bytes(text.encode())
    assert compare("csv", str(tmp_path / "one"), str(tmp_path / "other")) == wanted


def test_of_a_long_line_what_lies_around_the_difference_is_shown(tmp_path: Path) -> None:
    long = "x" * 5000
    (tmp_path / "one").write_text(f"{long}A{long}\n")
    (tmp_path / "other").write_text(f"{long}B{long}\n")
    found = compare("jsonl", str(tmp_path / "one"), str(tmp_path / "other"))
    assert found is not None and found.first is not None and found.second is not None
    assert "xAx" in found.first and "xBx" in found.second
    assert len(found.first) < 200


def parquet(folder: Path, *parts: Sequence[float | None]) -> str:
    folder.mkdir()
    for number, values in enumerate(parts):
        table = pa.table({"n": pa.array(range(len(values))), "x": pa.array(values, pa.float64())})
        pq.write_table(table, folder / f"part-{number:06}.parquet")
    return str(folder)


@pytest.mark.parametrize(
    "other, wanted",
    [
        ([[0.0, 1.5], [2.5]], None),
        ([[0.0, 1.5], [2.25]], Difference("row 3", "0, 2.5", "0, 2.25")),
        ([[-0.0, 1.5], [2.5]], Difference("row 1", "0, 0.0", "0, -0.0")),
        ([[0.0, None], [2.5]], Difference("row 2", "1, 1.5", "1, None")),
        ([[0.0, 1.5]], Difference("row 3", "0, 2.5", None)),
        ([[0.0, 1.5], [2.5, 7.0]], Difference("row 4", None, "1, 7.0")),
        ([], Difference("row 1", "0, 0.0", None)),
    ],
)
def test_parquet_is_compared_by_rows(
    tmp_path: Path, other: list[list[float | None]], wanted: Difference | None
) -> None:
    paths = parquet(tmp_path / "one", [0.0, 1.5], [2.5]), parquet(tmp_path / "other", *other)
    assert compare("parquet", *paths) == wanted


def test_parquet_in_other_batches_and_with_other_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_outputs, "BATCH_ROWS", 2)
    one = parquet(tmp_path / "one", [0.0] * 5, [0.0] * 3)
    same = tmp_path / "same"
    same.mkdir()
    table = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "one").iterdir()))
    pq.write_table(table, same / "part-000000.parquet", row_group_size=3)
    assert compare("parquet", one, str(same)) is None
    pq.write_table(table.rename_columns(["n", "y"]), same / "part-000000.parquet")
    assert compare("parquet", one, str(same)) == Difference("the fields", "n int64, x double", "n int64, y double")
