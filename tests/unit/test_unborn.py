"""A PCS is killed after it has told everybody that it takes a replica over, and before it has started it: the PCS that
is started in its place does."""

from __future__ import annotations

from pathlib import Path

import pytest

from dadstorm.core.messages import Down, Peer
from dadstorm.wire import control
from pcs.line import Fork, Kill
from tests.unit.run_kit import Host, Killed, planned

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
TOPOLOGY = f"""
hosts: {{a: "{A}", b: "{B}", c: "{C}"}}
sources: {{numbers: {{generate: {{n: counter}}, count: 5, on: a}}}}
operators: {{ring: {{input: numbers, dup: , replicas: 3, on: [a, b, c]}}}}
sinks: {{out: {{input: ring, csv: x.csv, on: c}}}}
"""
SOURCE, OURS_AT_A, OURS = Peer(0, 0), Peer(1, 0), Peer(1, 1)
A_IS_LOST = (control.Present(C, (A,)), control.Pulse(B, 0, "", (A,)))


def killed(fork: Fork) -> None:
    raise Killed


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """That of b, when a is lost."""
    host = Host(planned(tmp_path, TOPOLOGY), B, monkeypatch)
    host.start()
    host.pass_time(3, *A_IS_LOST)
    host.wire.sent.clear()
    return host


def announced(host: Host, peer: Peer) -> control.Moved:
    moved = [message for message in host.wire.to(f"tcp://{C}", control.Moved) if Peer(*message_peer(message)) == peer]
    assert moved and moved[-1].host == B
    return moved[-1]


def message_peer(message: control.Moved) -> tuple[int, int]:
    return message.operator, message.replica


def die_in_takeover(host: Host, peer: Peer) -> control.Moved:
    """b is asked to take a replica over, says that it does, and is killed."""
    host.on_fork = killed
    with pytest.raises(Killed):
        host.hear(control.TakeOver(*peer, 0))
    moved = announced(host, peer)
    host.forks.clear()
    host.wire.sent.clear()
    host.on_fork = host.forked
    return moved


def test_one_that_has_a_ring_is_brought_back_as_any_that_died(host: Host) -> None:
    moved = die_in_takeover(host, OURS_AT_A)
    host.killed()
    assert {message for _, message in host.wire.sent if isinstance(message, Down)} == {
        Down(*OURS_AT_A, moved.incarnation)
    }
    host.hear(control.Respawn(*OURS_AT_A, moved.incarnation + 1))
    (fork,) = host.forks
    assert (fork.operator, fork.replica) == OURS_AT_A and fork.incarnation > moved.incarnation
    assert fork.bind == moved.address and fork.resume is not None
    host.pass_time(3, *A_IS_LOST)
    assert len(host.forks) == 1


def test_one_that_nobody_asks_for_is_started_at_once(host: Host) -> None:
    moved = die_in_takeover(host, SOURCE)
    host.killed()
    (fork,) = host.forks_of(SOURCE)
    assert fork.incarnation > moved.incarnation and fork.bind == moved.address
    assert not host.forks_of(OURS), "who lives is left alone"


def test_who_was_started_is_not_started_again(host: Host) -> None:
    host.hear(control.TakeOver(*OURS_AT_A, 0))
    assert len(host.forks_of(OURS_AT_A)) == 1
    host.forks.clear()
    host.killed()
    host.pass_time(3, *A_IS_LOST)
    assert not host.forks


def test_what_was_here_before_it_was_elsewhere_is_not_taken_for_it(host: Host) -> None:
    """c has taken a replica over from us, is lost, and we take it back: the process that we had is the old one."""
    host.hear(control.Moved(*OURS, 20, "tcp://127.0.0.1:77", f"tcp://{C}", C))
    before = host.kin[OURS]
    assert host.kills == [Kill(before.serial)]
    host.pass_time(3, control.Present(A, (C,)))
    moved = die_in_takeover_from_c(host)
    host.kills.clear()
    host.killed()
    assert host.kills == [Kill(before.serial)], "its end had not been told yet"
    host.hear(control.Respawn(*OURS, moved.incarnation + 1))
    (fork,) = host.forks_of(OURS)
    assert fork.incarnation > moved.incarnation and fork.bind == moved.address != before.bind


def die_in_takeover_from_c(host: Host) -> control.Moved:
    host.on_fork = killed
    with pytest.raises(Killed):
        host.hear(control.TakeOver(*OURS, 20))
    (moved,) = {m for m in host.wire.to(f"tcp://{A}", control.Moved) if message_peer(m) == OURS and m.host == B}
    host.forks.clear()
    host.on_fork = host.forked
    return moved
