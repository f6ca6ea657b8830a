"""Standard input: whoever of the two breaks off, and wherever, every line arrives once, and only its end is the end.

``Front`` speaks the front end's part of the protocol by hand; ``StdinPump`` is the real one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.core.line import END
from dadstorm.sources.clients import connect_unix
from dadstorm.sources.journal import END_OF_SOURCE, RECORDS, Journal
from dadstorm.sources.live import StdinReader
from dadstorm.sources.pump import ALL, OVER_LIMIT, PIECE_BYTES_MAX, POSITION, TOKEN_BYTES, piece, stdin_path
from puppetmaster.stdin import KEPT_BYTES_MAX, Kept, StdinPump
from tests.unit.test_source_live import MANY, Bench, read_rows, replay, rows, wait_for

TOKEN = bytes(range(TOKEN_BYTES))
OTHER = bytes(TOKEN_BYTES)
META = {"format": "text", "delimiter": ","}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for thing in bench.open:
        thing.close()


def reader_of(bench: Bench, folder: Path | None = None, **how: Any) -> Any:
    return bench.reader(StdinReader, folder, params={"type": "stdin"} | how.pop("params", {}), **how)


class Front:
    """A front end, by hand."""

    def __init__(self, bench: Bench, folder: Path | None = None) -> None:
        self.socket = connect_unix(stdin_path(str(folder or bench.folder), "live"))
        self.socket.settimeout(5.0)
        bench.open.append(self.socket)

    def send(self, *pieces: bytes) -> None:
        self.socket.sendall(b"".join(map(piece, pieces)))

    def hear(self) -> int:
        data = self.socket.recv(POSITION.size, socket.MSG_WAITALL)
        return int(POSITION.unpack(data)[0]) if data else -1

    def greeted(self, reader: Any, token: bytes = TOKEN) -> int:
        """Say hello; what the reader answers."""
        self.socket.sendall(token)
        look(reader)
        return self.hear()


def look(reader: Any) -> list[tuple[int, Any]]:
    """What the reader makes of all that has been sent (to a unix socket: it is there)."""
    got: list[tuple[int, Any]] = []
    for _ in range(3):
        got += replay(reader)[0]
    return got


def texts(got: list[tuple[int, Any]]) -> list[str]:
    return [text for _, text in got]


def journalled(path: Path) -> tuple[bytes, bool]:
    """The lines of a journal, and whether they are all."""
    journal = Journal(str(path), "live", META)
    try:
        frames = list(journal.frames(journal.start))
    finally:
        journal.close()
    return b"".join(frame.lines for frame in frames), any(frame.kind == END_OF_SOURCE for frame in frames)


def test_the_end_of_input_ends_the_source_when_the_journal_has_it(bench: Bench) -> None:
    reader = reader_of(bench)
    path = stdin_path(str(bench.folder), "live")
    assert os.stat(path).st_mode & 0o077 == 0
    front = Front(bench)
    assert front.greeted(reader) == 0
    front.send(b"a\nb")
    assert texts(read_rows(reader, 1)) == ["a"] and front.hear() == 2
    front.send(b"c\n", b"")
    got, hi = replay(reader)
    assert texts(got) == ["bc"] and hi == END
    assert [front.hear(), front.hear()] == [5, ALL]
    assert not os.path.exists(path)
    reader.close()
    assert journalled(bench.folder / "live.journal") == (b"a\nbc\n", True)


@pytest.mark.parametrize("said", [TOKEN[:7], TOKEN, TOKEN + piece(b"half"), TOKEN + piece(b"half\n")[:6]])
def test_a_connection_that_ends_is_no_end_and_half_a_line_no_record(bench: Bench, said: bytes) -> None:
    reader = reader_of(bench)
    front = Front(bench)
    front.socket.sendall(said)
    look(reader)
    front.socket.close()
    assert look(reader) == [] and replay(reader)[1] < END
    again = Front(bench)
    assert again.greeted(reader) == 0
    again.send(b"whole\n")
    assert texts(look(reader)) == ["whole"]
    reader.close()
    assert journalled(bench.folder / "live.journal") == (b"whole\n", False)


def test_it_works_in_a_folder_whose_path_is_longer_than_a_sockets_address(bench: Bench) -> None:
    folder = bench.folder / ("d" * 90) / ("e" * 90)
    folder.mkdir(parents=True)
    reader = reader_of(bench, folder)
    front = Front(bench, folder)
    front.greeted(reader)
    front.send(b"deep\n")
    assert texts(read_rows(reader, 1)) == ["deep"]


LINES = [f"line {n}" + "x" * (n * 5 % 7) for n in range(6)]
STREAM = "".join(f"{line}\n" for line in LINES).encode()
SAID = TOKEN + b"".join(piece(STREAM[at : at + 11]) for at in range(0, len(STREAM), 11)) + piece(b"")


@pytest.mark.parametrize("dies", ["the replica", "the connection"])
@pytest.mark.parametrize("step", [1, 13, len(SAID)])
def test_broken_off_after_every_byte_every_line_comes_once(bench: Bench, dies: str, step: int) -> None:
    """It is said in so many bytes at a time, and nobody hears up to where the journal has it."""
    for size in range(len(SAID)):
        folder = bench.folder / str(size)
        folder.mkdir()
        reader = reader_of(bench, folder)
        front = Front(bench, folder)
        given: list[tuple[int, Any]] = []
        for at in range(0, size, step):
            front.socket.sendall(SAID[at : min(size, at + step)])
            given += look(reader)
        front.socket.close()
        if dies == "the replica":
            reader.close()
            reader = reader_of(bench, folder)
            assert look(reader) == given, "a replay is exact"
        again = Front(bench, folder)
        position = again.greeted(reader)
        assert position == STREAM[:position].rfind(b"\n") + 1 == sum(len(text) + 1 for text in texts(given))
        again.send(STREAM[position:], b"")
        more, hi = replay(reader)
        assert texts(given + more) == LINES and hi == END
        reader.close()
        assert journalled(folder / "live.journal") == (STREAM, True)


def test_from_every_mark_the_reader_knows_how_far_the_journal_is(bench: Bench) -> None:
    reader = reader_of(bench)
    front = Front(bench)
    front.greeted(reader)
    given: list[tuple[int, Any]] = []
    marks: dict[int, Any] = {0: reader.mark(0)}
    for line in LINES:
        bench.clock.now += 300_000
        hi = replay(reader)[1]
        marks[hi] = reader.mark(hi)
        assert set(marks[hi]) == {"offset", "lease"}, "marks are what they were"
        front.send(f"{line}\n".encode())
        given += look(reader)
    hi = replay(reader)[1]
    marks[hi] = reader.mark(hi)
    for number, (cut, mark) in enumerate(marks.items()):
        folder = bench.crashed(f"crash{number}")
        again = reader_of(bench, folder, mark=mark, cut=cut)
        assert look(again) == [row for row in given if row[0] >= cut]
        assert Front(bench, folder).greeted(again) == len(STREAM)
        again.close()


def test_another_sessions_input_comes_after_what_the_journal_has(bench: Bench) -> None:
    reader = reader_of(bench)
    front = Front(bench)
    front.greeted(reader)
    front.send(b"one\ntwo\n")
    given = look(reader)
    reader.close()
    reader = reader_of(bench)
    assert look(reader) == given
    other = Front(bench)
    assert other.greeted(reader, OTHER) == 0
    other.send(b"three\n")
    assert texts(look(reader)) == ["three"] and other.hear() == 6
    reader.close()
    reader = reader_of(bench)
    assert texts(look(reader)) == ["one", "two", "three"]
    again = Front(bench)
    assert again.greeted(reader, OTHER) == 6
    again.send(b"")
    assert replay(reader)[1] == END
    assert journalled(bench.crashed("copy") / "live.journal") == (b"one\ntwo\nthree\n", True)


def test_a_journal_and_a_mark_of_an_older_version(bench: Bench) -> None:
    """Its lines say nothing of where they come from. It goes on with a front end, which is a new one."""
    journal = Journal(str(bench.folder / "live.journal"), "live", META)
    journal.append(RECORDS, 10, b"one\n")
    mark = {"offset": journal.offset, "lease": 0}
    journal.append(RECORDS, 20, b"two\nthree\n")
    journal.close()
    for cut, old_mark, before in ((0, None, ["one", "two", "three"]), (20, mark, ["two", "three"])):
        folder = bench.crashed(f"from{cut}")
        reader = reader_of(bench, folder, mark=old_mark, cut=cut)
        assert texts(look(reader)) == before
        front = Front(bench, folder)
        assert front.greeted(reader) == 0
        front.send(b"four\n")
        ((seq, text),) = look(reader)
        assert text == "four"
        new_mark = reader.mark(seq)
        reader.close()
        reader = reader_of(bench, folder, mark=new_mark, cut=seq)
        assert look(reader) == [(seq, "four")]
        assert Front(bench, folder).greeted(reader) == 5


def test_drained_it_takes_the_whole_lines_that_have_arrived_and_says_that_it_is_complete(bench: Bench) -> None:
    reader = reader_of(bench)
    front = Front(bench)
    front.greeted(reader)
    front.send(b"one\ntwo\nhalf")
    reader.drain()
    got, hi = replay(reader)
    assert texts(got) == ["one", "two"] and hi == END
    assert [front.hear(), front.hear()] == [8, ALL]
    with pytest.raises(OSError):
        Front(bench)


def test_who_says_something_else_is_cut_off(bench: Bench) -> None:
    reader = reader_of(bench)
    for rubbish in (piece(b"half") + piece(b""), piece(bytes(PIECE_BYTES_MAX + 1))):
        front = Front(bench)
        front.greeted(reader)
        front.socket.sendall(rubbish)
        assert look(reader) == [] and replay(reader)[1] < END
        with contextlib.suppress(ConnectionResetError):
            assert front.hear() == -1


def test_a_front_end_that_does_not_listen_for_a_while_hears_the_last_position(bench: Bench) -> None:
    """^Z stops it. The source's answers fill its socket; what does not fit is said later."""
    reader = reader_of(bench)
    front = Front(bench)
    front.greeted(reader)
    for _ in range(1500):
        front.send(b"x\n")
        reader.read(MANY, MANY)
    heard = []
    while not heard or heard[-1] < 3000:
        heard.append(front.hear())
        if not select.select([front.socket], [], [], 0)[0]:
            reader.read(MANY, MANY)
    assert heard[-1] == 3000 and len(heard) < 1500, "or the test shows nothing"


# ------------------------------------------------------------------------------------------------------- the pump


def shortened(data: bytes, limit: int) -> bytes:
    """The stream that a standard input makes."""
    lines = data.split(b"\n")
    return b"".join(line[: limit + OVER_LIMIT] + b"\n" for line in (lines if lines[-1] else lines[:-1]))


@given(st.lists(st.text("ab\n", max_size=12)), st.integers(0, 6))
def test_whatever_the_pieces_the_stream_has_whole_lines_and_none_too_long(parts: list[str], limit: int) -> None:
    kept = Kept(limit)
    for part in parts:
        if part:
            kept.add(part.encode())
    kept.add(b"")
    assert kept.since(0) == shortened("".join(parts).encode(), limit)
    assert kept.ended and not kept.room


def test_what_the_journal_has_is_forgotten_and_what_cannot_be_is_refused() -> None:
    kept = Kept(100)
    kept.add(b"one\ntwo\n")
    kept.forget(4)
    assert kept.since(4) == b"two\n" and kept.since(6) == b"o\n" and kept.since(8) == b""
    for position in (3, 9, ALL):
        with pytest.raises(ConnectionError):
            kept.forget(position)


class Input:
    """A pipe for a pump's standard input."""

    def __init__(self, bench: Bench) -> None:
        self.read_end, write_end = os.pipe()
        self._file = os.fdopen(write_end, "wb", buffering=0)
        bench.open += [self, self._file]

    def write(self, data: bytes) -> None:
        """All of it, from a thread: the pump takes it when it likes."""
        threading.Thread(target=self._all, args=(data,), daemon=True).start()

    def _all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        self._file.close()

    def close(self) -> None:
        os.close(self.read_end)


def pump_to(bench: Bench, source: Input, limit: int = 1 << 20) -> StdinPump:
    return StdinPump(stdin_path(str(bench.folder), "live"), limit, source.read_end)


def test_a_pump_goes_on_at_every_new_incarnation(bench: Bench) -> None:
    """The reader is given up again and again, at any moment and without a word, as by kill -9."""
    chance = random.Random(7)
    lines = [f"{n} {'x' * chance.randrange(40)}" for n in range(20_000)]
    source = Input(bench)
    source.write("\n".join(lines).encode())
    got: list[str] = []
    incarnations, hi, cut, mark = 0, 0, 0, None
    with pump_to(bench, source):
        while hi != END:
            bench.clock.now += 1000
            reader = reader_of(bench, mark=mark, cut=cut)
            incarnations += 1
            for _ in range(chance.randrange(1, 12)):
                if hi == END:
                    break
                select.select(reader.wake_fds(), [], [], 5)
                records = reader.read(1000, chance.choice((10, 1000, 30_000)))
                got += texts(rows(records))
                hi = cut = max(records.hi, cut)
                mark = reader.mark(cut)
            reader.close()
    assert got == lines and incarnations > 5
    assert journalled(bench.folder / "live.journal") == ("\n".join(lines).encode() + b"\n", True)


def test_a_pump_waits_for_its_source_and_stops_when_the_run_does(bench: Bench) -> None:
    for listens in (False, True):
        source = Input(bench)
        reader = reader_of(bench) if listens else None
        begun = time.monotonic()
        with pump_to(bench, source):
            time.sleep(0.3)
        assert time.monotonic() - begun < 5
        if reader is not None:
            assert look(reader) == [] and replay(reader)[1] < END, "the run's end is not that of its input"


def test_a_pump_keeps_only_so_much_that_is_not_in_the_journal(bench: Bench) -> None:
    """The source's window is full: it reads nothing, or answers nothing."""
    reader = reader_of(bench)
    source = Input(bench)
    pump = pump_to(bench, source, 100)
    with pump:
        replay(reader)
        source.write(b"line\n" * (2 * KEPT_BYTES_MAX // 5))
        while not pump._kept._data:  # Until it has been answered: who connects may have said nothing yet.
            wait_for(reader)
            reader.read(MANY, 1)
        sizes = [-1]
        while sizes[-1] < KEPT_BYTES_MAX or sizes[-1] != sizes[-2]:
            time.sleep(0.2)
            sizes.append(len(pump._kept._data))
            assert len(sizes) < 100, sizes
        assert sizes[-1] < KEPT_BYTES_MAX + 2 * PIECE_BYTES_MAX
        count = 0
        for _ in itertools.count():
            records = reader.read(MANY, MANY)
            count += len(records.rows)
            if records.hi == END:
                break
            wait_for(reader)
    assert count == 2 * KEPT_BYTES_MAX // 5


def test_a_line_may_be_longer_than_what_a_pump_keeps_and_one_that_is_too_long_costs_only_itself(bench: Bench) -> None:
    limit = KEPT_BYTES_MAX + 100_000
    reader = reader_of(bench, params={"record_bytes_max": limit}, on_error="dead-letter")
    source = Input(bench)
    source.write(b"a" * limit + b"\n" + b"b" * (2 * limit) + b"\nlast")
    got: list[str] = []
    dead: list[Any] = []
    with pump_to(bench, source, limit):
        hi = 0
        while hi != END:
            wait_for(reader)
            records = reader.read(MANY, MANY)
            got += texts(rows(records))
            dead += records.dead.data.to_pylist() if records.dead else []
            hi = records.hi
    assert got == ["a" * limit, "last"]
    assert len(dead) == 1 and f"longer than {limit:,} bytes" in dead[0]["error"]


def test_standard_input_that_cannot_be_read_has_ended(bench: Bench) -> None:
    reader = reader_of(bench)
    folder = os.open(bench.folder, os.O_RDONLY)
    try:
        with StdinPump(stdin_path(str(bench.folder), "live"), 100, folder):
            hi = 0
            while hi != END:
                wait_for(reader)
                hi = reader.read(MANY, MANY).hi
    finally:
        os.close(folder)
