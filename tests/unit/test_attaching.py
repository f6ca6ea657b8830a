"""A PuppetMaster that attaches itself while a host is cut off from the others, but not from it: the newest view of each
replica holds, in whatever order they come, and what was wrong is corrected later."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from dadstorm.core.messages import Peer
from dadstorm.wire import control
from puppetmaster import views
from puppetmaster.deployment import Deployment
from tests.unit.run_kit import planned

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
TOPOLOGY = f"""
hosts: {{a: "{A}", b: "{B}", c: "{C}"}}
sources: {{numbers: {{generate: {{n: counter}}, count: 5, on: c}}}}
operators: {{ring: {{input: numbers, dup: , replicas: 2, on: [a, b]}}}}
sinks: {{out: {{input: ring, csv: x.csv, on: c}}}}
"""
ONE = Peer(1, 0)
OLD, NEW, OTHER = "tcp://127.0.0.1:70", "tcp://127.0.0.1:90", "tcp://127.0.0.1:80"
BEFORE = (("tcp://127.0.0.1:60",), (OLD, OTHER), ("tcp://127.0.0.1:61",))
AFTER = (("tcp://127.0.0.1:60",), (NEW, OTHER), ("tcp://127.0.0.1:61",))
MOVED = control.Moved(*ONE, 26, NEW, f"tcp://{C}", C)


def view(host: str, directory: tuple[tuple[str, ...], ...], *replicas: tuple[int, int, int, int]) -> control.Shown:
    news = control.News(f"tcp://{host}", directory, (), (0, 1, 2), (), False, ())
    return control.Shown(host, 0, b"", control.Shake(), news, tuple(control.ReplicaHere(*one) for one in replicas))


CUT_OFF = view(A, BEFORE, (1, 0, 0, 400))
KNOWS = view(B, AFTER, (1, 1, 0, 300))
HAS_IT = view(C, AFTER, (0, 0, 0, 100), (1, 0, 26, 200), (2, 0, 0, 101))


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, address: str, message: Any) -> None:
        self.sent.append((address, message))

    def drop(self, reason: str) -> None:
        raise AssertionError(reason)


class Pcss:
    """The PCSs, who say nothing."""

    reign = 1

    def __init__(self) -> None:
        self.logs: set[tuple[str, str]] = set()

    def has_moved(self, host: str, log_file: str) -> bool:
        self.logs.add((host, log_file))
        return True

    def on_message(self, message: Any) -> bool:
        return False


def attached(folder: Path, *shown: control.Shown) -> tuple[Deployment, list[str]]:
    events: list[str] = []
    deployment = Deployment(
        planned(folder, TOPOLOGY),
        Wire(),  # type: ignore[arg-type]
        Pcss(),  # type: ignore[arg-type]
        str(folder),
        print,
        control.Shake(),
        observe=events.append,
    )
    deployment.attach(shown, "tcp://127.0.0.1:5")
    return deployment, events


def masters(deployment: Deployment) -> set[str]:
    """Who is told that we are the PuppetMaster."""
    wire: Any = deployment.endpoint
    wire.sent.clear()
    deployment._next_claim = 0.0
    deployment._claim()
    return {address for address, message in wire.sent if isinstance(message, control.Master)}


@pytest.mark.parametrize("shown", [*itertools.permutations([CUT_OFF, KNOWS, HAS_IT])])
def test_the_newest_incarnation_wins_and_its_pcs_knows_its_address(
    tmp_path: Path, shown: tuple[control.Shown, ...]
) -> None:
    deployment, _ = attached(tmp_path, *shown)
    replica = deployment.replicas[ONE]
    assert (replica.host, replica.address, replica.incarnation, replica.pid) == (C, NEW, 26, 200)
    assert masters(deployment) == {address for ring in AFTER for address in ring}
    pcss: Any = deployment.hosts
    assert (C, "ring.0.log") in pcss.logs, "its log comes from there"


def test_what_nobody_has_who_answers_listens_where_most_say() -> None:
    silent = view(C, BEFORE, (0, 0, 0, 100))
    assert views.addresses([view(A, BEFORE), KNOWS, view(C, AFTER)]) == AFTER
    assert views.addresses([view(A, ()), KNOWS, silent, view("x", BEFORE)]) == BEFORE
    assert views.addresses([view(A, (), (1, 0, 3, 1)), KNOWS]) == AFTER
    assert views.addresses([view(A, ())]) == ()


def test_who_has_moved_is_found_when_its_pcs_is_heard_of_again(tmp_path: Path) -> None:
    deployment, events = attached(tmp_path, KNOWS, CUT_OFF)
    assert OLD in masters(deployment), "only the one who was cut off says that it has it"
    deployment._on_message(MOVED)
    assert NEW in masters(deployment) and OLD not in masters(deployment)
    assert events[-1] == f"moved ring 0 to {C}"


def test_an_address_that_was_wrong_is_corrected_though_the_host_was_right(tmp_path: Path) -> None:
    """Its PCS says again and again that it has taken the replica over."""
    deployment, events = attached(tmp_path, HAS_IT, KNOWS)
    replica = deployment.replicas[ONE]
    replica.address = OLD
    deployment._on_message(MOVED)
    assert (replica.host, replica.address, replica.alive, replica.pid) == (C, NEW, True, 200)
    assert not events, "nobody has died or moved"
    deployment._on_message(control.Moved(*ONE, 25, OLD, f"tcp://{A}", A))
    assert (replica.host, replica.address) == (C, NEW), "old news"


def test_who_is_asked_something_knows_by_then_whom_to_answer(tmp_path: Path) -> None:
    deployment, _ = attached(tmp_path, HAS_IT, KNOWS)
    deployment.ask()
    wire: Any = deployment.endpoint
    said = [type(message) for address, message in wire.sent if address == NEW]
    assert said == [control.Master, control.Look]
