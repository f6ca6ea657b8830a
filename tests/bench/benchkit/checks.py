"""Is an output complete and right?

The expected output of a workload is what the plain loop writes: every update, in the order of the input. An output may
be

- ``exact``: the same bytes;
- ``any order``: the same lines, some of them elsewhere;
- ``last counts``: not every count was written, but the last one of every key is right, and none is beyond it. Systems
  that work in batches do that, and write far less;
- ``last total``: on W2, the last counts add up, but not each is right: as many users were counted, some by another of
  their visits than the first, for lack of an order;
- ``WRONG``: anything else. A benchmark of a wrong output is none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["lines", "counts", "first counts"]
"""``first counts``: of what came first by another key."""


@dataclass(frozen=True)
class Verdict:
    text: str
    lines: int
    digest: str
    """Of all bytes, in order."""

    @property
    def right(self) -> bool:
        return not self.text.startswith("WRONG")


def judged(
    parts: Sequence[Path], expected: Path, kind: Kind, reading: Callable[[bytes], bytes] | None = None
) -> Verdict:
    """The output in these files. ``reading`` makes lines of ours of it."""
    found = b"".join(part.read_bytes() for part in in_order(parts))
    if reading is not None:
        found = reading(found)
    wanted = expected.read_bytes()
    digest = hashlib.sha256(found).hexdigest()
    lines, expected_lines = found.count(b"\n"), wanted.count(b"\n")
    if found == wanted:
        return Verdict("exact", lines, digest)
    if lines == expected_lines and sorted(found.splitlines()) == sorted(wanted.splitlines()):
        return Verdict("any order", lines, digest)
    if kind != "lines":
        last, wanted_last = last_counts(found), last_counts(wanted)
        if last == wanted_last:
            return Verdict("last counts", lines, digest)
        if kind == "first counts" and sum(last.values()) == sum(wanted_last.values()):
            return Verdict("last total", lines, digest)
    return Verdict(f"WRONG: {lines:,} lines, expected {expected_lines:,}", lines, digest)


def in_order(parts: Sequence[Path]) -> list[Path]:
    """Part 2 before part 10."""
    return sorted(parts, key=lambda part: [int(bit) if bit.isdigit() else bit for bit in re.split(r"(\d+)", str(part))])


def last_counts(text: bytes) -> dict[bytes, int]:
    """The highest count of each key."""
    last: dict[bytes, int] = {}
    for line in text.splitlines():
        key, _, count = line.rpartition(b",")
        if not count.isdigit():
            return {}
        if last.get(key, 0) < int(count):
            last[key] = int(count)
    return last
