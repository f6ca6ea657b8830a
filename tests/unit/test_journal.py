"""The journal: what was written is read back exactly; torn tails are cut off; damage never passes for data."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dadstorm.errors import RunFailed
from dadstorm.sources.journal import END_OF_SOURCE, LEASE, RECORDS, Journal
from dadstorm.sources.pump import Taken
from tests.unit.failing_kit import small_files

META = {"format": "text", "delimiter": ","}
Entry = tuple[int, int, bytes]
ENTRIES: list[Entry] = [
    (LEASE, 50, b""), (RECORDS, 10, b"one\ntwo\n"), (RECORDS, 60, b"\n"),
    (LEASE, 90, b""), (RECORDS, 61, b"end\n"), (END_OF_SOURCE, 0, b"")
]  # fmt: skip


def write(path: Path, entries: list[Entry]) -> list[int]:
    """A journal with these entries; the offset after the header and after each entry."""
    journal = Journal(str(path), "live", META)
    ends = [journal.offset]
    for entry in entries:
        journal.append(*entry)
        ends.append(journal.offset)
    journal.close()
    return ends


def read(path: Path, offset: int | None = None) -> list[Entry]:
    journal = Journal(str(path), "live", META)
    try:
        return [(f.kind, f.seq, f.lines) for f in journal.frames(journal.start if offset is None else offset)]
    finally:
        journal.close()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from([RECORDS, LEASE]), st.integers(0, 2**63 - 1), st.binary(max_size=50)), max_size=8
    )
)
def test_what_was_appended_is_read_back_from_any_frame_on(tmp_path: Path, entries: list[Entry]) -> None:
    path = tmp_path / "j"
    path.unlink(missing_ok=True)
    ends = write(path, entries)
    for i, offset in enumerate(ends):
        assert read(path, offset) == entries[i:]


def test_appending_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for entry in ENTRIES:
        write(tmp_path / "sub" / "j", [entry])
    assert read(tmp_path / "sub" / "j") == ENTRIES


def test_a_journal_knows_that_it_is_finished(tmp_path: Path) -> None:
    for count in range(len(ENTRIES) + 1):
        path = tmp_path / f"{count}"
        write(path, ENTRIES[:count])
        journal = Journal(str(path), "live", META)
        assert journal.finished == (count == len(ENTRIES))
        journal.close()


def test_a_frame_that_was_being_written_is_cut_off_said_so_and_it_goes_on(tmp_path: Path) -> None:
    """Whatever of a frame is there, and whether or not the file counts it yet: nothing of it was emitted."""
    whole = tmp_path / "whole"
    ends = write(whole, ENTRIES)
    data = whole.read_bytes()
    for count, (start, end) in enumerate(pairwise(ends)):
        before = tmp_path / "before"
        before.unlink(missing_ok=True)
        write(before, ENTRIES[:count])
        for size in range(start, end):
            path = tmp_path / "torn"
            path.write_bytes(before.read_bytes() + data[start:size])
            with capture_logs() as logs:
                assert read(path) == ENTRIES[:count]
            assert [log["event"] for log in logs] == (["torn frame cut off"] if size > start else [])
            write(path, ENTRIES[-1:])
            assert read(path) == [*ENTRIES[:count], ENTRIES[-1]]
        path.write_bytes(before.read_bytes() + data[start:end])
        assert read(path) == ENTRIES[: count + 1], "its writer died before the file counted it"
        assert read(path) == ENTRIES[: count + 1]
        os.truncate(path, end - 1)
        with pytest.raises(RunFailed, match="records were lost"):
            read(path)


def test_cut_short_anywhere_it_is_known_that_records_were_lost(tmp_path: Path) -> None:
    """What was appended may have been emitted: a journal without it would give another answer."""
    path = tmp_path / "j"
    ends = write(path, ENTRIES)
    for size in range(ends[-1] - 1, -1, -1):
        os.truncate(path, size)
        with pytest.raises(RunFailed, match=rf"journal .*j: has {size} bytes, .*records were lost; restore it"):
            read(path)
        assert path.stat().st_size == size, "it is left as it was found"


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    ends = write(whole, ENTRIES)
    data = whole.read_bytes()
    path = tmp_path / "damaged"
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(RunFailed, match=r"source 'live': journal .*damaged: ") as caught:
            read(path)
        offset = max([0, *(end for end in ends if end <= bit // 8)])
        assert bit // 8 < ends[0] or f"damaged at byte {offset}" in str(caught.value)


def test_how_far_what_was_pumped_goes_is_read_back_and_no_flipped_bit_of_it_passes(tmp_path: Path) -> None:
    path = tmp_path / "j"
    taken = Taken(b"\n" * 16, 10)
    journal = Journal(str(path), "live", META)
    journal.append(RECORDS, 10, b"one\ntwo\n", taken)
    second = journal.offset
    journal.append(RECORDS, 12, b"", Taken(bytes(16), 2**64 - 1))
    journal.append(RECORDS, 12, b"three\n")
    journal.close()

    def frames() -> list[tuple[int, int, int, bytes, Taken | None]]:
        journal = Journal(str(path), "live", META)
        try:
            return [(f.kind, f.seq, f.next_seq, f.lines, f.taken) for f in journal.frames(journal.start)]
        finally:
            journal.close()

    assert frames() == [
        (RECORDS, 10, 12, b"one\ntwo\n", taken),
        (RECORDS, 12, 12, b"", Taken(bytes(16), 2**64 - 1)),
        (RECORDS, 12, 13, b"three\n", None),
    ]
    data = path.read_bytes()
    for bit in range(8 * second):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(RunFailed, match=r"source 'live': journal .*j: "):
            frames()


def test_zeros_at_the_end_are_what_a_power_cut_leaves(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, ENTRIES[:3])
    size = path.stat().st_size
    os.truncate(path, size + 5000)
    assert read(path) == ENTRIES[:3]
    with open(path, "r+b") as file:
        file.seek(size - 24)
        file.write(bytes(24))
    with pytest.raises(RunFailed, match="is damaged"):
        read(path)


def test_a_journal_of_another_format_another_file_and_a_lost_tail_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, ENTRIES[:3])
    with pytest.raises(RunFailed, match=r"was written for lines of .*text.*the topology says .*csv"):
        Journal(str(path), "live", {**META, "format": "csv"})
    with pytest.raises(RunFailed, match="records were lost"):
        read(path, path.stat().st_size + 1)
    path.write_bytes(b"some,other,file\n" * 10)
    with pytest.raises(RunFailed, match="is not a journal"):
        read(path)
    assert path.read_bytes() == b"some,other,file\n" * 10


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    first = Journal(str(tmp_path / "j"), "live", META)
    with pytest.raises(RunFailed, match="in use by another process"):
        Journal(str(tmp_path / "j"), "live", META)
    first.close()
    Journal(str(tmp_path / "j"), "live", META, fsync=True).close()


def test_a_full_disk_is_a_clear_stop(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j"), "live", META)
    journal.append(*ENTRIES[1])
    with small_files(journal.offset + 10), pytest.raises(RunFailed, match="cannot be written"):
        journal.append(RECORDS, 100, b"x" * 100 + b"\n")
    journal.close()
    assert read(tmp_path / "j") == [ENTRIES[1]]
