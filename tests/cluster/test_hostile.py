"""A hostile peer at a PCS: nothing it sends executes, nothing is read or written outside, and others are served.

First those who are not members: without a key, with a wrong one, with frames that were recorded or forged, with claims
of a gigabyte, in crowds, and slowly. Then a member, or anybody on this machine where there are no keys, whose requests
are well-formed and mean harm: paths, shell words, code to run, in every field.
"""

from __future__ import annotations

import io
import os
import pickle
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import zmq
from kit import Running, run, until
from pcs_kit import pcs

from dadstorm import topology
from dadstorm.plan import Plan
from dadstorm.wire import codec, control, keys
from dadstorm.wire.address import joined
from dadstorm.wire.codec import decode, encode
from dadstorm.wire.endpoint import HANDSHAKE_MS_MAX

pytestmark = pytest.mark.cluster

TOKEN = b"H" * codec.TOKEN_BYTES
GREETING_CURVE = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\0" * 32
GREETING_NULL = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
CROWD = 10_000
"""Or as many as this system lets two processes have connections."""
JOB = """
sources: {g: {generate: {n: counter}, count: 500}}
operators: {d: {input: g, dup: , replicas: 2}}
"""


@dataclass(frozen=True)
class Target:
    """A PCS under attack."""

    daemon: Running
    address: str
    folder: Path
    options: tuple[str, ...]

    @property
    def where(self) -> tuple[str, int]:
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def serves(self) -> None:
        """A friend's topology runs there as if nothing had happened."""
        (self.folder / "job.yaml").write_text(JOB)
        arguments = ("run", "job.yaml", "--pcs", self.address, *self.options)
        outcome = run(*arguments, cwd=self.folder).ok()
        assert outcome.files["d.csv"].decode().split() == [str(n) for n in range(500)]
        assert self.daemon.process.poll() is None

    def replicas(self) -> list[psutil.Process]:
        (zygote,) = psutil.Process(self.daemon.process.pid).children()
        return zygote.children()


@contextmanager
def target(folder: Path, *, guarded: bool) -> Iterator[Target]:
    for name in ("out", "lib", "data"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "lib" / "mine.py").write_text("import os\nfrom os import system as also\n\ndef same(x):\n    return x\n")
    (folder / "data" / "ok.txt").write_text("fine\n")
    (folder / "secret.txt").write_text("the secret\n")
    (folder / "data" / "link.txt").symlink_to(folder / "secret.txt")
    keys.make(str(folder / "keys"))
    options = ("--keys", str(folder / "keys")) if guarded else ()
    limits = ("--out", folder / "out", "--lib", folder / "lib", "--data", folder / "data", "--max-replicas", "20")
    with pcs(folder / "pcs", *limits, *options) as (daemon, address):
        yield Target(daemon, address, folder, options)


@contextmanager
def peer(target: Target, own: keys.Keys | None) -> Iterator[zmq.Socket[bytes]]:
    """Somebody who connects, with these keys."""
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    if own is not None:
        own.introduce(dealer)
    dealer.connect(f"tcp://{target.address}")
    try:
        yield dealer
    finally:
        dealer.close()
        context.term()


def opening(plan: bytes, **changes: Any) -> control.Open:
    request = control.Open(TOKEN, "h:1", plan, "tcp://127.0.0.1:9", "/", "127.0.0.1", control.Shake(), look_only=False)
    return msgspec.structs.replace(request, **changes)


# -- not a member -----------------------------------------------------------------------------------------------------


def test_who_has_no_key_or_a_wrong_one_gets_no_answer(tmp_path: Path) -> None:
    with target(tmp_path, guarded=True) as attacked:
        right = keys.load(str(tmp_path / "keys"))
        keys.make(str(tmp_path / "others"))
        wrong = keys.load(str(tmp_path / "others"))
        impostors: list[keys.Keys | None] = [
            None,
            wrong,
            replace(right, client_public=wrong.client_public, client_secret=wrong.client_secret),
            replace(right, server_public=wrong.server_public),
        ]
        with ExitStack() as stack:
            sockets = [stack.enter_context(peer(attacked, one)) for one in impostors]
            member = stack.enter_context(peer(attacked, right))
            for dealer in [*sockets, member]:
                with suppress(zmq.Again):  # Who has been refused already has no connection to send by.
                    dealer.send_multipart(encode(control.PUBLIC, opening(b"")), zmq.NOBLOCK)
            assert member.poll(10_000), "a member is answered"
            assert [dealer.poll(500) for dealer in sockets] == [0, 0, 0, 0]
        attacked.serves()


def test_frames_that_were_recorded_and_played_again_or_forged_do_nothing(tmp_path: Path) -> None:
    """A member's whole conversation, recorded on the way, sent again byte for byte; then with every part changed."""
    with target(tmp_path, guarded=True) as attacked:
        recorded = io.BytesIO()
        with recorder(attacked, recorded) as (relay, between):
            with peer(replace(attacked, address=between), keys.load(str(tmp_path / "keys"))) as member:
                member.send_multipart(encode(control.PUBLIC, opening(b"")))
                assert member.poll(10_000)
            relay.set()
        said = recorded.getvalue()
        assert len(said) > 400
        for replayed in (said, said[:-1] + bytes([said[-1] ^ 1]), said[: len(said) // 2] * 3, said[64:]):
            with socket.create_connection(attacked.where, 10) as connection:
                connection.sendall(replayed)
                assert not answered_after_the_handshake(connection)
        attacked.serves()


@contextmanager
def recorder(attacked: Target, into: io.BytesIO) -> Iterator[tuple[threading.Event, str]]:
    """A man in the middle, who passes on everything and keeps what the client says."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def relay() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection(attacked.where) as server:
                for one in (client, server):
                    one.settimeout(0.05)
                while not over.is_set():
                    for source, sink in ((client, server), (server, client)):
                        with suppress(TimeoutError, OSError):
                            data = source.recv(1 << 16)
                            if source is client:
                                into.write(data)
                            sink.sendall(data)

        thread = threading.Thread(target=relay)
        thread.start()
        yield over, f"127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        thread.join()


def answered_after_the_handshake(connection: socket.socket) -> bool:
    """Whether more comes than greeting and WELCOME (64 and 170 bytes) before it is closed or falls silent."""
    connection.settimeout(1)
    heard = b""
    with suppress(OSError):
        while data := connection.recv(4096):
            heard += data
    return len(heard) > 64 + 2 + 168 + 2


@pytest.mark.parametrize("guarded", [True, False], ids=["with keys", "without"])
def test_a_claim_of_a_gigabyte_costs_nothing(tmp_path: Path, guarded: bool) -> None:
    with target(tmp_path, guarded=guarded) as attacked, ExitStack() as stack:
        before = psutil.Process(attacked.daemon.process.pid).memory_info().rss
        for size in (65 << 20, 1 << 30, 1 << 40, (1 << 63) - 1):
            for flags in (2, 6):  # A long message; a long command.
                connection = stack.enter_context(socket.create_connection(attacked.where, 10))
                introduction = GREETING_CURVE if guarded else GREETING_NULL + READY
                connection.sendall(introduction + struct.pack(">BQ", flags, size) + b"x" * 1000)
        attacked.serves()
        after = psutil.Process(attacked.daemon.process.pid).memory_info().rss
        assert after - before < 64 << 20


def many_files() -> int:
    """How many files this process may have open now: as many as the system allows, of which a test needs no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2 * CROWD if hard == resource.RLIM_INFINITY else min(2 * CROWD, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def test_a_crowd_that_connects_and_says_nothing_or_little_does_not_keep_others_out(tmp_path: Path) -> None:
    """Thousands of connections, each stopped somewhere in its introduction; they are hung up on after a while."""
    with target(tmp_path, guarded=True) as attacked, ExitStack() as stack:
        for number in range(min(CROWD, many_files() - 500)):
            connection = stack.enter_context(socket.create_connection(attacked.where, 20))
            connection.sendall(GREETING_CURVE[: number % (len(GREETING_CURVE) + 1)])
        attacked.serves()
        process = psutil.Process(attacked.daemon.process.pid)
        until(lambda: process.num_fds() < 100, "they are hung up on", 3 * HANDSHAKE_MS_MAX / 1000 + 20)


def test_one_who_dribbles_does_not_hold_a_connection(tmp_path: Path) -> None:
    """A byte now and then of an introduction that never ends."""
    with target(tmp_path, guarded=True) as attacked:
        with socket.create_connection(attacked.where, 10) as connection:
            endless = iter(GREETING_CURVE + b"\x04\xff" + b"\0" * 1000)

            def hung_up() -> bool:
                connection.settimeout(0.05)
                try:
                    connection.sendall(bytes([next(endless)]))
                    return False
                except OSError:
                    return True

            until(hung_up, "it is hung up on", 3 * HANDSHAKE_MS_MAX / 1000 + 20)
        attacked.serves()


# -- a member who means harm ------------------------------------------------------------------------------------------

NASTY = [
    "../../x",
    "/etc/passwd",
    "a/b",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "a\0b",
    "\n",
    ".",
    "..",
    "x" * 5000,
]
NASTY += ["| touch pwned", "%s%n", "-rf", "~root", "file:///etc/passwd", "{0.__class__}"]


class Boom:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


def plan_of(folder: Path, text: str) -> Plan:
    (folder / "attack.yaml").write_text(text)
    plan = topology.load(str(folder / "attack.yaml"), libs=[str(folder / "lib")])
    host = "h:1"
    operators = tuple(
        msgspec.structs.replace(op, replicas=tuple(msgspec.structs.replace(r, host=host) for r in op.replicas))
        for op in plan.operators
    )
    return msgspec.structs.replace(plan, operators=operators)


def with_params(plan: Plan, index: int, **params: Any) -> Plan:
    operators = list(plan.operators)
    operators[index] = msgspec.structs.replace(operators[index], params=operators[index].params | params)
    return msgspec.structs.replace(plan, operators=tuple(operators))


def harmful_plans(folder: Path) -> list[Plan]:
    """Plans that our compiler would never make."""
    base = plan_of(
        folder,
        "sources: {t: {text: data/ok.txt, fields: [x]}, l: {tcp: 'tcp://127.0.0.1:7007', fields: [x]}}\n"
        "operators: {c: {input: t, custom: mine.same, fields: [x]}, d: {input: l, dup: }}\n"
        "sinks: {s: {input: c, csv: out.csv}, s2: {input: d, console: }}\n",
    )
    index = {operator.name: base.index(operator.name) for operator in base.operators}
    good = with_params(base, index["s"], path=str(folder / "out" / "fine.csv"))
    plans = [msgspec.structs.replace(good, name=name) for name in NASTY]
    for operator in good.operators:
        for name in NASTY:
            others = [op if op is not operator else msgspec.structs.replace(op, name=name) for op in good.operators]
            plans.append(msgspec.structs.replace(good, operators=tuple(others)))
    outside = [
        *NASTY,
        str(folder / "secret.txt"),
        str(folder / "data" / "link.txt"),
        str(folder / "data" / ".." / "secret.txt"),
    ]
    plans += [with_params(good, index["t"], paths=[path]) for path in outside]
    plans += [
        with_params(good, index["t"], paths=wrong) for wrong in ("/etc/passwd", {"/etc/passwd": 1}, 7, [[]], [None])
    ]
    plans += [with_params(good, index["t"], type=kind) for kind in ("stdin", "exec", "", None, [])]
    plans += [with_params(good, index["l"], journal=path) for path in [*outside, str(folder / "lib")]]
    plans += [with_params(good, index["l"], listen=where) for where in ("8.8.8.8:53", "0.0.0.0:7007", "x", 5, None)]
    code = [str(folder / "lib" / "new.py"), str(folder / "out" / ".." / "lib" / "mine.py"), str(folder / "out")]
    plans += [with_params(good, index["s"], path=path) for path in [*outside, *code]]
    references = [
        "os.system",
        "builtins.eval",
        "subprocess.run",
        "pickle.loads",
        "mine",
        "mine.",
        "..mine.same",
        "pcs.cli.main",
    ]
    plans += [with_params(good, index["c"], function=name) for name in [*references, *NASTY]]
    kinds = [msgspec.structs.replace(op, kind="exec") if op.name == "c" else op for op in good.operators]
    plans.append(msgspec.structs.replace(good, operators=tuple(kinds)))
    for address in ("tcp://8.8.8.8:80", "ipc:///x", "tcp://0.0.0.0:1", "nonsense"):
        replicas = (msgspec.structs.replace(good.operators[0].replicas[0], address=address),)
        first = msgspec.structs.replace(good.operators[0], replicas=replicas)
        plans.append(msgspec.structs.replace(good, operators=(first, *good.operators[1:])))
    many = msgspec.structs.replace(good.operators[0], replicas=good.operators[0].replicas * 21)
    plans.append(msgspec.structs.replace(good, operators=(many, *good.operators[1:])))
    return [good, *plans]


@pytest.mark.parametrize("guarded", [True, False], ids=["with keys", "without"])
def test_paths_and_shell_words_in_every_field_are_refused(tmp_path: Path, guarded: bool) -> None:
    with target(tmp_path, guarded=guarded) as attacked:
        good, *harmful = harmful_plans(tmp_path)
        before = everything(tmp_path)
        own = keys.load(str(tmp_path / "keys")) if guarded else None
        with peer(attacked, own) as member:

            def answer(request: control.Open) -> control.Opened:
                member.send_multipart(encode(control.PUBLIC, request))
                assert member.poll(20_000), "it answers"
                said, _ = decode(request.run if len(request.run) == 16 else control.PUBLIC, member.recv_multipart())
                assert isinstance(said, control.Opened)
                return said

            encoded = msgspec.msgpack.encode(good)
            assert answer(opening(encoded, look_only=True)).problems == ()
            for plan in harmful:
                assert answer(opening(msgspec.msgpack.encode(plan))).problems, plan
            fields = [opening(encoded, master=text) for text in [*NASTY, "ipc:///x", "tcp://x:99999"]]
            fields += [opening(encoded, run=run) for run in (b"", b"x", control.PUBLIC, b"x" * 17)]
            fields += [
                opening(wrong) for wrong in (b"", pickle.dumps(Boom()), pickle.dumps(Boom(), 0), os.urandom(500))
            ]
            fields += [opening(b"\x91" * 100_000), opening(b"\0" * (9 << 20))]
            for request in fields:
                assert answer(request).problems, request
            # The folder, and where to listen, are this PCS's own business, whatever the request says.
            for text in NASTY:
                assert answer(opening(encoded, folder=text, reach=text, look_only=True)).problems == ()
            for frames in ([pickle.dumps(Boom())], [pickle.dumps(Boom(), 0)] * 2, [b"DST\x02" + pickle.dumps(Boom())]):
                member.send_multipart(frames)
            for message in (control.Shutdown(), control.Spawn(0, 0), control.Start(), control.Respawn(0, 0, 1)):
                member.send_multipart(encode(control.PUBLIC, message))
                member.send_multipart(encode(b"Z" * 16, message))
        assert everything(tmp_path) == before
        assert attacked.replicas() == []
        attacked.serves()


def everything(folder: Path) -> dict[str, bytes]:
    """All files of the test, with what is in them."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "reference", ["mine.os.system", "mine.also", "mine.same.__globals__", "mine.__builtins__.eval"]
)
def test_code_that_an_allowed_module_only_imports_is_not_run(tmp_path: Path, reference: str) -> None:
    """``mine`` is allowed and imports ``os``: that does not allow ``os``."""
    with target(tmp_path, guarded=False) as attacked, zmq.Context() as context:
        text = (
            "sources: {t: {text: data/ok.txt, fields: [x]}}\n"
            "operators: {c: {input: t, custom: mine.same, fields: [x]}}\n"
        )
        plan = plan_of(tmp_path, text + "sinks: {s: {input: c, console: }}\n")
        (tmp_path / "data" / "ok.txt").write_text(f"touch {tmp_path}/pwned\n")
        plan = with_params(plan, plan.index("c"), function=reference)
        master = context.socket(zmq.ROUTER)
        port = master.bind_to_random_port("tcp://127.0.0.1")
        with peer(attacked, None) as member:
            request = opening(msgspec.msgpack.encode(plan), master=joined("127.0.0.1", port))
            member.send_multipart(encode(control.PUBLIC, request))
            assert member.poll(10_000)
            opened, _ = decode(TOKEN, member.recv_multipart())
            assert isinstance(opened, control.Opened)
            assert opened.problems == (), "only who imports the module can tell"
            member.send_multipart(encode(TOKEN, control.Spawn(plan.index("c"), 0)))
            assert f'custom "{reference}"' in failure_told_to(master, plan)
            member.send_multipart(encode(TOKEN, control.Shutdown()))
            until(lambda: attacked.replicas() == [], "the replica is gone")
        master.close(linger=0)
        assert not (tmp_path / "pwned").exists()


def failure_told_to(master: zmq.Socket[bytes], plan: Plan) -> str:
    """Introduce a replica to others, so that it begins, and hear why it fails."""
    while True:
        assert master.poll(20_000), "it says something"
        message, _ = decode(TOKEN, master.recv_multipart()[1:])
        if isinstance(message, control.Hello):
            with master.context.socket(zmq.DEALER) as dealer:
                dealer.connect(message.address)
                directory = control.Directory(tuple((message.address,) * len(op.replicas) for op in plan.operators))
                dealer.send_multipart(encode(TOKEN, directory))
                dealer.close(linger=5000)
        elif isinstance(message, control.Failed):
            return message.text


def test_a_pcs_starts_no_more_replicas_than_its_limit(tmp_path: Path) -> None:
    with target(tmp_path, guarded=False) as attacked:
        (tmp_path / "job.yaml").write_text(JOB.replace("replicas: 2", "replicas: 20"))
        outcome = run("run", "job.yaml", "--pcs", attacked.address, cwd=tmp_path)
        assert outcome.code == 2
        assert "would exceed the limit of 20" in outcome.err
        attacked.serves()
