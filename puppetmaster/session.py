"""A session: commands carried out on a deployment, one after the other, while it runs.

Nothing here waits. ``do`` triggers what a command says and returns; a ``Wait`` sets the moment before which the next
queued command is not taken; ``Status`` asks the replicas and prints when they have answered, which shows everybody as
he was after the commands before it. Whoever drives the session calls ``turn`` again and again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dadstorm.core.messages import Peer
from dadstorm.wire.control import Stats
from puppetmaster import sides, status
from puppetmaster.commands import (
    Command,
    Crash,
    Exit,
    Freeze,
    Heal,
    Help,
    Interval,
    Kill,
    Partition,
    Slow,
    Start,
    Status,
    Stop,
    Unfreeze,
    Wait,
    help_text,
    text,
)
from puppetmaster.deployment import Deployment
from puppetmaster.eventlog import EventLog
from puppetmaster.script import own_starts, starts

ANSWER_PATIENCE_S = 1.0
"""How long ``Status`` waits for replicas that are busy; then it shows what they last reported."""


@dataclass(slots=True)
class _Asked:
    """A Status whose answers are under way."""

    command: Status
    number: int
    deadline: float
    answers: dict[Peer, Stats] = field(default_factory=dict)


class Session:
    def __init__(
        self, deployment: Deployment, events: EventLog, show: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        """``show`` takes what a command prints, ``note`` what happens."""
        self.deployment = deployment
        self._events = events
        self._show = show
        self._note = note
        self._queue: deque[tuple[Command, bool]] = deque()
        """Commands that are to come, and whether to tell when it is their turn."""
        self._own: set[str] = set()
        self._resume_at = 0.0
        self._asked: deque[_Asked] = deque()
        self._frozen: dict[Peer, int] = {}
        """Who was frozen, in which incarnation: one that takes its place is not."""
        self.exiting = False
        """Somebody wants to leave."""
        deployment.on_stats = self._on_stats

    # -- what drives it ------------------------------------------------------------------------------------------

    def play(self, commands: Iterable[Command], *, echo: bool = False) -> None:
        """Queue commands: the next is taken when the one before is done, or its time is over."""
        added = list(commands)
        self._queue.extend((command, echo) for command in added)
        self._own |= own_starts(added)

    def turn(self, timeout_ms: float) -> None:
        """Carry out what is due and take in what has happened, for at most so long."""
        while self._queue and not self.waiting and not self.exiting:
            command, echo = self._queue.popleft()
            if echo:
                self._note(f"> {text(command)}")
            self.do(command)
        if self.waiting:
            timeout_ms = min(timeout_ms, max(0.0, (self._resume_at - time.monotonic()) * 1000))
        self.deployment.listen(timeout_ms)
        self._show_answers()

    @property
    def waiting(self) -> bool:
        return time.monotonic() < self._resume_at

    def skip_wait(self) -> None:
        """Go on at once, and forget what was queued."""
        self._resume_at = 0.0
        self._queue.clear()

    def end_early(self) -> None:
        """Drain now: what was queued is forgotten, and who was not started yet is, as it could not end otherwise."""
        self.skip_wait()
        if not all(map(self.deployment.is_started, range(len(self.deployment.plan.operators)))):
            self.do(Start())
        self.do(Stop())

    @property
    def idle(self) -> bool:
        """Everything that was asked for was done and shown."""
        return not self._queue and not self.waiting and not self._asked

    @property
    def held_up(self) -> list[str]:
        """What keeps the run from ever finishing, in words."""
        operators = enumerate(self.deployment.plan.operators)
        waiting = [f"{one.name} is not started" for i, one in operators if not self.deployment.is_started(i)]
        frozen = [
            f"{self.deployment.script_name(peer)} is frozen"
            for peer, incarnation in sorted(self._frozen.items())
            if self.deployment.replicas[peer].incarnation == incarnation
        ]
        cut = [f"{left} and {right} are cut off from each other" for left, right in self.deployment.partitions.between]
        return waiting + frozen + cut

    # -- commands ------------------------------------------------------------------------------------------------

    def do(self, command: Command) -> None:
        """Carry out a command."""
        if isinstance(command, Help):
            self._show(help_text(command.command))
            return
        self._events.add(text(command))
        if isinstance(command, Start):
            names = starts(self.deployment.plan, command.operator, self._own)
            plan = self.deployment.plan
            self.deployment.start(index for index, one in enumerate(plan.operators) if one.name in names)
        elif isinstance(command, Interval):
            self.deployment.set_interval(self.deployment.plan.index(command.operator), command.ms)
        elif isinstance(command, Status):
            number = self.deployment.ask()
            self._asked.append(_Asked(command, number, time.monotonic() + ANSWER_PATIENCE_S))
        elif isinstance(command, Crash | Freeze | Unfreeze):
            self._on_replica(command, Peer(self.deployment.plan.index(command.operator), command.replica))
        elif isinstance(command, Slow):
            self.deployment.slow(Peer(self.deployment.plan.index(command.operator), command.replica), command.ms)
        elif isinstance(command, Partition):
            self.deployment.partitions.between.append((command.left, command.right))
            self.deployment.tell_cuts()
        elif isinstance(command, Heal):
            self.deployment.partitions.between.clear()
            self.deployment.tell_cuts()
        elif isinstance(command, Kill):
            self.deployment.kill_host(sides.hosts(self.deployment.plan)[command.host])
        elif isinstance(command, Wait):
            self._resume_at = time.monotonic() + command.ms / 1000
        elif isinstance(command, Stop):
            self.deployment.drain()
            if self.held_up:
                self._show(f"draining, but it cannot finish: {', '.join(self.held_up)}")
        elif isinstance(command, Exit):
            self.exiting = True

    def _on_replica(self, command: Crash | Freeze | Unfreeze, peer: Peer) -> None:
        if not self.deployment.replicas[peer].alive:
            self._show(f"{self.deployment.script_name(peer)} is not alive just now; nothing was done")
        elif isinstance(command, Crash):
            self._frozen.pop(peer, None)
            self.deployment.crash(peer)
        elif isinstance(command, Freeze):
            self._frozen[peer] = self.deployment.replicas[peer].incarnation
            self.deployment.freeze(peer, True)
        else:
            self._frozen.pop(peer, None)
            self.deployment.freeze(peer, False)

    # -- Status --------------------------------------------------------------------------------------------------

    def _on_stats(self, peer: Peer, stats: Stats) -> None:
        for asked in self._asked:
            if asked.number == stats.look:
                asked.answers[peer] = stats

    def _show_answers(self) -> None:
        """Print every Status that all living replicas have answered, or that has waited long enough."""
        replicas = self.deployment.replicas
        while self._asked:
            asked = self._asked[0]
            wanted = asked.command.operator
            living = [
                peer
                for peer, replica in replicas.items()
                if replica.alive
                and not replica.recovering
                and wanted in (None, self.deployment.plan.operators[peer.operator].name)
            ]
            if time.monotonic() < asked.deadline and any(peer not in asked.answers for peer in living):
                return
            self._asked.popleft()
            found = status.rows(self.deployment.plan, replicas, asked.command.operator, asked.answers)
            self._show(status.to_json(found) if asked.command.json else status.table(found))
