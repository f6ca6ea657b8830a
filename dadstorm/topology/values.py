"""Reading single values: each function takes a node, returns the value, or notes a mistake and returns None.

Words, numbers and booleans follow YAML 1.2 (``true``/``false``; ``yes``, ``no``, ``on``, ``off`` are words), whatever
the parser's own idea of them. Durations and sizes carry their unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dadstorm.topology.document import Items, Mapping, Node, Text, found, is_null
from dadstorm.topology.report import Report, listed, nearest

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_INT = re.compile(r"[-+]?[0-9](_?[0-9])*\Z")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)\Z")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMG]i?B|B|[KMG])?\Z", re.IGNORECASE)
_SIZE_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_int(text: str) -> int | None:
    return int(text) if _INT.match(text) and len(text) < 40 else None


def parse_float(text: str) -> float | None:
    return float(text) if _FLOAT.match(text) else None


def parse_bool(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def text(report: Report, node: Node, what: str, expected: str = "a word") -> str | None:
    if isinstance(node, Text) and not node.is_null and node.text.strip():
        return node.text.strip()
    report.mistake(node.place, f"{what}: found {found(node)}; expected {expected}")
    return None


def integer(report: Report, node: Node, what: str, low: int, high: int) -> int | None:
    value = parse_int(node.text) if isinstance(node, Text) and node.plain else None
    if value is None or not low <= value <= high:
        report.mistake(node.place, f"{what}: found {found(node)}; expected a whole number from {low} to {high}")
        return None
    return value


def number(report: Report, node: Node, what: str, low: float, high: float) -> float | None:
    value = parse_float(node.text) if isinstance(node, Text) and node.plain else None
    if value is None or not low <= value <= high:
        report.mistake(node.place, f"{what}: found {found(node)}; expected a number from {low:g} to {high:g}")
        return None
    return value


def boolean(report: Report, node: Node, what: str) -> bool | None:
    value = parse_bool(node.text) if isinstance(node, Text) and node.plain else None
    if value is None:
        report.mistake(node.place, f"{what}: found {found(node)}; expected true or false")
    return value


def choice(report: Report, node: Node, what: str, options: Sequence[str]) -> str | None:
    if isinstance(node, Text) and node.text in options:
        return node.text
    hint = nearest(node.text, options) if isinstance(node, Text) else ""
    report.mistake(node.place, f"{what}: found {found(node)}; expected {listed(options)}{hint}")
    return None


def duration_ms(report: Report, node: Node, what: str, low_ms: int, high_ms: int) -> int | None:
    """A time with its unit, in milliseconds."""
    match = _DURATION.match(node.text) if isinstance(node, Text) else None
    if not match:
        report.mistake(node.place, f"{what}: found {found(node)}; expected a time with unit such as 100ms, 1s or 2m")
        return None
    value = round(float(match[1]) * _DURATION_MS[match[2]])
    if not low_ms <= value <= high_ms:
        report.mistake(node.place, f"{what}: found {found(node)}; expected from {low_ms}ms to {high_ms // 1000}s")
        return None
    return value


def size_bytes(report: Report, node: Node, what: str, low: int, high: int) -> int | None:
    """A size, with or without a unit (1KB is 1024 bytes)."""
    match = _SIZE.match(node.text) if isinstance(node, Text) else None
    if not match:
        report.mistake(node.place, f"{what}: found {found(node)}; expected a size such as 65536, 64KB or 1MB")
        return None
    value = round(float(match[1]) * _SIZE_BYTES[(match[2] or "B").upper().rstrip("B").rstrip("I")])
    if not low <= value <= high:
        report.mistake(
            node.place, f"{what}: found {found(node)}; expected from {show_size(low)} to {show_size(high)}"
        )
        return None
    return value


def show_size(size: int) -> str:
    for unit in ("B", "KB", "MB"):
        if size % 1024 or size == 0:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}GB"


def words(report: Report, node: Node, what: str) -> list[Text] | None:
    """One word, or a list of them; at least one."""
    items = node.items if isinstance(node, Items) else (node,)
    right = [item for item in items if isinstance(item, Text) and not item.is_null and item.text.strip()]
    for item in items:
        if item not in right:
            report.mistake(item.place, f"{what}: found {found(item)}; expected a word or a list of words")
    if not items:
        report.mistake(node.place, f"{what}: found an empty list; expected at least one")
    return right if right and len(right) == len(items) else None


def data(node: Node) -> Any:
    """A value of no particular type, as plain Python data."""
    if isinstance(node, Items):
        return [data(item) for item in node.items]
    if isinstance(node, Mapping):
        return {key: data(entry.value) for key, entry in node.entries.items()}
    if not node.plain:
        return node.text
    if is_null(node):
        return None
    for parse in (parse_int, parse_float):
        value = parse(node.text)
        if value is not None and not (isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX):
            return value
    return {"true": True, "false": False}.get(node.text, node.text)
