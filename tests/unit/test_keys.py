"""Keys: made for one alone, refused if others could have them, and without the right ones nobody gets a word in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dadstorm.errors import UserError
from dadstorm.wire import control, keys
from dadstorm.wire.address import is_loopback, is_tcp
from dadstorm.wire.endpoint import Endpoint

TOKEN = b"T" * 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.make(str(tmp_path / "keys"))
    return tmp_path / "keys"


def problem(folder: Path) -> str:
    with pytest.raises(UserError) as told:
        keys.load(str(folder))
    return str(told.value)


def test_a_set_is_for_its_owner_alone(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "server.key": 0o600,
        "client.key": 0o600,
    }


def test_two_sets_differ_and_a_set_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    keys.make(str(tmp_path / "others"))
    ours, others = keys.load(str(folder)), keys.load(str(tmp_path / "others"))
    assert len({ours.server_secret, ours.client_secret, others.server_secret, others.client_secret}) == 4
    with pytest.raises(UserError, match="has keys already"):
        keys.make(str(folder))
    assert keys.load(str(folder)) == ours


def test_secrets_are_not_shown(folder: Path) -> None:
    ours = keys.load(str(folder))
    assert ours.server_secret.decode() not in repr(ours)
    assert ours.client_secret.decode() not in repr(ours)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o666])
def test_a_key_that_others_can_get_at_is_refused(folder: Path, mode: int) -> None:
    os.chmod(folder / "client.key", mode)
    assert f"client.key is readable for others (mode {mode:o})" in problem(folder)


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    os.chmod(folder, 0o770)
    assert "is writable for others" in problem(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder / "server.key", 12345, -1)
    assert "server.key belongs to another user" in problem(folder)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 41, b"\0" * 40, b"a" * 40 + b"\n" + b"b" * 40, b"\xff" * 40])
def test_what_is_no_key_is_refused(folder: Path, content: bytes) -> None:
    (folder / "server.key").write_bytes(content)
    assert "server.key is no key" in problem(folder)


def test_everything_wrong_with_a_set_is_told_at_once(folder: Path) -> None:
    (folder / "server.key").unlink()
    os.chmod(folder / "client.key", 0o644)
    assert "server.key cannot be read" in problem(folder)
    assert "client.key is readable" in problem(folder)
    assert "dadstorm keys" in problem(folder / "nowhere")


@pytest.fixture
def ours(folder: Path) -> keys.Keys:
    return keys.load(str(folder))


@pytest.fixture
def listener(ours: keys.Keys) -> Iterator[tuple[Endpoint, str]]:
    endpoint = Endpoint(TOKEN, keys=ours)
    yield endpoint, endpoint.bind("tcp://127.0.0.1:0")
    endpoint.close()


def heard(listener: Endpoint, address: str, own: keys.Keys | None, rounds: int) -> bool:
    """Whether somebody with these keys is heard within so many rounds of 50 ms."""
    speaker = Endpoint(TOKEN, keys=own)
    try:
        speaker.send(address, control.Start())
        return any(listener.receive(50)[0] for _ in range(rounds))
    finally:
        speaker.close()


def test_only_members_are_heard(listener: tuple[Endpoint, str], ours: keys.Keys, tmp_path: Path) -> None:
    keys.make(str(tmp_path / "others"))
    others = keys.load(str(tmp_path / "others"))
    stolen_public = replace(ours, client_public=others.client_public, client_secret=others.client_secret)
    for impostor in (None, others, stolen_public):
        assert not heard(*listener, impostor, 10)
    assert heard(*listener, ours, 200)


def test_a_member_does_not_talk_to_who_has_no_keys(ours: keys.Keys) -> None:
    trap = Endpoint(TOKEN)
    try:
        assert not heard(trap, trap.bind("tcp://127.0.0.1:0"), ours, 10)
    finally:
        trap.close()


def test_without_keys_nothing_but_the_loopback_is_listened_on_or_gone_to() -> None:
    endpoint = Endpoint(TOKEN)
    try:
        for address in ("tcp://0.0.0.0:0", "tcp://192.0.2.1:0"):
            with pytest.raises(UserError, match=r"without keys nothing listens on .* `dadstorm keys DIR`"):
                endpoint.bind(address)
        endpoint.send("tcp://192.0.2.1:9", control.Start())
        assert endpoint.dropped == 1
        assert endpoint.bind("tcp://127.0.0.2:0").startswith("tcp://127.0.0.2:")
    finally:
        endpoint.close()


def test_what_is_loopback_and_what_is_an_address() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "", "no such host.invalid")] == [False] * 5
    assert [is_tcp(text) for text in ("tcp://a:1", "tcp://[::1]:10000")] == [True, True]
    assert not any(
        is_tcp(text) for text in ("tcp://a", "tcp://a:99999", "tcp://a b:1", "tcp://a:1\n", "ipc://x", "a:1")
    )
