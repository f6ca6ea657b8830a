"""Rubbish on every socket: whatever arrives, the process goes on, and the output is right in the end.

From the inside out. Bytes: only ``Rubbish`` may come of bytes that are no message, and memory is never touched where it
must not be (tried in a process of its own, which would crash). Messages that are well-formed and make no sense: only
``ProtocolError``, and nothing has changed. An endpoint: what is no message of ours is counted. And a real run, all of
whose sockets are fed with all of this by strangers and by somebody who knows its token.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rubbish
import zmq
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kit import ROOT, Running, until
from rubbish import FOREIGN, MESSAGES, SCHEMA, TOKEN, forged, mutations, nonsense, numbers, opening, sense_without

from dadstorm import topology
from dadstorm.core.checks import ProtocolError
from dadstorm.core.messages import (
    Adopt,
    Attach,
    Beat,
    Copy,
    Done,
    Down,
    Found,
    Gone,
    Held,
    Here,
    Peer,
    Reach,
    Reached,
    Safe,
    Seek,
    Settle,
    Tiles,
    Want,
)
from dadstorm.core.replica import ReplicaMachine
from dadstorm.operators import make_kernel
from dadstorm.plan import Plan
from dadstorm.wire import control
from dadstorm.wire.bodies import decode_rows, decode_table
from dadstorm.wire.codec import Content, Rubbish, decode, encode
from dadstorm.wire.endpoint import MESSAGE_BYTES_MAX, Endpoint

# -- bytes ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=120), max_size=4))
def test_any_bytes_are_rubbish(frames: list[bytes]) -> None:
    with pytest.raises(Rubbish):
        decode(TOKEN, frames)


@pytest.mark.parametrize("message, rows", MESSAGES, ids=lambda value: type(value).__name__)
def test_a_message_with_a_single_wrong_byte_is_rubbish(message: control.Message, rows: Content) -> None:
    frames = [bytes(frame) for frame in encode(TOKEN, message, rows)]
    assert decode(TOKEN, frames)[0] == message
    for index, frame in enumerate(frames):
        for mutated in mutations(frame):
            with pytest.raises(Rubbish):
                decode(TOKEN, [*frames[:index], mutated, *frames[index + 1 :]])


@pytest.mark.parametrize("message, rows", MESSAGES, ids=lambda value: type(value).__name__)
def test_a_message_of_another_run_or_in_pieces_is_rubbish(message: control.Message, rows: Content) -> None:
    frames = [bytes(frame) for frame in encode(TOKEN, message, rows)]
    wrong = [encode(FOREIGN, message, rows), [], [b""], [b"", *frames], [*frames, b""], frames * 10, frames[1:]]
    for mangled in wrong + ([frames[:1]] if len(frames) > 1 else []):
        with pytest.raises(Rubbish):
            decode(TOKEN, mangled)


@given(st.binary(max_size=200), st.none() | st.binary(max_size=50))
@example(b"\x82\xa4type\xa5start\xa1x" + b"\x91" * 100_000 + b"\xc0", None)
@example(b"\x82\xa4type\xa9directory\xa9addresses\xdd\xff\xff\xff\xff", None)
def test_any_payload_with_a_right_checksum_is_a_message_or_rubbish(payload: bytes, body: bytes | None) -> None:
    try:
        decode(TOKEN, forged(TOKEN, payload, body))
    except Rubbish:
        return


@pytest.mark.parametrize("message, rows", MESSAGES, ids=lambda value: type(value).__name__)
def test_a_mutated_payload_with_a_right_checksum_is_a_message_or_rubbish(
    message: control.Message, rows: Content
) -> None:
    payload = bytes(encode(TOKEN, message)[0])[len(forged(TOKEN, b"")[0]) :]
    for mutated in mutations(payload):
        try:
            decode(TOKEN, forged(TOKEN, mutated))
        except Rubbish:
            continue


@given(st.binary(max_size=400))
def test_any_body_is_rubbish(body: bytes) -> None:
    with pytest.raises(Rubbish):
        decode_rows(body, SCHEMA)
    with pytest.raises(Rubbish):
        decode_table(body)


def test_a_mutated_body_with_a_right_checksum_is_rubbish_or_can_be_used() -> None:
    """Arrow trusts its offsets: falling ones, let through, crash the process."""
    done = subprocess.run(
        [sys.executable, rubbish.__file__],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert int(done.stdout.split()[1]) > 1000, "otherwise it is no test"


# -- messages that make no sense --------------------------------------------------------------------------------------

TOPOLOGY = """
sources:
  g: {generate: {n: counter}, rate: 2000}
operators:
  left:  {input: g, filter: n >= 0, slices: 4, replicas: 2}
  right: {input: g, dup: }
  both:  {input: [left, right], dup: }
suspect_after: 10m
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("plan") / "fuzz.yaml"
    path.write_text(TOPOLOGY)
    return topology.load(str(path))


NUMBERS = st.integers(-2, 6) | st.sampled_from([2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
SEQS = st.integers(-1, 12) | NUMBERS
FEW = st.lists(NUMBERS, max_size=3).map(tuple)
WANTS = st.lists(st.builds(Want, NUMBERS, NUMBERS, SEQS), max_size=3).map(tuple)
CUTS = st.lists(st.tuples(NUMBERS, SEQS), max_size=3).map(tuple)
ROWS = st.none() | st.lists(st.integers(-2, 12), max_size=4).map(sorted).map(numbers)
TABLES = st.none() | st.just(numbers([1, 2]).data) | st.just(numbers([]).data)
N, S = NUMBERS, SEQS
RANDOM_MESSAGES = st.one_of(
    st.tuples(st.builds(Tiles, N, N, N, N, N, N, S, S, FEW, FEW, S, st.booleans()), ROWS),
    st.tuples(st.builds(Done, N, N, N, N, N, N, S, st.booleans()), st.none()),
    st.tuples(st.builds(Attach, N, N, N, N, WANTS), st.none()),
    st.tuples(st.builds(Gone, N, N, N, N, N, S), st.none()),
    st.tuples(st.builds(Safe, N, N, CUTS), st.none()),
    st.tuples(st.builds(Here, N, N, N, CUTS), st.none()),
    st.tuples(st.builds(Reach, N, N, N, N, N, N), st.none()),
    st.tuples(st.builds(Reached, N, N, N, N, N, N, S), st.none()),
    st.tuples(st.builds(Copy, N, N, N, N, st.none() | S, S), TABLES),
    st.tuples(st.builds(Settle, N, N, N, N, S), st.none()),
    st.tuples(st.builds(Held, N, N, N, N, N, S, S), st.none()),
    st.tuples(st.builds(Seek, N, N, N, FEW, N), st.none()),
    st.tuples(st.builds(Adopt, N, N, N, N, CUTS), st.none()),
    st.tuples(st.builds(Found, N, N, N, N, N, S), TABLES),
    st.tuples(st.builds(Beat, N, N, N), st.none()),
    st.tuples(st.builds(Down, N, N, N), st.none()),
)


def what_it_knows(machine: ReplicaMachine) -> Any:
    """All of a replica's state that messages can change."""
    consumers = {index: (c.merger.frontier, inlets(c)) for index, c in machine.consumers.items()}
    outlets = {
        (index, o.consumer, o.input): (o.safe, o.kept_rows, tuple(o._wanted))
        for index, s in machine.slices.items()
        for o in s.outlets
    }
    return consumers, outlets, machine.progress


def inlets(consumer: Any) -> dict[Any, tuple[int, int]]:
    return {channel: (inlet.hi, inlet.queued) for channel, inlet in consumer.merger.inlets.items()}


@settings(max_examples=200)
@given(
    st.integers(0, 4), st.integers(0, 1), st.lists(RANDOM_MESSAGES, min_size=1, max_size=8).map(tuple)
)
def test_a_message_that_makes_no_sense_changes_nothing(
    plan: Plan, operator: int, incarnation: int, messages: Sequence[tuple[Any, Content]]
) -> None:
    """It raises ProtocolError, and nothing else, and the replica is as before. (Some make sense by chance.)"""
    machine = ReplicaMachine(plan, Peer(operator, 0), lambda op: make_kernel(op, plan), incarnation)
    list(machine.begin({1: 0}))
    for message, content in messages:
        before = what_it_knows(machine)
        try:
            list(machine.handle(message, content))
        except ProtocolError:
            assert what_it_knows(machine) == before


# -- an endpoint ------------------------------------------------------------------------------------------------------


@contextmanager
def listening() -> Iterator[tuple[Endpoint, str]]:
    with tempfile.TemporaryDirectory(prefix="ds") as folder:
        endpoint = Endpoint(TOKEN)
        address = endpoint.bind(f"ipc://{folder}/inbox")
        try:
            yield endpoint, address
        finally:
            endpoint.close()


@contextmanager
def peer(address: str, kind: int = zmq.DEALER) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(kind) as connection:
        connection.setsockopt(zmq.LINGER, 2000)
        connection.connect(address)
        yield connection


def received(endpoint: Endpoint, dropped: int, messages: int) -> list[control.Message]:
    """Let the endpoint receive until it has dropped and got so many."""
    got: list[control.Message] = []

    def enough() -> bool:
        got.extend(item.message for item in endpoint.receive(10)[0])
        return endpoint.dropped >= dropped and len(got) >= messages

    until(enough, f"{dropped} dropped and {messages} received", 20)
    return got


def test_an_endpoint_counts_what_is_no_message_and_gets_the_others() -> None:
    said = [control.Said(n, "hello") for n in range(3)]
    with listening() as (endpoint, address), peer(address) as stranger, peer(address) as friend:
        wrong = nonsense()
        for number, message in enumerate(said):
            for frames in wrong[number :: len(said)]:
                stranger.send_multipart(frames)
            friend.send_multipart(encode(TOKEN, message))
        assert received(endpoint, len(wrong), len(said)) == said
        assert endpoint.dropped == len(wrong)


def test_an_endpoint_counts_strangers() -> None:
    """Those who speak ZeroMQ but want something else, and those who do not speak it."""
    with listening() as (endpoint, address), ExitStack() as open_until_the_end:
        for kind in (zmq.PUSH, zmq.SUB, zmq.PULL):
            open_until_the_end.enter_context(peer(address, kind))
        for said in (b"GET / HTTP/1.1\r\n\r\n" * 10, b"\0" * 100, os.urandom(2000)):
            connection = raw(address)
            connection.sendall(said)
            connection.close()
        half_open = [open_until_the_end.enter_context(raw(address)) for _ in range(20)]
        for number, connection in enumerate(half_open):
            connection.sendall(GREETING[:number])
        friend = open_until_the_end.enter_context(peer(address))
        friend.send_multipart(encode(TOKEN, control.Start()))
        assert received(endpoint, 6, 1) == [control.Start()]


GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
"""How a DEALER introduces itself, spelt out."""


def raw(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address.removeprefix("ipc://"))
    connection.settimeout(10)
    return connection


def test_an_endpoint_does_not_read_what_is_too_large() -> None:
    with listening() as (endpoint, address), raw(address) as stranger, peer(address) as friend:
        stranger.sendall(GREETING + READY + struct.pack(">BQ", 2, MESSAGE_BYTES_MAX + 1) + b"x" * 1000)
        until(lambda: closed(stranger), "the connection is closed")
        friend.send_multipart(encode(TOKEN, control.Start()))
        assert received(endpoint, 0, 1) == [control.Start()]


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except ConnectionError:
        return True


# -- a real run -------------------------------------------------------------------------------------------------------

WITH_A_KNOWN_TOKEN = (
    "import secrets, sys; secrets.token_bytes = lambda size: b'T' * size; "
    "from dadstorm.cli import main; sys.exit(main(sys.argv[1:]))"
)


@contextmanager
def fuzzed_run(folder: Path) -> Iterator[tuple[Running, dict[str, str]]]:
    """A run that goes on until it is stopped, and its sockets by name; in the end its output must be right."""
    (folder / "fuzz.yaml").write_text(TOPOLOGY)
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_A_KNOWN_TOKEN, "run", "fuzz.yaml", "--sink", "csv"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    command = Running(("run", "fuzz.yaml"), process, folder, time.monotonic())
    try:
        output = folder / "out" / "both.csv"
        until(lambda: output.exists() and output.stat().st_size > 0, "rows come out")
        (sockets,) = Path(tempfile.gettempdir()).glob("dadstorm-*")
        yield command, {path.name: f"ipc://{path}" for path in sockets.iterdir() if path.is_socket()}
        written = output.stat().st_size
        until(lambda: output.stat().st_size > written, "rows still come out")
        process.send_signal(signal.SIGINT)
        outcome = command.ended().ok()
    finally:
        process.kill()
        process.wait()
    lines = outcome.files["both.csv"].decode().splitlines()
    read = re.search(r"^fuzz: ([\d,]+) tuples in ", outcome.err, re.MULTILINE)
    assert read
    assert lines == [str(i // 2) for i in range(2 * int(read[1].replace(",", "")))]


def dropped(folder: Path, name: str) -> int:
    """How many messages a process says, in its log, that it has dropped. It says so at every power of two."""
    process = {"master": "puppetmaster", "pcs": "pcs"}.get(name) or f"{PARTS[int(name[0])]}{name[1:]}"
    events = map(json.loads, (folder / "runs" / "fuzz-1" / f"{process}.log").read_text().splitlines())
    return max((event["dropped"] for event in events if event["event"] == "message dropped"), default=0)


PARTS = ["g", "left", "right", "both", "both.sink"]
SOCKETS = ["0.0", "1.0", "1.1", "2.0", "3.0", "4.0", "master", "pcs"]


@pytest.mark.cluster
def test_a_run_goes_on_whatever_strangers_send(tmp_path: Path) -> None:
    wrong = nonsense()
    with fuzzed_run(tmp_path) as (_, sockets), ExitStack() as open_until_the_end:
        assert sorted(sockets) == SOCKETS
        for address in sockets.values():
            stranger = open_until_the_end.enter_context(peer(address))
            for frames in wrong:
                stranger.send_multipart(frames)
            for kind in (zmq.REQ, zmq.PUSH, zmq.SUB):
                other = open_until_the_end.enter_context(peer(address, kind))
                if kind == zmq.REQ:
                    other.send(b"hello")
            half_open = open_until_the_end.enter_context(raw(address))
            half_open.sendall(GREETING[:30])
            with raw(address) as oversized:
                oversized.sendall(GREETING + READY + struct.pack(">BQ", 2, 1 << 62))
            with raw(address) as random:
                random.sendall(os.urandom(500))
        for name in sockets:
            until(lambda name=name: dropped(tmp_path, name) > len(wrong) / 2, f"{name} tells what it drops")


@pytest.mark.cluster
def test_a_run_goes_on_when_thousands_connect(tmp_path: Path) -> None:
    with fuzzed_run(tmp_path) as (_, sockets):
        for address in sockets.values():
            for _ in range(3):
                crowd = [raw(address) for _ in range(100)]
                for number, connection in enumerate(crowd):
                    connection.sendall(GREETING[: number % len(GREETING)])
                    connection.close()
        for name in sockets:
            until(lambda name=name: dropped(tmp_path, name) >= 128, f"{name} tells what it drops")


@pytest.mark.cluster
def test_a_run_goes_on_when_messages_with_its_token_make_no_sense(tmp_path: Path, plan: Plan) -> None:
    messages = sense_without(plan)
    with fuzzed_run(tmp_path) as (_, sockets), ExitStack() as stack:
        for address in sockets.values():
            friend = stack.enter_context(peer(address))
            for message, rows in messages:
                friend.send_multipart(encode(TOKEN, message, rows))
            friend.send_multipart(forged(TOKEN, bytes(encode(TOKEN, MESSAGES[0][0])[0])[28:], os.urandom(500)))
        for name in sockets:
            until(lambda name=name: dropped(tmp_path, name) > len(messages) / 2, f"{name} tells what it drops")


@pytest.mark.cluster
def test_a_pcs_refuses_what_it_cannot_spawn(tmp_path: Path, plan: Plan) -> None:
    with fuzzed_run(tmp_path) as (_, sockets), peer(sockets["pcs"]) as friend:
        for request in [
            control.Spawn(99, 0),
            control.Spawn(2**64 - 1, 0),
            control.Spawn(-1, 0),
            control.Spawn(0, -1),
            control.Spawn(0, 0),
            control.Spawn(0, 5),
        ]:
            friend.send_multipart(encode(TOKEN, request))
            assert friend.poll(10_000), f"no answer to {request}"
            answer, _ = decode(TOKEN, friend.recv_multipart())
            assert isinstance(answer, control.Refused), request
            assert (answer.operator, answer.replica) == (request.operator, request.replica)
            assert answer.reason


@pytest.mark.cluster
def test_a_pcs_refuses_what_is_no_plan(tmp_path: Path, plan: Plan) -> None:
    encoded = msgspec.msgpack.encode(plan)
    deep = msgspec.msgpack.encode({"name": "x"})[:1] + b"\xa1x" + b"\x91" * 5000
    with fuzzed_run(tmp_path) as (_, sockets), peer(sockets["pcs"]) as friend:
        for token, wrong in [(FOREIGN, b""), (FOREIGN, os.urandom(300)), (FOREIGN, deep), (TOKEN, encoded)]:
            friend.send_multipart(encode(TOKEN, opening(token, wrong)))
            assert friend.poll(10_000), f"no answer to {wrong!r}"
            answer, _ = decode(token, friend.recv_multipart())
            assert isinstance(answer, control.Opened)
            assert answer.problems
