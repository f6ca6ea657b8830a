"""What an experimenter does to networks and hosts: slow replicas, partitions, hosts that are killed. Whatever it is,
the output does not change by a byte."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from kit import Outcome, scripted, until
from pcs_kit import Site, pcs

pytestmark = pytest.mark.cluster

ENDLESS = """\
suspect_after: 20s
snapshot_every: 100ms
sources: {numbers: {generate: {n: counter}, rate: 2000}}
operators:
  pass: {input: numbers, dup: , replicas: 2, routing: random}
  count: {input: pass, count: , replicas: 2}
"""


def is_right(outcome: Outcome) -> None:
    counts = outcome.ok().files["count.csv"].split()
    assert len(counts) > 100 and counts == [b"%d" % n for n in range(1, len(counts) + 1)]


def frontiers(outcome: Outcome, operator: str) -> list[int]:
    """How far the slowest slice of an operator was at each Status."""
    found = []
    for line in outcome.out.splitlines():
        if line.startswith("[{"):
            rows = [row for row in json.loads(line) if row["operator"] == operator and row["slices"]]
            found.append(min(row["frontier"] for row in rows))
    return found


def test_a_partition_holds_the_stream_until_it_is_healed(tmp_path: Path) -> None:
    status = "Status --json"
    lines = ["Start", "Wait 500", "Partition pass/1 count", "Wait 300", status, "Wait 400", status, "Heal"]
    outcome = scripted(tmp_path, ENDLESS, *lines, "Wait 2500", status, "Stop")
    is_right(outcome)
    first, second, healed = frontiers(outcome, "count")
    assert 0 < first == second < healed
    log = (tmp_path / "runs" / "t-1" / "events.log").read_text()
    assert " Partition pass/1 count\n" in log and " Heal\n" in log


def test_who_is_brought_back_is_cut_off_as_before(tmp_path: Path) -> None:
    status = "Status --json"
    lines = ["Start", "Wait 400", "Partition pass/1 count", "Crash pass 1", "Wait 600", status, "Wait 300", status]
    outcome = scripted(tmp_path, ENDLESS, *lines, "Heal", "Stop")
    is_right(outcome)
    first, second = frontiers(outcome, "count")
    assert 0 < first == second


def test_a_slow_replica_changes_nothing_but_the_time(tmp_path: Path) -> None:
    """It stays slow when it is brought back: it is its network that is slow."""
    text = ENDLESS.replace("rate: 2000", "count: 2000")
    outcome = scripted(tmp_path, text, "Slow pass 0 300", "Start", "Wait 200", "Crash pass 0", "Wait 800", "Status")
    is_right(outcome)
    assert outcome.seconds > 1.2, "to attach, to send and to hear that it is safe takes a message each"


def test_slow_0_ends_it_at_once(tmp_path: Path) -> None:
    text = ENDLESS.replace("rate: 2000", "count: 2000")
    outcome = scripted(tmp_path, text, "Slow pass 0 1000000", "Start", "Wait 300", "Status --json", "Slow pass 0 0")
    is_right(outcome)
    assert frontiers(outcome, "count") == [0]


def test_a_killed_host_is_gone_with_all_its_replicas(tmp_path: Path) -> None:
    with (
        pcs(tmp_path / "a", site=Site("127.0.0.2")) as (_, a),
        pcs(tmp_path / "b", site=Site("127.0.0.3")) as (daemon, b),
    ):
        hosts = f"hosts: {{a: '{a}', b: '{b}'}}\n"
        text = hosts + ENDLESS.replace("count: ,", "count: , on: [a, b],")
        outcome = scripted(tmp_path, text, "Start", "Wait 300", "kill B", "Wait 500", "Exit")
        until(lambda: daemon.process.poll() is not None, "the PCS is gone", 5)
        assert daemon.process.returncode == -signal.SIGKILL
    assert outcome.code == 0, outcome.err
    assert " Kill b\n" in (tmp_path / "runs" / "t-1" / "events.log").read_text()


def test_the_host_of_the_puppetmaster_is_not_killed(tmp_path: Path) -> None:
    outcome = scripted(tmp_path, ENDLESS, "Start", "Kill localhost", "Stop")
    assert outcome.code == 2
    assert "script.txt:2: Kill: the PCS of localhost is part of the PuppetMaster" in outcome.err
