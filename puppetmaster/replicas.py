"""What the PuppetMaster knows about each replica, and how it tells of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from dadstorm.wire import control
from puppetmaster.rates import Rates


@dataclass(slots=True)
class Replica:
    """What the PuppetMaster knows about one replica."""

    pid: int | None = None
    address: str | None = None
    stats: control.Stats | None = None
    finished: bool = False
    alive: bool = False
    incarnation: int = 0
    recovering: bool = False
    """It died and is being brought back."""
    died: float | None = None
    """When it last did."""
    rates: Rates = field(default_factory=Rates)
    spread: bool = False
    """It died, and its peers have its slices."""
    host: str | None = None
    """Where it lives, if not where the plan says."""
    silent_since: float | None = None
    """When it exited with 1, if it has not said why."""

    def newly_suspects(self, stats: control.Stats) -> list[int]:
        """Whom of its ring it suspects now and did not before."""
        before = self.stats.suspects if self.stats is not None and self.stats.incarnation == stats.incarnation else ()
        return [other for other in stats.suspects if other not in before]


def recovery(message: control.Recovered) -> str:
    """How long a recovery took, in words."""
    steps = {
        "detected": message.detected_ms,
        "spawned": message.spawned_ms,
        "restored": message.restored_ms,
        "replayed": message.replayed_ms,
    }
    if message.slices:
        del steps["detected"], steps["spawned"]
    told = ", ".join(f"{step} {ms:.0f}" for step, ms in steps.items())
    as_what = f"incarnation {message.incarnation}"
    if message.slices:
        as_what = f"slices {', '.join(map(str, message.slices))} at replica {message.at}"
    return f"in {sum(steps.values()):.0f} ms ({told}), {as_what}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
