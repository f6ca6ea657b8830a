"""How long a recovery took, step by step, as the new incarnation and its PCS can tell.

*Detected*: from the death (of one that hung, or whose host is lost: from its last sign of life) until the PCS was to
bring it back. *Spawned*: until the new process ran (nothing, where peers adopt the slices). *Restored*: until it had
its snapshots. *Replayed*: until its slices stood where their predecessors stood, which is where their consumers have
got to; the next output is new. All times are of one host, whose clock its processes share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from dadstorm.core.messages import Adopt, Peer
from dadstorm.core.slice import Slice
from dadstorm.wire import control


class Stopwatch:
    """Of one recovery: of a new incarnation, from when its process runs, or of slices that this replica adopts."""

    def __init__(
        self,
        me: Peer,
        incarnation: int,
        begun_ms: float,
        resume: control.Resume | None = None,
        adopt: Adopt | None = None,
    ) -> None:
        self._slices = None if adopt is None else tuple(index for index, _ in adopt.slices)
        """What is adopted; None: all that there is."""
        self._begun_ms = begun_ms
        self._restored_ms: float | None = None
        self._told = control.Recovered(
            me.operator,
            me.replica if adopt is None else adopt.lost,
            incarnation,
            at=me.replica,
            slices=self._slices or (),
            detected_ms=0.0 if resume is None else resume.detected_ms,
            spawned_ms=0.0 if resume is None else max(0.0, self._begun_ms - resume.asked_ms),
        )

    def look(self, resumed: bool, slices: Mapping[int, Slice]) -> control.Recovered | None:
        """The times, when they are known."""
        if not resumed or not slices.keys() >= set(self._slices or ()):
            return None
        now = now_ms()
        if self._restored_ms is None:
            self._restored_ms = now
        concerned = [one for index, one in slices.items() if self._slices is None or index in self._slices]
        if not all(outlet.attached and one.done >= outlet.owed for one in concerned for outlet in one.outlets):
            return None
        return msgspec.structs.replace(
            self._told, restored_ms=self._restored_ms - self._begun_ms, replayed_ms=now - self._restored_ms
        )


def now_ms() -> float:
    return time.monotonic() * 1000
