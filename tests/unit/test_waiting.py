"""Who is gone for good costs no memory; who comes back gets what waited, in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dadstorm.wire import control
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.endpoint import Endpoint

TOKEN = bytes(TOKEN_BYTES)


@pytest.fixture
def sender() -> Iterator[Endpoint]:
    endpoint = Endpoint(TOKEN)
    yield endpoint
    endpoint.close()


def said(endpoint: Endpoint, count: int, within_s: float = 10.0) -> list[str]:
    """So many texts, as they come."""
    found: list[str] = []
    until = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < until:
        found += [item.message.text for item in endpoint.receive(20)[0] if isinstance(item.message, control.Said)]
    return found


def test_messages_wait_for_who_is_not_there_yet_and_arrive_in_order(tmp_path: Path, sender: Endpoint) -> None:
    address = f"ipc://{tmp_path}/there"
    sender.may_be_gone(address)
    for number in range(5):
        sender.send(address, control.Said(0, str(number)))
    there = Endpoint(TOKEN)
    try:
        there.bind(address)
        until = time.monotonic() + 10
        found: list[str] = []
        while len(found) < 6 and time.monotonic() < until:
            sender.receive(5)  # Looks whether somebody is there.
            if len(found) == 5:
                sender.send(address, control.Said(0, "5"))
            found += said(there, 1, 0.02)
        assert found == ["0", "1", "2", "3", "4", "5"]
    finally:
        there.close()


def test_what_waits_for_who_is_gone_is_bounded_and_the_oldest_goes(tmp_path: Path, sender: Endpoint) -> None:
    address = f"ipc://{tmp_path}/there"
    there = Endpoint(TOKEN)
    there.bind(address)
    sender.may_be_gone(address, 4000)
    sender.send(address, control.Said(0, "first"))
    assert said(there, 1) == ["first"]
    there.close()
    waiting = sender._waiting[address]
    until = time.monotonic() + 10
    while not waiting and time.monotonic() < until:  # Until ZeroMQ has noticed.
        sender.send(address, control.Said(0, "lost"))
    for number in range(10_000):
        sender.send(address, control.Said(0, str(number)))
    assert len(waiting) < 100, "as many as 4000 bytes hold"
    assert waiting.dropped > 9_000
    again = Endpoint(TOKEN)
    try:
        again.bind(address)
        kept = len(waiting)
        until = time.monotonic() + 10
        while waiting and time.monotonic() < until:
            sender.receive(5)
        found = said(again, kept)
        assert found[-kept:] == [str(number) for number in range(10_000 - kept, 10_000)]
        assert set(found[:-kept]) <= {"lost"}
    finally:
        again.close()


def test_who_was_never_there_costs_no_memory_either(tmp_path: Path, sender: Endpoint) -> None:
    address = f"ipc://{tmp_path}/nobody"
    sender.may_be_gone(address, 4000)
    for number in range(10_000):
        sender.send(address, control.Said(0, str(number)))
    assert sender._waiting[address].dropped > 9_000


def test_what_waited_reaches_who_comes_back_to_the_address_even_if_it_is_hung_up_on(
    tmp_path: Path, sender: Endpoint
) -> None:
    address = f"ipc://{tmp_path}/there"
    there = Endpoint(TOKEN)
    there.bind(address)
    sender.may_be_gone(address)
    sender.send(address, control.Said(0, "first"))
    assert said(there, 1) == ["first"]
    there.close()
    waiting = sender._waiting[address]
    until = time.monotonic() + 10
    while not waiting and time.monotonic() < until:
        sender.receive(1)
        sender.send(address, control.Said(0, "second"))
    sender.hang_up(address)
    sender.may_be_gone(address)
    sender.send(address, control.Said(0, "third"))
    again = Endpoint(TOKEN)
    try:
        again.bind(address)
        found: list[str] = []
        until = time.monotonic() + 10
        while not {"second", "third"} <= set(found) and time.monotonic() < until:
            found += said(again, 1, 0.1)
        assert set(found) == {"second", "third"}
    finally:
        again.close()


def test_what_is_fleeting_waits_for_nobody(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/there"
    beating, there = Endpoint(TOKEN, fleeting=True), Endpoint(TOKEN)
    try:
        for _ in range(1000):
            beating.send(address, control.Said(0, "early"))
        there.bind(address)
        found: list[str] = []
        until = time.monotonic() + 10
        while not found and time.monotonic() < until:
            beating.send(address, control.Said(0, "now"))
            found = said(there, 1, 0.02)
        assert set(found) == {"now"}
    finally:
        beating.close()
        there.close()


def test_last_words_reach_who_is_just_being_connected_to(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/there"
    there, dying = Endpoint(TOKEN), Endpoint(TOKEN)
    there.bind(address)
    dying.may_be_gone(address)
    dying.send(address, control.Said(0, "why"))
    dying.close(2000)
    try:
        assert said(there, 1) == ["why"]
    finally:
        there.close()
