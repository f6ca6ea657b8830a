"""Messages that are taken up late, for those who want to see that it does not matter.

Two reasons: a run that is shaken holds back every message by a random time, and a replica that is slow (``Slow``) takes
up what other replicas and PCSs say a fixed time late. The order is kept. What the PuppetMaster says to a slow replica
is not late: it is the hand of who makes the experiment.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Late(Generic[Item]):
    def __init__(self, shake_ms: float, seed: int) -> None:
        self._shake_ms = shake_ms
        self._chance = random.Random(seed)
        self._slow_ms = 0.0
        self._held: deque[tuple[float, Item]] = deque()

    def __bool__(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def slow(self, ms: float) -> None:
        """From now on so late; what is held back already comes no later than it would now."""
        self._held = deque((release - max(0.0, self._slow_ms - ms), item) for release, item in self._held)
        self._slow_ms = ms

    def pass_on(self, items: Iterable[Item], slowed: Iterable[bool], now_ms: float) -> list[Item]:
        """What is to be taken up now, of these items and those held back. ``slowed``: whether to be slow with each."""
        due = []
        for item, slow in zip(items, slowed, strict=True):
            if not self._shake_ms and not (slow and (self._slow_ms or self._held)):
                due.append(item)
                continue
            release = now_ms + self._slow_ms * slow + self._chance.random() * self._shake_ms
            self._held.append((max(release, self._held[-1][0]) if self._held else release, item))
        while self._held and self._held[0][0] <= now_ms:
            due.append(self._held.popleft()[1])
        return due
