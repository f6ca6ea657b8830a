"""The system will not have another process: an error when a run is set up, and in the middle of it something that may
pass, and is tried again; if it does not pass the run fails, and whoever comes later is told why."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dadstorm.core.messages import Down, Peer
from dadstorm.wire import control
from pcs.forks import PAUSES_S
from pcs.line import Fork
from tests.unit.run_kit import MASTER, TICK_S, Host, planned

A, B = "127.0.0.1:1", "127.0.0.1:2"
TOPOLOGY = f"""
hosts: {{a: "{A}", b: "{B}"}}
sources: {{numbers: {{generate: {{n: counter}}, count: 5, on: a}}}}
operators: {{ring: {{input: numbers, dup: , replicas: 2, on: [a, b]}}}}
sinks: {{out: {{input: ring, csv: x.csv, on: b}}}}
"""
ALONE, RING = Peer(0, 0), Peer(1, 0)
NEVER = PAUSES_S[-1] * 10


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(planned(tmp_path, TOPOLOGY), A, monkeypatch)


def test_a_fork_that_fails_when_a_run_is_set_up_is_told_at_once(host: Host) -> None:
    host.on_fork = host.not_forked
    host.hear(control.Spawn(*ALONE))
    (refused,) = host.wire.told
    assert isinstance(refused, control.Refused) and "temporarily unavailable" in refused.reason
    host.pass_time(NEVER)
    assert len(host.forks) == 1


@pytest.mark.parametrize("said", [(), (control.Respawn(*ALONE, 50),)])
def test_a_fork_that_fails_in_a_recovery_is_tried_again_after_pauses(host: Host, said: tuple[control.Respawn]) -> None:
    """Whoever asks sooner asks in vain."""
    tried: list[float] = []

    def refuse(fork: Fork) -> None:
        tried.append(host.now)
        host.not_forked(fork)

    host.start()
    host.on_fork = refuse
    host.die(ALONE)
    host.pass_time(2, *said)
    pauses = [after - before for before, after in itertools.pairwise(tried)]
    assert len(pauses) == 3 and all(0 <= is_ - s < 2 * TICK_S for is_, s in zip(pauses, PAUSES_S, strict=False))
    host.on_fork = host.forked
    host.pass_time(NEVER)
    numbers = [fork.incarnation for fork in host.forks_of(ALONE)]
    assert len(numbers) == 6 and numbers == sorted(set(numbers))
    resume = host.forks_of(ALONE)[-1].resume
    assert resume is not None and resume.detected_ms >= sum(PAUSES_S[:4]) * 1000, "it has been dead all the time"
    assert host.run.over is None and not [one for one in host.wire.told if isinstance(one, control.Refused)]
    host.on_fork = host.not_forked
    host.die(ALONE)
    host.pass_time(PAUSES_S[0] + TICK_S)
    assert len(host.forks_of(ALONE)) == 8, "what failed before does not count any more"


def test_a_fork_that_fails_again_and_again_fails_the_run_with_or_without_a_puppetmaster(host: Host) -> None:
    host.start()
    host.on_fork = host.not_forked
    host.die(ALONE)
    host.pass_time(sum(PAUSES_S) + len(PAUSES_S) * TICK_S)
    assert len(host.forks_of(ALONE)) == 1 + 1 + len(PAUSES_S)
    (failed,) = host.wire.to(MASTER, control.Failed)
    assert "numbers replica 0 cannot be brought back on 127.0.0.1:1: no process for it" in failed.text
    assert "tried 6 times within 5 s" in failed.text
    assert failed.text in str(host.run.over), "without a PuppetMaster it ends by itself"
    host.wire.told.clear()
    host.hear(control.Pulse(A, 1, "tcp://127.0.0.1:10002"))
    assert failed in host.wire.told, "who attaches is told"
    host.pass_time(NEVER)
    assert len(host.forks_of(ALONE)) == 7


def test_the_ring_asks_again_for_one_that_could_not_be_forked(host: Host) -> None:
    host.start()
    host.on_fork = host.not_forked
    host.die(RING)
    host.hear(control.Respawn(*RING, 1))
    assert len(host.forks_of(RING)) == 2
    host.wire.sent.clear()
    host.pass_time(0.1)
    assert not [message for _, message in host.wire.sent if isinstance(message, Down)]
    host.pass_time(PAUSES_S[0])
    downs = [message for _, message in host.wire.sent if isinstance(message, Down)]
    assert downs and downs[0].incarnation == host.forks_of(RING)[-1].incarnation
    host.on_fork = host.forked
    host.hear(control.Respawn(*RING, downs[0].incarnation + 1))
    assert len(host.forks_of(RING)) == 3


def test_a_fork_that_fails_of_one_that_lives_elsewhere_by_then_is_nothing(host: Host) -> None:
    host.start()
    host.on_fork = lambda fork: None
    host.die(RING)
    host.hear(control.Respawn(*RING, 1))
    host.hear(control.Moved(*RING, 99, "tcp://127.0.0.1:77", f"tcp://{B}", B))
    host.wire.told.clear()
    host.not_forked(host.forks_of(RING)[-1])
    host.pass_time(NEVER)
    assert len(host.forks_of(RING)) == 2 and host.run.over is None
    assert not [message for message in host.wire.told if isinstance(message, control.Refused)]
