"""Forks: what the zygote is asked for, and how often again when the system will not have another process.

When a run is set up that is an error, and it is told at once. In the middle of a run it mostly passes: somebody else
had the last process that the user may have, and ends. So a replica that is to be brought back is tried again, after
pauses that grow, and given up only then. Nothing waits here: the PCS's tick finds that a pause is over.
"""

from __future__ import annotations

import msgspec

from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from dadstorm.wire import control
from pcs.child import Child
from pcs.home import Home
from pcs.line import Fork

PAUSES_S = (0.2, 0.4, 0.8, 1.6, 2.0)
"""Before each further try."""
TRIED = f"tried {len(PAUSES_S) + 1} times within {sum(PAUSES_S):.0f} s"


class Forks:
    def __init__(self, plan: Plan, home: Home) -> None:
        self._plan = msgspec.msgpack.encode(plan)
        self._home = home
        self._failed: dict[Peer, int] = {}
        """How often in a row, of those whose last one has."""

    def ask(self, run: control.Open, peer: Peer, child: Child, resume: control.Resume | None) -> None:
        """Have a replica forked, under the serial number that it was given."""
        self._home.fork(
            Fork(
                serial=child.serial,
                token=run.run,
                plan=self._plan,
                operator=peer.operator,
                replica=peer.replica,
                master=run.master,
                bind=child.bind,
                folder=self._home.folder,
                sockets=self._home.sockets,
                shake=run.shake,
                pcs=self._home.address,
                incarnation=child.incarnation,
                resume=resume,
                keys=self._home.keys,
                confined=self._home.confined,
                message_bytes_max=self._home.message_bytes_max,
            )
        )

    def worked(self, peer: Peer) -> None:
        """There is a process: what failed before does not count any more."""
        self._failed.pop(peer, None)

    def failed(self, peer: Peer) -> float | None:
        """There is none: after how many seconds to try again; None: it has been tried often enough."""
        times = self._failed[peer] = self._failed.get(peer, 0) + 1
        return PAUSES_S[times - 1] if times <= len(PAUSES_S) else None
