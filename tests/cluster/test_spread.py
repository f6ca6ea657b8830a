"""``recovery: spread``: whoever is killed is not started again; its peers adopt its slices, and no byte changes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from kit import run, running, until
from pcs_kit import Site, pcs

from tests.cluster.test_crash import KEYED, TOTALS, undisturbed
from tests.cluster.test_script import events

pytestmark = pytest.mark.cluster

SPREAD = KEYED.replace("replicas: 2", "replicas: 3") + "recovery: spread\nsnapshot_every: 200ms\n"


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return undisturbed(made(tmp_path_factory.mktemp("undisturbed")))


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(tmp_path: Path) -> Path:
    (tmp_path / "totals.py").write_text(TOTALS)
    path = tmp_path / "spread.yaml"
    path.write_text(SPREAD)
    return path


def crashes(*victims: str, wait_ms: int = 700) -> str:
    """A script that kills these one after the other; two that stand together, at once."""
    lines = ["Start", "Wait 1000"]
    for victim in victims:
        lines += [f"Crash {one}" for one in victim.split(", ")]
        lines.append(f"Wait {wait_ms}")
    return "\n".join([*lines, ""])


def disturbed(path: Path, script: str) -> dict[str, bytes]:
    (path.parent / "crash.txt").write_text(script)
    return run("run", path.name, "--script", "crash.txt", cwd=path.parent).ok().files


def told(path: Path) -> list[str]:
    return [text for _, text in events(path.parent, "spread")]


def test_the_living_adopt_the_slices_of_the_dead(keyed: Path, wanted: dict[str, bytes]) -> None:
    victims = ["orders 0", "cheap 1", "totals 1", "sales 0", "buyers 2"]
    assert disturbed(keyed, crashes(*victims)) == wanted
    log = told(keyed)
    assert [" ".join(text.split()[1:3]) for text in log if text.startswith("spread ")] == victims
    assert {" ".join(text.split()[1:3]) for text in log if text.startswith("recovered ")} == set(victims)
    assert not [text for text in log if "incarnation" in text], "nobody was started again"


def test_two_of_three_at_once_and_an_adopter_after_the_adoption(keyed: Path, wanted: dict[str, bytes]) -> None:
    assert disturbed(keyed, crashes("totals 0, totals 1", "sales 2", "sales 0", "orders 0, buyers 1")) == wanted


def test_the_last_of_a_ring_is_started_again_and_has_everything(keyed: Path, wanted: dict[str, bytes]) -> None:
    """With nobody left to adopt them, the slices are resumed from the copies that the PCS has held for the last one."""
    assert disturbed(keyed, crashes("totals 0", "totals 1", "totals 2", "all 0")) == wanted
    assert [text for text in told(keyed) if text.startswith("recovered totals 2 ") and "incarnation" in text]


ADOPTERS = """
hosts: {hosts}
recovery: spread
suspect_after: 3s
snapshot_every: 200ms
sources:
  numbers: {{generate: {{n: counter, k: {{int: [0, 50]}}}}, count: 24000, rate: {rate}}}
operators:
  counts: {{input: numbers, count: k, replicas: 3, slices: 6, on: [a, b, a]}}
"""


def test_an_adopter_on_another_host_dies_before_it_hears_of_it(tmp_path: Path) -> None:
    """The PCS there does not know what it was to have; the one that has shared it out does so again."""
    with (
        pcs(tmp_path / "a", site=Site("127.0.0.2")) as (_, a),
        pcs(tmp_path / "b", site=Site("127.0.0.3")) as (_, b),
    ):
        (tmp_path / "spread.yaml").write_text(ADOPTERS.format(hosts=f"{{a: {a}, b: {b}}}", rate=4000))
        with running("run", "spread.yaml", cwd=tmp_path) as command:
            output = tmp_path / "out" / "counts.csv"
            until(lambda: output.exists() and output.stat().st_size > 0, "rows come out")
            log = tmp_path / "runs" / "spread-1" / "events.log"
            pids = dict(re.findall(r" up counts (\d) at \S+, process (\d+)", log.read_text()))
            os.kill(int(pids["1"]), signal.SIGSTOP)
            os.kill(int(pids["0"]), signal.SIGKILL)
            until(lambda: " spread counts 0 " in log.read_text(), "its slices are shared out")
            os.kill(int(pids["1"]), signal.SIGKILL)
            outcome = command.ended(60).ok()
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "spread.yaml").write_text(
        re.sub(r"hosts: .*\n|, on: \[.*?\]", "", ADOPTERS.format(hosts="", rate=1_000_000))
    )
    assert run("run", "spread.yaml", cwd=tmp_path / "alone").ok().files == outcome.files
