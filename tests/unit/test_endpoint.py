"""An endpoint is told addresses by others: one that is none, or whose owner refuses us, must not end or stop us."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dadstorm.wire import control, keys
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.endpoint import Endpoint, is_address

ODD = ["ipc://@", "tcp://[[:5", "tcp://::::1:5", "tcp://-:0", "tcp://a]:9", "tcp://[::1:7", "tcp://127.0.0.1:0"]


@pytest.mark.parametrize("address", ODD)
@pytest.mark.parametrize("guarded", [True, False], ids=["with keys", "without"])
def test_what_looks_like_an_address_and_is_none_is_harmless(
    tmp_path_factory: pytest.TempPathFactory, address: str, guarded: bool
) -> None:
    assert is_address(address)
    folder = str(tmp_path_factory.mktemp("keys"))
    if guarded:
        keys.make(folder)
    endpoint = Endpoint(bytes(TOKEN_BYTES), keys=keys.load(folder) if guarded else None)
    try:
        with capture_logs():
            endpoint.send(address, control.Stop())
            endpoint.send(address, control.Stop())
    finally:
        endpoint.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("may_be_gone", [False, True])
@pytest.mark.parametrize("who", ["nobody", "stranger", "wrong client", "wrong server"])
def test_who_is_refused_is_not_held_up(tmp_path: Path, who: str, may_be_gone: bool) -> None:
    """ZeroMQ gives a connection up for good whose handshake was refused; a send without a connection would block."""
    for name in ("right", "wrong"):
        keys.make(str(tmp_path / name))
    right, wrong = (keys.load(str(tmp_path / name)) for name in ("right", "wrong"))
    theirs = {
        "nobody": None,
        "stranger": wrong,
        "wrong client": replace(right, client_public=wrong.client_public, client_secret=wrong.client_secret),
        "wrong server": replace(right, server_public=wrong.server_public),
    }[who]
    token = bytes(TOKEN_BYTES)
    guarded = Endpoint(token, keys=right)
    refused = Endpoint(token, keys=theirs)
    try:
        with capture_logs():
            address = guarded.bind("tcp://127.0.0.1:0")
            if may_be_gone:
                refused.may_be_gone(address)
            # One that is told so finds its connection given up; others may be hung up on before they are told.
            told = who == "wrong client"
            began, rounds = time.monotonic(), 0
            while rounds < 30 or (told and not refused.dropped):
                refused.send(address, control.Stop())
                refused.receive(0)
                assert guarded.receive(20)[0] == []
                assert time.monotonic() - began < 30, "the connection was never given up"
                rounds += 1
    finally:
        refused.close()
        guarded.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("may_be_gone", [False, True])
def test_who_comes_to_the_address_of_one_that_has_refused_us_is_reached(tmp_path: Path, may_be_gone: bool) -> None:
    for name in ("right", "wrong"):
        keys.make(str(tmp_path / name))
    right, wrong = (keys.load(str(tmp_path / name)) for name in ("right", "wrong"))
    token = bytes(TOKEN_BYTES)
    sender = Endpoint(token, keys=right)
    other = Endpoint(token, keys=replace(right, client_public=wrong.client_public, client_secret=wrong.client_secret))
    with capture_logs():
        address = other.bind("tcp://127.0.0.1:0")
        if may_be_gone:
            sender.may_be_gone(address)
        try:
            began = time.monotonic()
            while not sender.dropped:
                sender.send(address, control.Stop())
                sender.receive(0)
                assert other.receive(20)[0] == []
                assert time.monotonic() - began < 20, "nobody was refused"
        finally:
            other.close()
        there = Endpoint(token, keys=right)
        try:
            there.bind(address)
            heard = []
            while not heard:
                sender.send(address, control.Stop())
                sender.receive(0)
                heard = there.receive(20)[0]
                assert time.monotonic() - began < 40, "the right one is never reached"
        finally:
            there.close()
            sender.close()
