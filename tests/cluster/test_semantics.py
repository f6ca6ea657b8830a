"""The three promises, kept under kill -9: exactly once, at least once, at most once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.kit import run

pytestmark = pytest.mark.cluster

COUNT = 3000
TOPOLOGY = """\
name: promise
semantics: {semantics}
recovery: {recovery}
snapshot_every: 300ms
sources:
  numbers: {{generate: {{n: counter, text: {{words: 2}}}}, count: {count}, rate: 1200, replicas: 2}}
operators:
  some:  {{input: numbers, filter: n >= 10, replicas: 2, slices: 4, routing: random}}
  words: {{input: some, split: text, replicas: 2, slices: 2, routing: random}}
script: [Start, Wait 800, Crash some 0, Wait 500, Crash words 1, Wait 500, Crash numbers 0, Wait 300, Crash some 1]
"""


def written(folder: Path, semantics: str, recovery: str) -> tuple[list[str], list[str]]:
    """What an undisturbed run writes, and what one writes whose replicas are killed."""
    text = TOPOLOGY.format(semantics=semantics, recovery=recovery, count=COUNT)
    calm, script = text.split("script: ")
    assert script
    (folder / "calm.yaml").write_text(calm.replace("rate: 1200", "rate: 1000000"))
    (folder / "promise.yaml").write_text(text)
    run("run", "calm.yaml", "--out", "calm", cwd=folder).ok()
    run("run", "promise.yaml", "--out", "killed", cwd=folder).ok()
    calm_lines, killed_lines = ((folder / out / "words.csv").read_text().splitlines() for out in ("calm", "killed"))
    return calm_lines, killed_lines


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
def test_at_least_once_loses_nothing_and_shows_what_was_done_again(tmp_path: Path, recovery: str) -> None:
    wanted, got = written(tmp_path, "at-least-once", recovery)
    assert set(got) == set(wanted), "every tuple, and none that there is not"
    assert len(got) > len(wanted), "what was done again is there again"


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
def test_at_most_once_goes_on_around_what_is_lost(tmp_path: Path, recovery: str) -> None:
    wanted, got = written(tmp_path, "at-most-once", recovery)
    left = iter(wanted)
    assert all(line in left for line in got), "no tuple twice, all in order"
    assert len(got) < len(wanted), "somebody was killed, and nothing is kept"
    assert len(got) > len(wanted) / 3 and got[-1] == wanted[-1], "the stream goes on to its end"
