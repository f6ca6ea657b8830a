"""Scripts on real processes: what each command does to a run, and what stands in the event log afterwards."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from tests.cluster.kit import free_port, run, scripted
from tests.unit.legacy_kit import LEGACY

pytestmark = pytest.mark.cluster

NUMBERS = """\
sources: {numbers: {generate: {n: counter}, count: 300}}
operators:
  pass: {input: numbers, dup: , replicas: 2, routing: random}
  count: {input: pass, count: }
"""
COUNTED = "".join(f"{n}\n" for n in range(1, 301)).encode()
ENDLESS = "sources: {numbers: {generate: {n: counter}, rate: 1000}}\noperators: {count: {input: numbers, count: }}\n"


def events(folder: Path, run_name: str) -> list[tuple[float, str]]:
    """The event log of a run's only try: seconds, and what happened."""
    lines = (folder / "runs" / f"{run_name}-1" / "events.log").read_text().splitlines()
    found = [line.split(" ", 1) for line in lines]
    return [(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp(), text) for time, text in found]


def commands(log: list[tuple[float, str]]) -> list[str]:
    return [text for _, text in log if text[0].isupper()]


def at(log: list[tuple[float, str]], text: str) -> float:
    """When something happened first."""
    return next(time for time, found in log if found.startswith(text))


def tables(out: str) -> list[dict[tuple[str, str], list[str]]]:
    """The Status tables in an output: per operator and replica, its cells."""
    found: list[dict[tuple[str, str], list[str]]] = []
    for line in out.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[:2] == ["operator", "replica"]:
            found.append({})
        elif found and len(cells) == 13:
            found[-1][cells[0], cells[1]] = cells
    return found


# -- the original language -------------------------------------------------------------------------------------------


@pytest.fixture
def reach(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    """The reach of a URL in the original language, in a folder of its own, on free ports, every tuple logged."""
    shutil.copytree(LEGACY, tmp_path, dirs_exist_ok=True)
    ports: dict[str, int] = {}
    path = tmp_path / "reach.config"
    text = re.sub(
        r"(tcp://localhost:)(\d+)",
        lambda found: f"{found[1]}{ports.setdefault(found[2], free_port())}",
        path.read_text().replace("LoggingLevel light", "LoggingLevel full"),
    )
    path.write_text(text.replace("Wait 200", "Wait 800\nStatus\nWait 400"))
    return tmp_path, ports


def test_the_reach_of_a_url_with_a_frozen_replica(reach: tuple[Path, dict[str, int]]) -> None:
    folder, ports = reach
    outcome = run("run", "reach.config", cwd=folder).ok()
    assert outcome.files == {"OP4.csv": b"".join(b"%d\n" % n for n in range(1, 8))}
    log = events(folder, "reach")
    assert [time for time, _ in log] == sorted(time for time, _ in log)
    script = [
        "Start OP1", "Start OP2", "Start OP3", "Start OP4", "Status", "Interval OP1 10", "Freeze OP2 1", "Wait 800",
        "Status", "Wait 400", "Unfreeze OP2 1", "Status",
    ]  # fmt: skip
    assert commands(log) == script
    assert at(log, "Unfreeze OP2 1") - at(log, "Freeze OP2 1") >= 0.8
    counts = [text for _, text in log if text.startswith(f"tuple tcp://127.0.0.1:{ports['11007']}/op")]
    assert counts == [f"tuple tcp://127.0.0.1:{ports['11007']}/op, <{n}>" for n in range(1, 8)]
    frozen = [time for time, text in log if text.startswith(f"tuple tcp://127.0.0.1:{ports['11004']}/op, ")]
    assert frozen and min(frozen) > at(log, "Unfreeze OP2 1"), "a frozen replica emitted something, or never thawed"
    before, during, _ = tables(outcome.out)
    assert before["OP2", "1"][4] in ("running", "waiting")
    assert during["OP2", "1"][4] == "frozen" and int(during["OP2", "1"][10]) > 0, "it should hold what it received"
    assert during["OP4", "0"][7] == "0", "the stream should stand still behind a frozen replica"


def test_old_files_are_checked_and_converted_as_they_are(reach: tuple[Path, dict[str, int]]) -> None:
    folder, _ = reach
    assert "script: 12 commands" in run("check", "reach.config", cwd=folder).ok().out
    converted = run("convert", "reach.config", cwd=folder).ok().out
    (folder / "new.yaml").write_text(converted)
    outcome = run("run", "new.yaml", cwd=folder).ok()
    assert outcome.files["OP4.csv"] == b"".join(b"%d\n" % n for n in range(1, 8))
    assert commands(events(folder, "new"))[:2] == ["Start OP1", "Start OP2"]


def test_what_is_no_old_file_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(NUMBERS)
    outcome = run("convert", "t.yaml", cwd=tmp_path)
    assert outcome.code == 2 and "not in the original language" in outcome.err


# -- commands --------------------------------------------------------------------------------------------------------


def test_nothing_is_done_before_the_start_and_a_frozen_replica_loses_nothing(tmp_path: Path) -> None:
    outcome = scripted(
        tmp_path, NUMBERS, "Freeze pass 1", "Start pass", "Wait 500", "Status --json", "Start count", "Unfreeze pass 1"
    )
    assert outcome.ok().files == {"count.csv": COUNTED}
    shown = {(row["operator"], row["replica"]): row for row in json.loads(outcome.out.splitlines()[0])}
    assert shown["pass", 1]["state"] == "frozen" and shown["pass", 1]["queued"] > 0
    assert shown["pass", 0]["state"] == "running" and shown["pass", 0]["rows_out"] > 0
    assert shown["count", 0]["state"] == "waiting" and shown["count", 0]["rows_in"] == 0
    assert shown["count", 0]["queued"] > 0, "what reaches an operator that was not started waits there"


def test_an_interval_separates_consecutive_tuples(tmp_path: Path) -> None:
    text = "logging: full\n" + NUMBERS.replace("300", "20")
    scripted(tmp_path, text, "Interval count 20", "Start").ok()
    log = events(tmp_path, "t")
    address = next(text.split()[4].rstrip(",") for _, text in log if text.startswith("up count 0 at "))
    assert sum(text.startswith(f"tuple {address}") for _, text in log) == 20
    assert at(log, "finished count 0") - at(log, "Start") >= 19 * 0.02


def test_an_interval_of_nothing_ends_it(tmp_path: Path) -> None:
    lines = ["Interval numbers 100000", "Start", "Wait 300", "Status --json", "Interval numbers 0"]
    outcome = scripted(tmp_path, NUMBERS, *lines)
    assert outcome.ok().files == {"count.csv": COUNTED}
    shown = {(row["operator"], row["replica"]): row for row in json.loads(outcome.out.splitlines()[0])}
    assert shown["numbers", 0]["rows_out"] == 1


def test_stop_drains(tmp_path: Path) -> None:
    outcome = scripted(tmp_path, ENDLESS, "Start", "Wait 400", "Stop").ok()
    counts = outcome.files["count.csv"].split()
    assert counts and counts == [b"%d" % n for n in range(1, len(counts) + 1)]
    assert any(text == "finished count 0" for _, text in events(tmp_path, "t"))


def test_exit_ends_at_once_whatever_is_frozen_or_waiting(tmp_path: Path) -> None:
    outcome = scripted(tmp_path, ENDLESS, "Freeze count 0", "Start numbers", "Exit").ok()
    assert outcome.files.get("count.csv", b"") == b""
    assert commands(events(tmp_path, "t")) == ["Freeze count 0", "Start numbers", "Exit"]


def test_a_script_in_the_topology(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(NUMBERS + "script: [start numbers, START pass, Start count, wait 10]\n")
    assert run("run", "t.yaml", cwd=tmp_path).ok().files == {"count.csv": COUNTED}
    assert commands(events(tmp_path, "t")) == ["Start numbers", "Start pass", "Start count", "Wait 10"]


def test_a_run_without_a_script_starts_all(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(NUMBERS)
    run("run", "t.yaml", cwd=tmp_path).ok()
    log = events(tmp_path, "t")
    assert commands(log) == ["Start"]
    assert sum(text.startswith("finished ") for _, text in log) == 5 and log[-1][1] == "ended"
    assert not any(text.startswith("tuple") for _, text in log), "tuples are logged with logging: full only"


@pytest.mark.parametrize(
    "lines, message",
    [
        (["Start", "", "Frezze pass 1"], 'script.txt:3:1: unknown command "Frezze"'),
        (["Start", "Freeze pass 7", "Unfreeze pass 1"], "script.txt:2:1: Freeze: pass has no replica 7"),
        (["Start", "Exit now"], 'script.txt:2: Exit: found "now"'),
        (["Start pass"], "count is never started"),
        (["Start", "Freeze pass 0"], "script.txt:2: pass 0 stays frozen"),
    ],
)
def test_a_wrong_script_is_refused_before_anything_runs(lines: list[str], message: str, tmp_path: Path) -> None:
    outcome = scripted(tmp_path, NUMBERS, *lines)
    assert outcome.code == 2 and message in outcome.err
    assert not (tmp_path / "runs").exists() and outcome.files == {}
