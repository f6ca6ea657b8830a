"""What a replica tells the PuppetMaster about itself: how far it is, that it is finished, and, if asked to, its tuples.

Nobody waits for these messages and nothing depends on them but what people see. That it is finished is told again and
again: a connection may break, without a PuppetMaster it is the PCSs that end a run, and a PCS may have been started
again.
"""

from __future__ import annotations

import resource
import traceback
from typing import Literal

from dadstorm import logs
from dadstorm.core.messages import Adopt, Peer
from dadstorm.core.replica import ReplicaMachine
from dadstorm.core.rows import Rows
from dadstorm.emitted import EmittedLines
from dadstorm.errors import DadstormError, UserError
from dadstorm.stopwatch import Stopwatch, now_ms
from dadstorm.wire import control
from dadstorm.wire.address import is_address
from dadstorm.wire.endpoint import Endpoint

STATS_EVERY_MS = 200.0
FINISHED_EVERY_MS = 1000.0

log = logs.get_logger()


class Reports:
    def __init__(
        self, endpoint: Endpoint, master: str, pcs: str, me: Peer, incarnation: int, resume: control.Resume | None
    ) -> None:
        self._endpoint = endpoint
        endpoint.may_be_gone(master)
        self.master = master
        """Where the PuppetMaster listens."""
        self._reign = 0
        self._pcs = pcs
        self._me = me
        self._incarnation = incarnation
        self._stopwatches = [] if resume is None else [Stopwatch(me, incarnation, now_ms(), resume)]
        self._lines: EmittedLines | None = None
        self._cuts: dict[int, tuple[int, float]] = {}
        """Per slice: its newest snapshot, and when it was first seen."""
        self._told: control.State | None = None
        self._next_ms = 0.0
        self._finished: tuple[int, ...] = ()
        """The slices that were told to be finished."""
        self._next_finished_ms = 0.0
        self._alone = False

    def take(self, message: control.Master) -> bool:
        """Report to another PuppetMaster from now on, if it is a later one: whether it is. It is told everything."""
        if (message.reign, message.address) <= (self._reign, self.master) or not is_address(message.address):
            return False
        self._endpoint.hang_up(self.master)
        self._endpoint.may_be_gone(message.address)
        self._reign, self.master = message.reign, message.address
        self._told = None
        return True

    def log_tuples(self, lines: EmittedLines) -> None:
        """From now on every tuple is told."""
        self._lines = lines

    def adopts(self, adopt: Adopt, since_ms: float) -> None:
        """Slices of somebody who is lost are being resumed here."""
        self._stopwatches.append(Stopwatch(self._me, self._incarnation, since_ms, adopt=adopt))

    def emitted(self, rows: Rows) -> None:
        assert self._lines is not None, "only a machine that is tapped tells what it emits"
        self._lines.add(rows)
        if self._lines.full:
            self._send_lines()

    def _send_lines(self) -> None:
        text = self._lines.take() if self._lines else ""
        if text:
            self._endpoint.send(self.master, control.Emitted(*self._me, text))

    def last_words(self, error: BaseException) -> None:
        """What ended the replica; to be called where it is handled."""
        if isinstance(error, DadstormError):
            log.error("failed", error=str(error))
            fault: Literal["user", "run"] = "user" if isinstance(error, UserError) else "run"
            failed = control.Failed(*self._me, fault, str(error), self._incarnation)
        else:
            log.error("defect", traceback=traceback.format_exc())
            failed = control.Failed(*self._me, "defect", traceback.format_exc(), self._incarnation)
        for listener in (self.master, self._pcs):
            self._endpoint.send(listener, failed)

    def turn(self, machine: ReplicaMachine, state: control.State, now_ms: float) -> None:
        """Now and then, and at once when the state has changed, tell how far the replica is."""
        for index, slice_ in machine.slices.items():
            if slice_.keeper and self._cuts.get(index, (0, 0.0))[0] < slice_.keeper.vault.newest:
                self._cuts[index] = (slice_.keeper.vault.newest, now_ms)
        for stopwatch in list(self._stopwatches):
            if (recovered := stopwatch.look(machine.resumed, machine.slices)) is not None:
                self._stopwatches.remove(stopwatch)
                self._endpoint.send(self.master, recovered)
        if machine.steward.gone != self._alone:
            self._alone = machine.steward.gone
            how = "gone: we go on without copies, if nobody else holds them" if self._alone else "back: it gets copies"
            log.warning(f"the PCS is {how}")
        if state == self._told and now_ms < self._next_ms:
            return
        news = state != self._told
        self._next_ms, self._told = now_ms + STATS_EVERY_MS, state
        self._send_lines()
        self.answer(machine, state, now_ms)
        slices = tuple(sorted(machine.slices))
        fresh = news or slices != self._finished
        if state == "finished" and (fresh or now_ms >= self._next_finished_ms):
            self._finished, self._next_finished_ms = slices, now_ms + FINISHED_EVERY_MS
            for listener in (self.master, self._pcs):
                self._endpoint.send(listener, control.Finished(*self._me, slices))

    def answer(self, machine: ReplicaMachine, state: control.State, now_ms: float, look: int = 0) -> None:
        """Tell how far the replica is; ``look`` is the number of who asked."""
        progress = machine.progress
        kept = len(self._cuts) == len(machine.slices) > 0
        age_ms = max((now_ms - seen for _, seen in self._cuts.values()), default=0.0)
        stats = control.Stats(
            *self._me,
            rows_in=progress.rows_in,
            rows_out=progress.rows_out,
            queued=progress.queued,
            frontier=progress.frontier,
            safe=progress.safe,
            dropped=self._endpoint.dropped,
            memory_kb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            state=state,
            incarnation=self._incarnation,
            slices=len(machine.slices),
            snapshot_age_ms=round(age_ms) if kept else None,
            suspects=tuple(machine.ring.suspected),
            look=look,
        )
        self._endpoint.send(self.master, stats)
