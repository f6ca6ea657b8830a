"""Records and user functions that misbehave, on real processes.

A broken record follows its source's ``on_error``, a tuple that a user's function cannot handle that of its operator:
``fail`` ends the run with all that one needs to find it, ``skip`` goes on without it, ``dead-letter`` puts it aside, in
order. What else comes out is the same in every case. A function that ends its process ends the run, with a message.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from kit import Outcome, run

pytestmark = pytest.mark.cluster

GOOD = [f"{i},name{i},{i}.5" for i in range(40)]
LONG = "4," + "y" * 50_000_000 + ",1.5"

RECORDS: dict[str, tuple[bytes, str]] = {
    "too few columns": (b"1,2", "expected 3 columns, found 2"),
    "too many columns": (b"1,a,2.5,4", "expected 3 columns, found 4"),
    "no number": (b"one,a,2.5", "field 'i': expected an integer of 64 bits, found 'one'"),
    "a number that is too large": (b"99999999999999999999,a,2.5", "expected an integer of 64 bits"),
    "no UTF-8": (b"1,\xff\xfe,2.5", "invalid UTF-8 at byte 3 of the record (0xff)"),
    "a NUL byte": (b"1,a\0b,2.5", "a NUL byte at byte 4 of the record"),
    "a line of 50 MB": (LONG.encode(), "the record is longer than 16,777,216 bytes"),
    "a quote that stays open": (b'1,"a,2.5', "the double quote opened at byte 3 is not closed"),
}
"""A broken record, and what is said about it. The last one must stay the last: what follows it is told apart by it."""


def topology(folder: Path, sources: str, on_error: str) -> None:
    """Write a topology that copies what the sources read, by two replicas."""
    lines = ["sources:", *(f"  {line}" for line in sources.format(on_error=f"on_error: {on_error}").splitlines())]
    names = [line.split(":")[0] for line in sources.splitlines()]
    lines += ["operators:", *(f"  {name}-copy: {{input: {name}, dup: , replicas: 2}}" for name in names)]
    (folder / "t.yaml").write_text("\n".join(lines) + "\n")


def letters(outcome: Outcome, name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in outcome.files[f"{name}.dead.jsonl"].decode().splitlines()]


CSV = "s: {{csv: s.csv, fields: [i:int, name, x:float], {on_error}, slices: 3}}"
JSONL = "j: {{jsonl: j.jsonl, fields: [i:int, name], {on_error}}}"


@pytest.mark.parametrize("kind", RECORDS)
def test_a_broken_record_fails_the_run_and_is_shown_with_its_place(tmp_path: Path, kind: str) -> None:
    record, error = RECORDS[kind]
    lines = [line.encode() for line in GOOD]
    (tmp_path / "s.csv").write_bytes(b"\n".join([*lines[:20], record, *lines[20:]]) + b"\n")
    topology(tmp_path, CSV, "fail")
    outcome = run("run", "t.yaml", cwd=tmp_path)
    assert outcome.code == 1, outcome.err
    assert f"\nfailed: {tmp_path}/s.csv:21: " in f"\n{outcome.err}"
    assert error in outcome.err
    assert "the record: " in outcome.err
    assert "on_error: skip, or dead-letter" in outcome.err, "what can be done about it"
    assert "Traceback" not in outcome.err
    assert len(outcome.err) < 2000, "not all of a long record"


JSON_RECORDS = {
    "no JSON": b'{"i": 1, "name"',
    "no object": b"[1, 2]",
    "no number": b'{"i": "one", "name": "a"}',
    "no UTF-8": b'{"i": 1, "name": "\xff"}',
}


def mixed(folder: Path) -> tuple[list[int], list[int]]:
    """Two files in which every kind of broken record stands between good ones; the lines of the broken ones."""
    lines: list[bytes] = []
    broken: list[int] = []
    for (record, _), start in zip(RECORDS.values(), range(0, len(GOOD), 5), strict=True):
        lines += [line.encode() for line in GOOD[start : start + 5]]
        lines.append(record)
        broken.append(len(lines))
    (folder / "s.csv").write_bytes(b"\n".join(lines) + b"\n")
    objects = [json.dumps({"i": i, "name": f"name{i}"}).encode() for i in range(8)]
    pairs = [line for pair in zip(objects[:4], JSON_RECORDS.values(), strict=True) for line in pair]
    (folder / "j.jsonl").write_bytes(b"\n".join([*pairs, *objects[4:]]) + b"\n")
    return broken, [2, 4, 6, 8]


def the_good_ones_are_all_there(outcome: Outcome) -> None:
    assert outcome.files["s-copy.csv"].decode().splitlines() == GOOD
    assert outcome.files["j-copy.csv"].decode().splitlines() == [f"{i},name{i}" for i in range(8)]


def test_broken_records_are_skipped(tmp_path: Path) -> None:
    mixed(tmp_path)
    topology(tmp_path, f"{CSV}\n{JSONL}", "skip")
    outcome = run("run", "t.yaml", cwd=tmp_path).ok()
    the_good_ones_are_all_there(outcome)
    assert sorted(outcome.files) == ["j-copy.csv", "s-copy.csv"]


def test_broken_records_are_put_aside_in_order(tmp_path: Path) -> None:
    csv_lines, json_lines = mixed(tmp_path)
    topology(tmp_path, f"{CSV}\n{JSONL}", "dead-letter")
    outcome = run("run", "t.yaml", cwd=tmp_path).ok()
    the_good_ones_are_all_there(outcome)
    aside = letters(outcome, "s")
    assert [letter["place"] for letter in aside] == [f"{tmp_path}/s.csv:{line}" for line in csv_lines]
    for letter, (record, error) in zip(aside, RECORDS.values(), strict=True):
        assert error in letter["error"]
        assert letter["record"].startswith(record[:8].decode(errors="replace"))
    assert [letter["place"] for letter in letters(outcome, "j")] == [f"{tmp_path}/j.jsonl:{n}" for n in json_lines]


@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_an_empty_file_is_no_record_and_no_error(tmp_path: Path, on_error: str) -> None:
    (tmp_path / "s.csv").touch()
    topology(tmp_path, CSV, on_error)
    outcome = run("run", "t.yaml", cwd=tmp_path).ok()
    assert outcome.files["s-copy.csv"] == b""


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_truncated_file_is_not_taken_for_a_shorter_one(tmp_path: Path, on_error: str) -> None:
    """What is missing is not a record that could be left out."""
    whole = gzip.compress("".join(f"{line}\n" for line in GOOD * 500).encode())
    (tmp_path / "s.csv.gz").write_bytes(whole[: len(whole) // 2])
    topology(tmp_path, CSV.replace("s.csv", "s.csv.gz"), on_error)
    outcome = run("run", "t.yaml", cwd=tmp_path)
    assert outcome.code == 1, outcome.err
    assert f"{tmp_path}/s.csv.gz: ends in the middle of its compressed data" in outcome.err
    assert "Traceback" not in outcome.err


# -- the user's functions ---------------------------------------------------------------------------------------------

FUNCTIONS = '''
import os, signal, sys

def raises(n, name):
    """Raise in a function that is called, so that there is a traceback to show."""
    return check(n), name

def check(n):
    if n == 7:
        raise KeyError("no seven here")
    return n

def arity(n, name):
    return (n, name, n) if n == 7 else (n, name)

def type(n, name):
    return ("seven", name) if n == 7 else (n, name)

def many(n, name):
    return [(n, name)] * (5 if n == 7 else 1)

def exits(n, name):
    if n == 7:
        sys.exit("enough")
    return n, name

class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")

def speechless(n, name):
    if n == 7:
        raise Speechless
    return n, name

def every(n, name):
    """All of these, each for another tuple."""
    if n == 1: return check(7), name
    if n == 3: return n, name, n
    if n == 5: return "five", name
    if n == 9: return [(n, name)] * 5
    if n == 11: sys.exit("enough")
    if n == 13: raise KeyboardInterrupt
    return n, name

def batch(columns):
    raise ZeroDivisionError("in a batch")

def prints(n, name):
    print("said " + "x" * 5000)
    sys.stderr.write("muttered" * 100)
    return n, name

def killed(n, name):
    if n == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return n, name

def crashes(n, name):
    if n == 7:
        os.kill(os.getpid(), signal.SIGSEGV)
    return n, name

def leaves(n, name):
    if n == 7:
        os._exit(0)
    return n, name

def fails(n, name):
    if n == 7:
        os._exit(1)
    return n, name
'''

ROWS = [f"{n},ann" for n in range(2000)]


def custom(folder: Path, function: str, on_error: str = "fail") -> Outcome:
    """Run 2,000 tuples through a user's function, in two replicas."""
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "t.yaml").write_text(
        "sources:\n  g: {generate: {n: counter, name: {choice: [ann]}}, count: 2000}\n"
        f"operators:\n  mine: {{input: g, custom: functions.{function}, fields: [n:int, name], max_outputs: 4, "
        f"replicas: 2, on_error: {on_error}{', mode: batch' if function == 'batch' else ''}}}\n"
    )
    return run("run", "t.yaml", cwd=folder)


FAULTS = {
    "raises": ("KeyError: 'no seven here'", "functions.py:10 in check: raise KeyError"),
    "arity": ("an output has 3 fields", "expected 2 fields"),
    "type": ("output field \"n\" is 'seven' (str)", "expected an int or None"),
    "many": ("more than 4 outputs for one tuple", "raise max_outputs"),
    "exits": ("SystemExit: enough", "functions.py:24 in exits: sys.exit"),
    "speechless": ("Speechless: (its message cannot be shown", "in speechless: raise Speechless"),
}


@pytest.mark.parametrize("function", FAULTS)
def test_a_tuple_that_a_function_cannot_handle_fails_the_run_and_is_shown(tmp_path: Path, function: str) -> None:
    outcome = custom(tmp_path, function)
    assert outcome.code == 1, outcome.err
    assert outcome.err.startswith("failed: operator mine could not handle the tuple with ID (7, 0): ")
    assert 'fields: {"n":7,"name":"ann"}' in outcome.err
    for expected in FAULTS[function]:
        assert expected in outcome.err, outcome.err
    assert "on_error: skip" in outcome.err, "what can be done about it"
    assert "dadstorm/" not in outcome.err, "the user's traceback, not ours"


def test_a_batch_that_a_function_cannot_handle_fails_the_run(tmp_path: Path) -> None:
    outcome = custom(tmp_path, "batch")
    assert outcome.code == 1
    assert "operator mine" in outcome.err
    assert "ZeroDivisionError: in a batch" in outcome.err
    assert "functions.py:" in outcome.err
    assert "dadstorm/" not in outcome.err


BAD = [1, 3, 5, 9, 11, 13]


def test_tuples_that_a_function_cannot_handle_are_skipped(tmp_path: Path) -> None:
    outcome = custom(tmp_path, "every", "skip").ok()
    assert outcome.files["mine.csv"].decode().splitlines() == [ROWS[n] for n in range(2000) if n not in BAD]


def test_tuples_that_a_function_cannot_handle_are_put_aside_in_order(tmp_path: Path) -> None:
    outcome = custom(tmp_path, "every", "dead-letter").ok()
    assert outcome.files["mine.csv"].decode().splitlines() == [ROWS[n] for n in range(2000) if n not in BAD]
    aside = letters(outcome, "mine")
    assert [letter["place"] for letter in aside] == [f"operator mine, ID ({n}, 0)" for n in BAD]
    assert [json.loads(letter["record"]) for letter in aside] == [{"n": n, "name": "ann"} for n in BAD]
    beginnings = [
        "KeyError: 'no seven here'",
        "an output has 3 fields",
        "output field \"n\" is 'five'",
        "more than 4 outputs for one tuple",
        "SystemExit: enough",
        "KeyboardInterrupt",
    ]
    for letter, beginning in zip(aside, beginnings, strict=True):
        assert letter["error"].startswith(beginning)


def test_what_a_function_prints_goes_to_a_file_of_the_run(tmp_path: Path) -> None:
    outcome = custom(tmp_path, "prints").ok()
    assert outcome.files["mine.csv"].decode().splitlines() == ROWS
    printed = (tmp_path / "runs" / "t-1" / "printed.txt").read_text()
    assert printed.count("said x") == 2000
    assert printed.count("muttered") == 200_000
    assert "said" not in outcome.out + outcome.err
    assert "muttered" not in outcome.out + outcome.err


DEATHS = {
    "killed": "died 8 times in a row, each time within 10 s: killed by signal 9 (SIGKILL)",
    "crashes": "died 8 times in a row, each time within 10 s: killed by signal 11 (SIGSEGV)",
    "leaves": "died: exit code 0",
    "fails": "died: exit code 1",
}


@pytest.mark.parametrize("function", DEATHS)
def test_a_function_that_ends_its_process_ends_the_run(tmp_path: Path, function: str) -> None:
    """One that dies is started again, but not for ever: the same tuple would kill it again."""
    started = time.monotonic()
    outcome = custom(tmp_path, function)
    assert time.monotonic() - started < 20, "told at once, not waited for"
    assert outcome.code == 1, outcome.err
    assert "\nfailed: mine replica " in f"\n{outcome.err}"
    assert f"{DEATHS[function]}; see the logs in {tmp_path}/runs/t-1" in outcome.err
    assert "Traceback" not in outcome.err
