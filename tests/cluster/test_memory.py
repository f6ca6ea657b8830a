"""Memory is bounded by the window, not by how many tuples there are or how slow somebody is; nothing ever deadlocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory import Measured, diamond, measured

pytestmark = [pytest.mark.cluster, pytest.mark.serial]

SLOW = """
name: slow
window: 20000
sources:
  lines: {generate: {n: counter, text: {words: 12}}, count: 400000}
operators:
  slow:  {input: lines, custom: slow.take, args: {rows_per_s: SPEED}, fields: [n:int, text]}
  last:  {input: slow, filter: n >= 399990}
"""
SLOWLY = """
import time

from dadstorm.custom import batch_operator


@batch_operator()
def take(batch, rows_per_s):
    time.sleep(batch.num_rows / rows_per_s)
    return batch
"""


def check_diamond(found: Measured, tuples: int) -> None:
    """All of it came out: every order was counted twice, and each of the ten thousand users was seen."""
    files = found.outcome.ok().files
    assert files["last.csv"].split() == [b"%d" % n for n in range(2 * tuples - 9, 2 * tuples + 1)]
    assert sorted(int(line.split(b",")[1]) for line in files["buyers.csv"].splitlines()) == list(range(10_000))


def test_five_million_tuples_take_no_more_memory_than_one_million(tmp_path: Path) -> None:
    window = 1 << 16
    one = measured(tmp_path / "one", diamond(1_000_000, window))
    five = measured(tmp_path / "five", diamond(5_000_000, window))
    check_diamond(one, 1_000_000)
    check_diamond(five, 5_000_000)
    assert five.peak_mb < 1.1 * one.peak_mb


def test_the_window_bounds_memory(tmp_path: Path) -> None:
    """The same tuples through a small window and a large one. What the processes take to be there at all is in both."""
    small = measured(tmp_path / "small", diamond(1_000_000, 1 << 14))
    large = measured(tmp_path / "large", diamond(1_000_000, 1 << 20))
    check_diamond(small, 1_000_000)
    check_diamond(large, 1_000_000)
    assert small.peak_mb < 0.75 * large.peak_mb


def test_who_is_slow_holds_up_the_source(tmp_path: Path) -> None:
    """If the source ran ahead, it would be almost twice as much, and growing."""
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "slow.py").write_text(SLOWLY)
    fast = measured(tmp_path / "fast", SLOW.replace("SPEED", "100000000"))
    slow = measured(tmp_path / "slow", SLOW.replace("SPEED", "100000"))
    assert slow.outcome.ok().files == fast.outcome.ok().files
    assert slow.outcome.seconds > 4, "four hundred thousand rows at a hundred thousand a second"
    assert slow.peak_mb < 1.1 * fast.peak_mb
    # Start-up does not count, and takes long on a busy machine.
    started = next(i for i, mb in enumerate(slow.curve_mb) if mb > 0.7 * slow.peak_mb)
    middle = (started + len(slow.curve_mb)) // 2
    before, after = slow.curve_mb[started:middle], slow.curve_mb[middle:]
    assert max(after) < 1.15 * max(before), "it does not grow while it runs"
