"""Who the PuppetMaster of a run is.

The first is the one that opened the run. Each has a *reign*, and an address; the higher pair wins, so that of two who
attach at the same time one does, and everybody agrees which. An earlier one that lives is told.
"""

from __future__ import annotations

import time

import msgspec

from dadstorm import logs
from dadstorm.wire import control
from dadstorm.wire.address import is_address
from dadstorm.wire.endpoint import Endpoint

log = logs.get_logger()


class Mastery:
    def __init__(self, endpoint: Endpoint, request: control.Open, owner: bytes, reign: int = 0) -> None:
        self._endpoint = endpoint
        self.request = request
        """What the run was opened with; its ``master`` is the present one."""
        self._owner = owner
        """The PuppetMaster's connection, to report to."""
        self.reign = reign
        self.heard = time.monotonic()
        """When the PuppetMaster was last heard of."""

    def tell(self, message: control.Message) -> None:
        """Tell the PuppetMaster, if it is there."""
        self._endpoint.reply(self._owner, message, token=self.request.run)

    def ended_by(self, reply_to: bytes) -> None:
        """Who ends the run hears of its end."""
        self._owner = reply_to

    def on_pulse(self, pulse: control.Pulse, reply_to: bytes) -> bool:
        """The PuppetMaster is there; a later one takes over: whether it does. An earlier one learns that it is over."""
        theirs, ours = (pulse.reign, pulse.master or self.request.master), (self.reign, self.request.master)
        if theirs < ours:
            superseded = control.Superseded(self.request.host, self.request.master)
            self._endpoint.reply(reply_to, superseded, token=self.request.run)
            return False
        if theirs > ours:
            if not is_address(pulse.master):
                self._endpoint.drop(f"a PuppetMaster at {pulse.master!r}, which is no address")
                return False
            log.info("another PuppetMaster takes over", host=self.request.host, master=pulse.master)
            self.tell(control.Superseded(self.request.host, pulse.master))
            self._endpoint.hang_up(self.request.master)
            self.reign = pulse.reign
            self.request = msgspec.structs.replace(self.request, master=pulse.master)
        self._owner, self.heard = reply_to, time.monotonic()
        self.tell(control.Pulse(self.request.host))
        return theirs > ours
