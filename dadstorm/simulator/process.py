"""A replica process of the simulation, and what may go wrong around it: here, nothing does."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dadstorm.core.messages import Peer
from dadstorm.core.replica import ReplicaMachine
from dadstorm.simulator.disk import SimulatedSink, SimulatedSource
from dadstorm.simulator.network import Envelope, Links

if TYPE_CHECKING:
    from dadstorm.simulator.cluster import Cluster

NEVER = math.inf
NO_LIMIT = 1 << 30


class Died(Exception):
    """The process has died in the middle of a turn."""


@dataclass(slots=True)
class Process:
    """A replica process: its machine, and what is on its way to it."""

    peer: Peer
    machine: ReplicaMachine
    pace_ms: float
    inbox: list[Envelope] = field(default_factory=list)
    sources: dict[int, SimulatedSource] = field(default_factory=dict)
    sinks: dict[int, SimulatedSink] = field(default_factory=dict)
    alive: bool = True
    told: bool = False
    """It knows who is where."""
    started: bool = False
    begun: bool = False
    resumed: bool = False
    frozen: bool = False
    due_ms: float = NEVER
    """When its next turn is."""
    next_tick_ms: float = 0.0
    stops_ms: float = NEVER
    """When it hears that the user stops the run."""
    actions_left: int | None = None
    """It dies when it has done so many more things, wherever it then is."""


class NoFaults(Links):
    """The faults of a run without faults."""

    zombies = False
    """Whether a process that is superseded may live on."""
    pause_ms = 0.0
    """How long at most a source has nothing between two reads."""
    read_max = NO_LIMIT
    """How many records a source reads at most at once."""

    tick_ms = 100.0
    """How often the clocks of processes tick."""
    steward_patience_ms = math.inf
    """How long a replica without peers waits for a PCS that is gone."""
    master_chance: random.Random | None = None
    """Where the ways of the PuppetMaster are drawn from; None: there is none, everybody starts by itself."""

    def begin(self, cluster: Cluster) -> None:
        """Put whatever is to go wrong on the agenda."""

    def early_deaths(self) -> int:
        """How often a replica dies before it begins."""
        return 0

    def look(self, process: Process) -> None:
        """See where a process stands after its turn."""

    def may_die(self, process: Process) -> bool:
        """Whether one that was to die soon still may."""
        return True
