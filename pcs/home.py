"""What a run is given by the PCS that it runs at: hands, addresses, folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dadstorm.plan import Operator
from dadstorm.wire.endpoint import Endpoint
from pcs.line import Fork, Kill


@dataclass(frozen=True, slots=True)
class Home:
    """What a run is given by the PCS it runs at."""

    endpoint: Endpoint
    fork: Callable[[Fork], None]
    kill: Callable[[Kill], None]
    keep: Callable[[], None]
    """Has what is known of the run remembered, for a PCS that takes the place of this one."""
    serial: Callable[[], int]
    problems: Callable[[Operator], list[str]]
    """Why this host cannot have a replica of an operator that the plan places elsewhere."""
    address: str
    """Where the PCS listens for its replicas."""
    public_address: str
    """Where it listens for the PCSs of other hosts."""
    folder: str
    sockets: str
    keys: str | None
    confined: bool
    message_bytes_max: int
