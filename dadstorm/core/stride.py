"""Where a slice takes its snapshots: cuts that slices of different speed share.

Cuts are multiples of the slice's *stride*, a power of two. Powers of two, because then a slower slice's cuts are cuts
of every faster one: with unrelated cuts each hop would lose up to one interval, and the window would close for ever.
The stride is adapted so that snapshots come about every ``snapshot_every``, whatever the rate, and is never more than
half the window of any source upstream: tiles tell how much that is. It begins large, so that a flood does not begin
with a storm of snapshots.

A source that stands still (its window is full, it is idle, it has ended) says so in its tiles: that position is a cut
for everybody.
"""

from __future__ import annotations

from dadstorm.core.line import END, START


def floor_power(value: int) -> int:
    """The largest power of two that is not above ``value`` (at least 1)."""
    return 1 << (max(1, value).bit_length() - 1)


class Stride:
    def __init__(self, every_ms: float, stride_max: int) -> None:
        self._every_ms = every_ms
        self._max = self.most = floor_power(stride_max)
        """What it may be at most: ever, and for now."""
        self.value = self.most
        self.last = START
        """The newest cut."""
        self._last_ms = 0.0
        self._now_ms = 0.0
        self._hints: list[int] = []

    def fit(self, stride_max: int) -> None:
        """For now it may be so much at most."""
        self.most = min(self._max, floor_power(stride_max))
        self.value = min(self.value, self.most)

    def hint(self, position: int) -> None:
        """A source stands still at ``position``: take a snapshot when you come there."""
        if position > self.last and position not in self._hints:
            self._hints.append(position)
            self._hints.sort()

    def next(self, position: int) -> int:
        """The first cut above ``position``: rows from there on have to wait until the snapshot is taken."""
        step = (position // self.value + 1) * self.value
        hint = next((h for h in self._hints if h > position), END)
        return min(step, hint, END)

    def reached(self, position: int, row: int = START - 1) -> int | None:
        """The newest cut there is, up to ``position``, above the last one and above the last processed row's seq: the
        state now is the state there. None if there is none."""
        best = position // self.value * self.value
        for hint in self._hints:
            if hint <= position:
                best = max(best, hint)
        if position == END:
            best = END
        return best if best > max(self.last, row) else None

    def due(self, position: int) -> bool:
        """Whether somebody asked for a snapshot right at ``position`` and there is none yet."""
        return position > self.last and position in self._hints

    def taken(self, cut: int) -> None:
        self.last = cut
        self._hints = [hint for hint in self._hints if hint > cut]
        if self._now_ms - self._last_ms < self._every_ms / 2 and self.value < self.most:
            self.value *= 2
        self._last_ms = self._now_ms

    def tick(self, now_ms: float, position: int) -> None:
        """Time passes: if the next cut is too long in coming, come to meet it."""
        self._now_ms = now_ms
        if position > self.last and now_ms - self._last_ms > self._every_ms:
            self.value = min(self.value, floor_power(position - self.last))
