"""The keys of a cluster: who has them belongs to it.

Two CURVE key pairs. Everybody who listens proves with the *server* pair that it belongs to the cluster, everybody who
connects does so with the *client* pair: a peer that lacks either never gets to say a word, and nobody on the way can
read or change one. All processes of a cluster have both pairs, for all of them listen and connect; so a host that is
taken over is inside, and the cure is a new set.

The rules fail closed. A key file that others can read or replace is refused, not warned about. A socket with keys has
an *authentication domain* that ZeroMQ enforces: without our answer to its question (``Gate``) it lets nobody in.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.utils.z85

from dadstorm.errors import UserError

SERVER, CLIENT = "server.key", "client.key"
HINT = "# A secret key of a DADSTORM cluster. Copy it to the cluster's hosts only, readable for you alone.\n"
DOMAIN = b"dadstorm"
_KEY_BYTES = 40
_FILE_BYTES_MAX = 4096
CURE = "make keys with `dadstorm keys DIR` and give --keys DIR to every pcs and to the PuppetMaster"


@dataclass(frozen=True, slots=True)
class Keys:
    """Both pairs of a cluster."""

    folder: str
    server_public: bytes
    server_secret: bytes = field(repr=False)
    client_public: bytes
    client_secret: bytes = field(repr=False)

    def guard(self, socket: zmq.Socket[bytes]) -> None:
        """For a socket that binds: only who has the client pair gets in."""
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.curve_server = True
        socket.curve_secretkey = self.server_secret

    def introduce(self, socket: zmq.Socket[bytes]) -> None:
        """For a socket that connects: it talks only to somebody who has the server pair."""
        socket.curve_serverkey = self.server_public
        socket.curve_publickey = self.client_public
        socket.curve_secretkey = self.client_secret


class Gate:
    """Answers ZeroMQ's question whether the holder of a key may come in (ZeroMQ RFC 27).

    It lives in the loop of the process, without a thread of its own: a process that is busy lets nobody in meanwhile,
    nor could it listen to them."""

    def __init__(self, context: zmq.Context[Any], keys: Keys) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")
        self._allowed = zmq.utils.z85.decode(keys.client_public)
        self.refused = 0

    def answer(self) -> None:
        """Answer all questions that are there."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            allowed = (
                len(frames) == 7
                and frames[0] == b"1.0"
                and frames[2] == DOMAIN
                and frames[5] == b"CURVE"
                and frames[6] == self._allowed
            )
            self.refused += not allowed
            number = frames[1] if len(frames) > 1 else b""
            verdict = [b"200", b"OK", b"peer"] if allowed else [b"400", b"unknown key", b""]
            self.socket.send_multipart([b"1.0", number, *verdict, b""])


def make(folder: str) -> None:
    """Make a set of keys in a folder; UserError if there is one already, or the folder cannot be had."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        for name in (SERVER, CLIENT):
            if os.path.lexists(os.path.join(folder, name)):
                raise UserError(f"{folder} has keys already. Remove them first, or make the new ones elsewhere")
        for name in (SERVER, CLIENT):
            _, secret = zmq.curve_keypair()
            handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(HINT.encode() + secret + b"\n")
    except OSError as error:
        raise UserError(f"cannot make keys in {folder}: {error.strerror}") from None


def load(folder: str) -> Keys:
    """The keys in a folder; UserError with all that is wrong with them."""
    folder = os.path.abspath(folder)
    problems: list[str] = []
    try:
        problem = _exposed(folder, os.stat(folder), 0o022, "writable")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"no keys in {folder}: {reason}; make them with `dadstorm keys {folder}`") from None
    problems += [problem] if problem else []
    secrets = [_read(os.path.join(folder, name), problems) for name in (SERVER, CLIENT)]
    if problems:
        raise UserError(*problems)
    server, client = secrets
    return Keys(folder, zmq.curve_public(server), server, zmq.curve_public(client), client)


def _read(path: str, problems: list[str]) -> bytes:
    """The secret key in a file; what is wrong goes to the problems."""
    try:
        with open(path, "rb") as file:
            problem = _exposed(path, os.fstat(file.fileno()), 0o077, "readable")
            text = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        problems.append(f"the key {path} cannot be read: {error.strerror}; `dadstorm keys DIR` makes a set")
        return b""
    if problem:
        problems.append(problem)
        return b""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    try:
        right = len(lines) == 1 and len(lines[0]) == _KEY_BYTES and bool(zmq.curve_public(lines[0]))
    except (zmq.ZMQError, ValueError):
        right = False
    if not right:
        problems.append(
            f"{path} is no key: expected one line of {_KEY_BYTES} characters; `dadstorm keys DIR` makes them"
        )
        return b""
    return lines[0]


def _exposed(path: str, status: os.stat_result, bits: int, how: str) -> str | None:
    """Why a file or folder is not safe from others; None if it is."""
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user; keys are taken only from files of one's own"
    if stat.S_IMODE(status.st_mode) & bits:
        return f"{path} is {how} for others (mode {stat.S_IMODE(status.st_mode):o}); chmod go-rwx it, or make new keys"
    return None
