"""Live sources: seqs from a clock, journalled first; replays are exact; nobody holds up anybody.

The clock is ours, so every seq is known. A crash is a copy of the journal as the operating system has it at
that moment.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dadstorm.core.kernel import RecordError
from dadstorm.core.line import END
from dadstorm.errors import RunFailed
from dadstorm.plan import Field, Operator, Plan, Replica, Routing
from dadstorm.sources import make_reader
from dadstorm.sources.base import Records
from dadstorm.sources.clients import CLIENTS_MAX
from dadstorm.sources.live import LiveReader, StdinReader, TcpReader
from dadstorm.sources.pump import stdin_path

MANY = 1 << 20


class Clock:
    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Bench:
    """A place to make readers and clients in, all closed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.open: list[Any] = []

    def reader(self, type_: type[LiveReader] = TcpReader, folder: Path | None = None, **how: Any) -> Any:
        params = {"type": "tcp", "listen": "127.0.0.1:0", "format": "text", "delimiter": ",", "journal": None}
        params |= how.pop("params", {})
        fields = how.pop("fields", (Field("line"),))
        operator = Operator(
            "live",
            "source",
            params,
            (),
            fields,
            how.pop("slices", 1),
            (Replica("here"),),
            Routing(),
            on_error=how.pop("on_error", "fail"),
        )
        reader = type_(operator, 0, run_dir=str(folder or self.folder), clock=how.pop("clock", self.clock), **how)
        self.open.append(reader)
        return reader

    def client(self, reader: TcpReader) -> socket.socket:
        client = socket.create_connection(reader.address)
        self.open.append(client)
        return client

    def crashed(self, name: str) -> Path:
        """The journal as a reader that died now would leave it, in a folder of its own."""
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(self.folder / "live.journal", folder / "live.journal")
        return folder


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for thing in bench.open:
        thing.close()


def rows(records: Records) -> list[tuple[int, Any]]:
    values = [tuple(row.values()) for row in records.rows.data.to_pylist()]
    return [(seq, v[0] if len(v) == 1 else v) for seq, v in zip(records.rows.seq.tolist(), values, strict=True)]


def wait_for(reader: Any) -> None:
    """Until one of the reader's file descriptors is readable; five seconds are for ever."""
    assert select.select(reader.wake_fds(), [], [], 5.0)[0], "nothing woke the reader"


def read_rows(reader: Any, count: int) -> list[tuple[int, Any]]:
    """Read until so many rows have come."""
    got: list[tuple[int, Any]] = []
    for _ in range(10_000):
        got += rows(reader.read(MANY, MANY))
        if len(got) >= count:
            return got
        wait_for(reader)
    raise AssertionError(f"only {got}")


def replay(reader: Any, max_rows: int = MANY) -> tuple[list[tuple[int, Any]], int]:
    """Everything that comes without waiting, and the last ``hi``."""
    got: list[tuple[int, Any]] = []
    for _ in range(10_000):
        records = reader.read(max_rows, MANY)
        got += rows(records)
        if not len(records.rows) and not select.select([reader.wake_fds()[0]], [], [], 0)[0]:
            return got, records.hi
        if records.hi == END:
            return got, END
    raise AssertionError("the replay does not end")


def test_a_line_gets_the_clocks_time_and_several_at_once_grow(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    client.sendall(b"one\ntwo\r\n\n")
    assert read_rows(reader, 3) == [(1_000_000, "one"), (1_000_001, "two"), (1_000_002, "")]
    bench.clock.now = 500
    client.sendall(b"back in time\n")
    assert read_rows(reader, 1) == [(1_000_003, "back in time")]
    bench.clock.now = 2_000_000
    client.sendall(b"later\n")
    assert read_rows(reader, 1) == [(2_000_000, "later")]


def test_an_idle_source_announces_the_clock_and_new_records_lie_above(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    replay(reader)
    bench.clock.now = 1_700_000
    assert reader.read(MANY, MANY).hi == 1_700_000
    bench.clock.now = 1_000_000
    assert reader.read(MANY, MANY).hi == 1_700_000
    client.sendall(b"x\n")
    assert read_rows(reader, 1) == [(1_700_000, "x")]


def test_announced_positions_hold_over_a_crash_and_a_clock_that_steps_back(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    client.sendall(b"before\n")
    before = read_rows(reader, 1)
    announced = 0
    for step in range(50):
        bench.clock.now = 1_000_001 + step * 100_000
        announced = reader.read(MANY, MANY).hi
        folder = bench.crashed(f"crash{step}")
        again = bench.reader(folder=folder, clock=Clock(5), cut=announced)
        assert replay(again)[1] >= announced
        bench.client(again).sendall(b"after\n")
        assert read_rows(again, 1)[0][0] >= announced
        again.close()
        assert replay(bench.reader(folder=folder, clock=Clock(5)))[0][0] == before[0]
        bench.open.pop().close()
    assert (bench.folder / "live.journal").stat().st_size < 400, (
        "a lease is renewed about once a second, not at every read"
    )


def test_replay_is_exact_whatever_the_size_of_its_pieces(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    given = []
    for i in range(50):
        bench.clock.now += 997
        client.sendall(b"".join(b"line %d %d\n" % (i, j) for j in range(i % 7 + 1)))
        given += read_rows(reader, i % 7 + 1)
    folder = bench.crashed("crash")
    for max_rows in (1, 3, MANY):
        again = bench.reader(folder=folder)
        assert replay(again, max_rows)[0] == given
        again.close()


def test_a_mark_gives_exactly_the_tail(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    given: list[tuple[int, Any]] = []
    marks: dict[int, Any] = {0: reader.mark(0)}
    for _ in range(12):
        bench.clock.now += 300_000
        hi = replay(reader)[1]
        marks[hi] = reader.mark(hi)
        client.sendall(b"a\nb\nc\n")
        given += read_rows(reader, 3)
    for seq, _ in given:
        marks.setdefault(seq, None)
    folder = bench.crashed("crash")
    for cut, mark in marks.items():
        again = bench.reader(folder=folder, mark=mark, cut=cut)
        assert replay(again)[0] == [row for row in given if row[0] >= cut]
        again.close()


def test_nothing_is_emitted_that_is_not_in_the_journal(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    for i in range(20):
        client.sendall(b"x\ny\n")
        given = read_rows(reader, 2)
        assert replay(bench.reader(folder=bench.crashed(f"c{i}")))[0][-2:] == given
        bench.open.pop().close()


def test_a_journal_that_lost_what_was_announced_stops_the_run(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    client.sendall(b"one\n")
    read_rows(reader, 1)
    client.sendall(b"two\n")
    ((seq, _),) = read_rows(reader, 1)
    folder = bench.crashed("crash")
    os.truncate(folder / "live.journal", (folder / "live.journal").stat().st_size - 1)
    with pytest.raises(RunFailed, match="records were lost"):
        replay(bench.reader(folder=folder, cut=seq + 1))


def test_half_a_line_waits_and_holds_nobody_up(bench: Bench) -> None:
    reader = bench.reader()
    slow, fast = bench.client(reader), bench.client(reader)
    slow.sendall(b"half ")
    fast.sendall(b"whole\n")
    assert [text for _, text in read_rows(reader, 1)] == ["whole"]
    slow.sendall(b"a line\n")
    assert [text for _, text in read_rows(reader, 1)] == ["half a line"]


def test_a_last_line_without_newline_counts_when_the_client_says_goodbye(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    client.sendall(b"bye")
    client.close()
    assert [text for _, text in read_rows(reader, 1)] == ["bye"]
    assert len(reader.wake_fds()) == 2


def test_an_overlong_line_follows_on_error_and_its_client_is_cut_off(bench: Bench) -> None:
    reader = bench.reader(params={"record_bytes_max": 100}, on_error="dead-letter")
    for long in (b"ok\n" + b"x" * 500, b"ok\n" + b"x" * 500 + b"\nnot read\n"):
        client = bench.client(reader)
        other = bench.client(reader)
        client.sendall(long)
        other.sendall(b"still here\n")
        got, dead = [], []
        while len(got) < 2 or not dead:
            wait_for(reader)
            records = reader.read(MANY, MANY)
            got += [text for _, text in rows(records)]
            dead += records.dead.data.to_pylist() if records.dead else []
        assert sorted(got) == ["ok", "still here"]
        assert "longer than 100 bytes" in dead[0]["error"] and len(dead) == 1
        assert dead[0]["place"].startswith("live:seq ")
        client.settimeout(5.0)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        other.sendall(b"and again\n")
        assert [text for _, text in read_rows(reader, 1)] == ["and again"]
    again = bench.reader(folder=bench.crashed("crash"), params={"record_bytes_max": 100})
    with pytest.raises(RecordError, match="longer than 100 bytes"):
        replay(again)


def test_csv_lines_are_records_each_quotes_or_not(bench: Bench) -> None:
    fields = (Field("n", "int"), Field("name"))
    reader = bench.reader(params={"format": "csv"}, fields=fields, on_error="dead-letter")
    client = bench.client(reader)
    client.sendall(b'1,a\n2,"b, c"\n\n3,"open\n4",d\n5,"e"\nsix,f\n')
    got: list[Any] = []
    dead: list[Any] = []
    while len(got) + len(dead) < 6:
        wait_for(reader)
        records = reader.read(MANY, MANY)
        got += rows(records)
        dead += (
            zip(records.dead.seq.tolist(), records.dead.data["record"].to_pylist(), strict=True) if records.dead else []
        )
    start = got[0][0]
    assert [(seq - start, row) for seq, row in got] == [(0, (1, "a")), (1, (2, "b, c")), (5, (5, "e"))]
    assert [(seq - start, text) for seq, text in dead] == [(3, '3,"open'), (4, '4",d'), (6, "six,f")]


def test_jsonl_lines(bench: Bench) -> None:
    reader = bench.reader(params={"format": "jsonl"}, fields=(Field("n", "int"),))
    bench.client(reader).sendall(b'{"n": 1}\n\n{"n": 2}\n')
    assert [row for _, row in read_rows(reader, 2)] == [1, 2]


def test_drain_takes_what_has_arrived_ends_and_the_journal_replays_without_listening(bench: Bench) -> None:
    reader = bench.reader()
    first, second = bench.client(reader), bench.client(reader)
    first.sendall(b"one\n")
    given = read_rows(reader, 1)
    second.sendall(b"two\nhalf")
    wait_for(reader)
    reader.drain()
    wait_for(reader)
    more, hi = replay(reader)
    assert hi == END and [text for _, text in given + more] == ["one", "two"]
    with pytest.raises(OSError):
        bench.client(reader)
    reader.close()
    again = bench.reader(params={"listen": "nowhere.invalid:1", "journal": str(bench.folder)})
    assert replay(again) == (given + more, END)
    again.close()
    by_name = bench.reader(params={"listen": "nowhere.invalid:1", "journal": str(bench.folder / "live.journal")})
    assert replay(by_name) == (given + more, END)


def test_drain_during_a_replay_gives_all_of_the_journal_first(bench: Bench) -> None:
    reader = bench.reader()
    bench.client(reader).sendall(b"a\nb\n")
    given = read_rows(reader, 2)
    again = bench.reader(folder=bench.crashed("crash"))
    again.drain()
    assert replay(again, 1) == (given, END)


def test_more_clients_than_allowed_wait_at_the_door(bench: Bench) -> None:
    reader = bench.reader()
    clients = []
    for i in range(CLIENTS_MAX + 3):
        clients.append(bench.client(reader))
        if i % 100 == 0:
            reader.read(MANY, MANY)
    for client in clients:
        client.sendall(b"hello\n")
    assert len(read_rows(reader, CLIENTS_MAX)) == CLIENTS_MAX
    assert len(reader.wake_fds()) == CLIENTS_MAX + 1
    for client in clients[:3]:
        client.close()
    assert len(read_rows(reader, 3)) == 3


def test_a_flood_comes_in_pieces_and_the_reader_stays_awake(bench: Bench) -> None:
    reader = bench.reader()
    client = bench.client(reader)
    client.sendall(b"".join(b"%d\n" % i for i in range(5000)))
    got: list[str] = []
    while len(got) < 5000:
        wait_for(reader)
        part = rows(reader.read(100, MANY))
        assert len(part) <= 100
        got += [text for _, text in part]
    assert got == [str(i) for i in range(5000)]


def test_a_stale_socket_is_replaced_and_a_foreign_file_is_not(bench: Bench) -> None:
    path = stdin_path(str(bench.folder), "live")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    reader = bench.reader(StdinReader, params={"type": "stdin"})
    reader.close()
    Path(path).write_text("mine")
    with pytest.raises(RunFailed, match="cannot listen at"):
        bench.reader(StdinReader, params={"type": "stdin"})
    assert Path(path).read_text() == "mine"


@pytest.mark.parametrize(
    "listen", ["nonsense", "127.0.0.1:port", "127.0.0.1:70000", "nowhere.invalid:9", "203.0.113.7:9"]
)
def test_an_address_that_cannot_be_listened_at(bench: Bench, listen: str) -> None:
    with pytest.raises(RunFailed, match=f"source 'live': .*{listen}"):
        bench.reader(params={"listen": listen})


def test_a_port_in_use_names_operator_address_and_cure(bench: Bench) -> None:
    host, port = bench.reader().address
    with pytest.raises(RunFailed, match=rf"source 'live': cannot listen at {host}:{port}: .*choose another port"):
        bench.reader(folder=bench.folder / "other", params={"listen": f"{host}:{port}"})
    # Nothing of the failed one is left: its journal can be opened again.
    assert replay(bench.reader(folder=bench.folder / "other"))[0] == []


def test_live_sources_have_one_slice(bench: Bench) -> None:
    with pytest.raises(RunFailed, match="one slice"):
        bench.reader(slices=2)


def test_make_reader_makes_live_readers(bench: Bench) -> None:
    for params in ({"type": "tcp", "listen": "[::1]:0"}, {"type": "tcp", "listen": "localhost:0"}, {"type": "stdin"}):
        operator = Operator(
            f"op{len(bench.open)}",
            "source",
            {"format": "text", "journal": None, **params},
            (),
            (Field("l"),),
            1,
            (Replica("h"),),
            Routing(),
        )
        try:
            reader = make_reader(operator, Plan("p", (operator,)), 0, run_dir=str(bench.folder))
        except RunFailed:
            assert params.get("listen") == "[::1]:0", "only IPv6 may be missing on a machine"
            continue
        bench.open.append(reader)
        assert reader.read(10, 1000).rows.data.num_rows == 0


def test_a_reader_leaves_no_file_descriptor_open(bench: Bench) -> None:
    before = len(os.listdir("/proc/self/fd"))
    reader = bench.reader()
    clients = [bench.client(reader) for _ in range(5)]
    for client in clients:
        client.sendall(b"x\n")
    read_rows(reader, 5)
    reader.close()
    reader.close()
    for client in clients:
        client.close()
    assert len(os.listdir("/proc/self/fd")) == before
