"""What holds for a topology as a whole: name, semantics, window, intervals, hosts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import cast, get_args

from dadstorm.plan import PCS_PORT, Durable, LoggingLevel, Recovery, ScriptLine, Semantics
from dadstorm.topology import values
from dadstorm.topology.document import Mapping, Node, Text, found
from dadstorm.topology.placement import endpoint, join
from dadstorm.topology.report import Report
from dadstorm.topology.shapes import WINDOW, Section

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*\Z")

WINDOW_ROWS_MIN, WINDOW_ROWS_MAX = 2, 1 << 40
"""A snapshot's stride is at most half the window, so a window holds at least two."""

WINDOW_BYTES_MIN, WINDOW_BYTES_MAX = 4 << 10, 64 << 30
SPAN_MAX = 1 << 40
HOUR_MS = 3_600_000
SUSPECT_MS_MIN = 500
"""Replicas say that they are alive every 250 ms: with less than two chances every hiccup would be a suspicion."""
BACKUPS_MAX = 255
COMMANDS_MAX = 10_000
"""A script is written by hand; this many commands were made by a program gone wrong."""


@dataclass
class Settings:
    name: str
    semantics: Semantics = "exactly-once"
    window_rows: int = 1 << 20
    window_bytes: int = 20 << 20
    snapshot_every_ms: int = 1000
    flush_every_ms: int = 100
    span: int = 1 << 16
    seed: int = 0
    logging: LoggingLevel = "light"
    ragged: bool = False
    suspect_after_ms: int = 1000
    backups: int = 0
    recovery: Recovery = "respawn"
    script: tuple[ScriptLine, ...] = ()
    durable: Durable | None = None
    chain: bool = True


def read(report: Report, section: Section, path: str) -> Settings:
    """The settings, defaults where nothing (right) is said."""
    stem = os.path.splitext(os.path.basename(path))[0]
    settings = Settings(re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "topology")
    if node := section.get("name"):
        settings.name = _name(report, node) or settings.name
    if node := section.get("semantics"):
        chosen = values.choice(report, node, "semantics", get_args(Semantics))
        settings.semantics = cast(Semantics, chosen or settings.semantics)
    if node := section.get("logging"):
        chosen = values.choice(report, node, "logging", get_args(LoggingLevel))
        settings.logging = cast(LoggingLevel, chosen or settings.logging)
    if node := section.get("window"):
        _window(report, node, settings)
    if node := section.get("snapshot_every"):
        every = values.duration_ms(report, node, "snapshot_every", 1, HOUR_MS)
        settings.snapshot_every_ms = every or settings.snapshot_every_ms
    if node := section.get("flush_every"):
        every = values.duration_ms(report, node, "flush_every", 1, HOUR_MS)
        settings.flush_every_ms = every or settings.flush_every_ms
    if node := section.get("span"):
        settings.span = _span(report, node) or settings.span
    if node := section.get("seed"):
        settings.seed = values.integer(report, node, "seed", 0, values.INT64_MAX) or 0
    if node := section.get("ragged"):
        settings.ragged = bool(values.boolean(report, node, "ragged"))
    if node := section.get("chain"):
        settings.chain = values.boolean(report, node, "chain") is not False
    if node := section.get("suspect_after"):
        after = values.duration_ms(report, node, "suspect_after", SUSPECT_MS_MIN, HOUR_MS)
        settings.suspect_after_ms = after or settings.suspect_after_ms
    if node := section.get("backups"):
        settings.backups = values.integer(report, node, "backups", 0, BACKUPS_MAX) or 0
    if node := section.get("recovery"):
        recovery = values.choice(report, node, "recovery", get_args(Recovery))
        settings.recovery = cast(Recovery, recovery or settings.recovery)
    if node := section.get("script"):
        settings.script = _script(report, node)
    if node := section.get("durable"):
        settings.durable = _durable(report, node, settings, os.path.dirname(os.path.abspath(path)))
    return settings


def _durable(report: Report, node: Node, settings: Settings, base: str) -> Durable | None:
    """Where snapshots go to disk; a relative path starts at the topology."""
    folder = values.text(report, node, "durable", "a folder")
    if folder is None:
        return None
    if settings.semantics == "at-most-once":
        expected = "at-least-once or exactly-once: at-most-once keeps nothing that could go to disk"
        report.mistake(node.place, f"durable: found semantics {settings.semantics}; expected {expected}")
    path = os.path.normpath(os.path.join(base, folder))
    if os.path.lexists(path) and not os.path.isdir(path):
        report.mistake(node.place, f"durable: {path} is not a folder; expected one, or a name for a new one")
    return Durable(path)


def _script(report: Report, node: Node) -> tuple[ScriptLine, ...]:
    """The commands, with their places; that they are commands is checked by who runs them."""
    lines = values.words(report, node, "script") or []
    if len(lines) > COMMANDS_MAX:
        report.mistake(node.place, f"script: found {len(lines)} commands; expected at most {COMMANDS_MAX}")
    return tuple(ScriptLine(line.text.strip(), report.file, report.original(line.place).line) for line in lines)


def _name(report: Report, node: Node) -> str | None:
    name = values.text(report, node, "name")
    if name is not None and not NAME.match(name):
        report.mistake(node.place, f"name: found {found(node)}; expected letters, digits, _ and -, no - first")
        return None
    return name


def _window(report: Report, node: Node, settings: Settings) -> None:
    rows: Node | None = node
    size: Node | None = None
    if isinstance(node, Mapping):
        section = Section(report, node, "window", WINDOW)
        rows, size = section.get("rows"), section.get("bytes")
    if rows is not None:
        count = values.integer(report, rows, "window", WINDOW_ROWS_MIN, WINDOW_ROWS_MAX)
        settings.window_rows = count or settings.window_rows
    if size is not None:
        amount = values.size_bytes(report, size, "window: bytes", WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
        settings.window_bytes = amount or settings.window_bytes


def _span(report: Report, node: Node) -> int | None:
    span = values.integer(report, node, "span", 1, SPAN_MAX)
    if span is not None and span & (span - 1):
        below = 1 << (span.bit_length() - 1)
        report.mistake(node.place, f"span: found {span}; expected a power of two such as {below} or {below * 2}")
        return None
    return span


def hosts(report: Report, node: Mapping) -> dict[str, str]:
    """Host names and where their PCS listens."""
    known: dict[str, str] = {}
    for name, entry in node.entries.items():
        what = f'host "{name}"'
        if not NAME.match(name):
            report.mistake(entry.key.place, f"{what}: expected a name of letters, digits, _ and -, no - first")
        value = values.text(report, entry.value, what, "HOST or HOST:PORT")
        if value is None:
            continue
        assert isinstance(entry.value, Text)
        parts = endpoint(report, entry.value, value, what, PCS_PORT, "HOST or HOST:PORT, such as 10.0.0.1:10000")
        known[name] = join(*(parts or ("localhost", PCS_PORT)))
    return known
