"""Structured logs: JSON lines in files, text on a terminal, one log per process."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from dadstorm import logs

log = structlog.get_logger()


@pytest.fixture(autouse=True)
def defaults_again() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_gets_one_json_object_per_event(tmp_path: Path) -> None:
    file = tmp_path / "new" / "replica.log"
    logs.configure("replica count.0", str(file))
    log.info("resumed", slice=3, cut=1 << 40, name="é\n")
    log.bind(operator="count").warning("late", by_ms=1.5)
    first, second = lines(file)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("timestamp"))
    assert first == {
        "level": "info",
        "event": "resumed",
        "process": "replica count.0",
        "pid": os.getpid(),
        "slice": 3,
        "cut": 1 << 40,
        "name": "é\n",
    }
    assert (second["level"], second["operator"], second["by_ms"]) == ("warning", "count", 1.5)


def test_an_event_is_in_the_file_before_the_call_returns_and_logs_append(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for start in range(2):
        logs.configure("pcs", str(file))
        log.info("started", number=start)
        assert [line["number"] for line in lines(file)] == list(range(start + 1))


def test_events_below_the_level_are_not_written(tmp_path: Path) -> None:
    logs.configure("pcs", str(tmp_path / "log"), level="warning")
    log.debug("no")
    log.info("no")
    log.warning("yes")
    log.error("yes")
    assert [line["event"] for line in lines(tmp_path / "log")] == ["yes", "yes"]


def test_an_exception_brings_its_traceback(tmp_path: Path) -> None:
    logs.configure("pcs", str(tmp_path / "log"))
    try:
        raise ValueError("the cause")
    except ValueError:
        log.exception("broke")
    (line,) = lines(tmp_path / "log")
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: the cause")


@pytest.mark.parametrize("odd", [object(), {1: object()}, b"\xff", float("nan"), 1 << 80, "\ud800", {"a": {"\ud800"}}])
def test_anything_can_be_logged(tmp_path: Path, odd: object) -> None:
    logs.configure("pcs", str(tmp_path / "log"))
    log.info("odd", value=odd)
    assert len(lines(tmp_path / "log")) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    logs.configure("pcs", "/dev/full")
    log.info("lost")


def test_configuring_anew_moves_existing_loggers_to_the_new_file(tmp_path: Path) -> None:
    """What a forked process relies on: it logs to its own file from then on."""
    logs.configure("zygote", str(tmp_path / "a"))
    log.info("one")
    logs.configure("replica", str(tmp_path / "b"))
    log.info("two")
    assert [line["event"] for line in lines(tmp_path / "a")] == ["one"]
    assert [(line["event"], line["process"]) for line in lines(tmp_path / "b")] == [("two", "replica")]


SAYS = "import structlog; from dadstorm import logs; logs.configure('pcs'); structlog.get_logger().info('hello', n=1)"


def test_without_a_file_text_goes_to_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert re.search(r"\[info *\] hello +n=1", done.stderr)
    assert "process=pcs" in done.stderr and "\x1b[" not in done.stderr


def test_a_terminal_gets_colours() -> None:
    master, terminal = pty.openpty()
    subprocess.run([sys.executable, "-c", SAYS], stderr=terminal, check=True)
    os.close(terminal)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert "hello" in shown and "\x1b[" in shown
