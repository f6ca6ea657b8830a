"""Lost hosts, as the PuppetMaster sees them: how long others may take to take over, each time anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from dadstorm.core.messages import Peer
from dadstorm.errors import RunFailed
from puppetmaster.losses import TAKEOVER_PATIENCE_S, Losses
from tests.unit.run_kit import planned

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
TOPOLOGY = f"""
hosts: {{a: "{A}", b: "{B}", c: "{C}"}}
sources: {{numbers: {{generate: {{n: counter}}, count: 5, on: a}}}}
operators: {{ring: {{input: numbers, dup: , replicas: 2, on: [b, c]}}}}
sinks: {{out: {{input: ring, csv: x.csv, on: c}}}}
"""
SILENT_S = 10.5


class Silence:
    """Of host a, which has the source, and others could read that again."""

    def __init__(self, folder: Path) -> None:
        plan = planned(folder, TOPOLOGY)
        self.where = {Peer(i, n): one.host for i, op in enumerate(plan.operators) for n, one in enumerate(op.replicas)}
        self.losses = Losses(plan)

    def lasts(self, since: float, until: float) -> list[bool]:
        """Told every second, when it has lasted long enough: each time whether that was news."""
        first, last = round(since + SILENT_S + 0.5), round(until)
        return [self.losses.lost(A, self.where, (), now, now - since) for now in range(first, last + 1)]


def test_a_loss_is_told_once_and_nobody_has_to_hurry(tmp_path: Path) -> None:
    news = Silence(tmp_path).lasts(100, 100 + SILENT_S + TAKEOVER_PATIENCE_S)
    assert news[0] and not any(news[1:])


def test_what_nobody_takes_over_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no other host has taken over numbers 0"):
        Silence(tmp_path).lasts(100, 102 + SILENT_S + TAKEOVER_PATIENCE_S)


@pytest.mark.parametrize("back", [120.0, 150.0, 400.0])
def test_a_host_that_is_lost_a_second_time_is_lost_anew(tmp_path: Path, back: float) -> None:
    silence = Silence(tmp_path)
    assert silence.lasts(100, min(back, 130))[0]
    again = silence.lasts(back, back + SILENT_S + TAKEOVER_PATIENCE_S)
    assert again[0] and not any(again[1:])
    with pytest.raises(RunFailed, match="no other host has taken over numbers 0"):
        silence.lasts(back, back + 2 + SILENT_S + TAKEOVER_PATIENCE_S)
