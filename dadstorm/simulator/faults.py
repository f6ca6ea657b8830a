"""What goes wrong in a scenario, and what must not.

A ``Storm`` is drawn from a seed: how links misbehave all the time (loss, duplicates, disorder, delay), and a list of
things that happen at certain moments: crashes (of several at once, in the middle of a turn, during a recovery),
freezes short and long, links cut one way or both ways, replicas or halves of the cluster cut off, a PCS that hangs, or
is dead for a while, a PuppetMaster that dies in the middle of its Start, or later, and comes back or does not.
At the end everything heals.

Faults stay within what recovery promises: every slice keeps one copy that is *sure*. A replica is sure if it lives and
nothing is the matter with it; one that is frozen or cut off may be given up by the others at any time, so its copies
do not count. So a crash is left out if it would take the last sure copy of a slice. To cut off or freeze the owner of a
slice is allowed even when nobody else has a copy: then nobody can vouch for its state, and nobody may replace it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

from dadstorm.core.holder import Holder
from dadstorm.core.line import END, START
from dadstorm.core.messages import PCS, Peer
from dadstorm.core.steward import PATIENCE
from dadstorm.core.vault import DRAINED
from dadstorm.simulator.cluster import NO_LIMIT, Cluster, NoFaults, Process
from dadstorm.simulator.puppetmaster import SimulatedPuppetMaster

SUSPECT_AFTER_MS = 300
TICK_MS = 50.0
EARLY_DEATHS = 0.03
"""How often a replica dies before it begins."""
ACTIONS_MAX = 25
"""A process that dies in the middle of something dies within so many actions."""
OUTAGES = (0.0, 0.3, 1.0, 3.0)
"""For how long at most a PCS is dead, in times until somebody is suspected."""
PATIENCES = (math.inf, math.inf, PATIENCE, 1.0, 0.5)
"""How long a replica waits for a PCS that is gone, likewise: for ever, as under a private PCS; as under a daemon; and
for less than an outage, so that patience does end."""
MASTER_DEATHS_MS = (10.0, 40.0, 300.0)
"""Within this time the PuppetMaster dies: most of its work is at the beginning."""


class Storm(NoFaults):
    tick_ms = TICK_MS

    def __init__(self, chance: random.Random, records: int, aside: random.Random, *, mastered: bool) -> None:
        """``records``: how many a slice of a source has to read, more or less; they last about as long as the storm.
        What befalls the PuppetMaster (``mastered``: there is one) and the PCS is drawn ``aside``, so that a seed in
        which nothing does has the history that it would have without them."""
        self._chance = chance
        self.heal_ms = chance.choice((300.0, 600.0, 1200.0))
        self._aside = aside
        self.master_chance = aside if mastered else None
        self.steward_patience_ms = SUSPECT_AFTER_MS * aside.choice(PATIENCES)
        self._master_deaths = aside.choice((0, 1, 2)) if mastered else 0
        self.read_max = chance.choice((1, 2, 3))
        self.pause_ms = self.heal_ms * chance.uniform(0.5, 2.0) * self.read_max / max(1, records)
        self.zombies = chance.random() < 0.5
        self.in_order = chance.random() < 0.5
        self._loss = chance.choice((0.0, 0.0, 0.02, 0.1))
        self._twice = chance.choice((0.0, 0.0, 0.05, 0.2))
        self._late = chance.choice((0.0, 0.0, 0.02, 0.1))
        self._count = chance.choice((2, 3, 4, 6, 8, 12))
        self._cut: dict[tuple[Peer, Peer], int] = {}
        """Links that are cut, and by how many faults."""
        self._doubtful: dict[Peer, int] = {}
        """Replicas that are frozen or cut off, and by how many faults."""
        self._reached: dict[tuple[int, int], int] = {}
        """Per slice: the highest safe that any incarnation has reached, so what a copy must have to be of use."""
        self._alone: set[tuple[int, int]] = set()
        """Slices that have gone on without a copy, because their PCS was gone."""
        self.healed = False

    def describe(self) -> str:
        order = "kept" if self.in_order else "not kept"
        late = "" if self.zombies else "not "
        return (
            f"loss {self._loss:.0%}, duplicates {self._twice:.0%}, late {self._late:.0%}, order on links {order}, "
            f"who hangs is {late}left alive, {self._count} faults until {self.heal_ms:.0f} ms"
        )

    # -- what the cluster asks -----------------------------------------------------------------------------------

    def begin(self, cluster: Cluster) -> None:
        self._cluster = cluster
        for _ in range(self._count):
            cluster.agenda.at(self.heal_ms * self._chance.random(), self._strike)
        for _ in range(self._master_deaths):
            cluster.agenda.at(self._aside.choice(MASTER_DEATHS_MS) * self._aside.random(), self._kill_master)
        cluster.agenda.at(self.heal_ms, self._heal)

    def early_deaths(self) -> int:
        return 1 if self._chance.random() < EARLY_DEATHS else 0

    def delays_ms(self, sender: Peer, to: Peer) -> tuple[float, ...]:
        if self.healed:
            return (0.0,)
        if (sender, to) in self._cut or self._chance.random() < self._loss:
            return ()
        copies = 2 if self._chance.random() < self._twice else 1
        return tuple(self._delay_ms() for _ in range(copies))

    def _delay_ms(self) -> float:
        return self._chance.random() * SUSPECT_AFTER_MS if self._chance.random() < self._late else 0.0

    def look(self, process: Process) -> None:
        for index, slice_ in process.machine.slices.items():
            key = (process.peer.operator, index)
            if slice_.safe > self._reached.get(key, START):
                self._reached[key] = slice_.safe
            if slice_.keeper is not None and slice_.keeper.alone and key not in self._alone:
                self._alone.add(key)
                self._cluster.note(f"{self._cluster.name(process.peer)} goes on without a copy of slice {index}")

    def may_die(self, process: Process) -> bool:
        self.look(process)
        return self._may_die(process.peer)

    # -- what happens --------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        """One thing goes wrong, or, if it may not, nothing does."""
        kinds: tuple[Callable[[], None], ...] = (
            self._crash,
            self._crash,
            self._crash_soon,
            self._crash_the_new,
            self._crash_many,
            self._freeze,
            self._freeze,
            self._cut_link,
            self._cut_off,
            self._cut_off,
            self._split,
            self._hang_pcs,
            self._kill_pcs,
            self._crash_everything,
        )
        if not self.healed:
            self._chance.choice(kinds)()

    def _heal(self) -> None:
        """Everything works from now on."""
        self.healed = True
        self.in_order = True
        self.pause_ms, self.read_max = 0.0, NO_LIMIT
        self._cluster.note("everything heals")
        self._cut.clear()
        self._doubtful.clear()
        for process in [*self._cluster.processes.values(), *self._cluster.zombies]:
            process.actions_left = None
            self._cluster.freeze(process.peer, False)
        self._cluster.pcs.thaw()
        if self._cluster.pcs.over:
            self._cluster.replace_pcs()
        master = self._cluster.master
        if master is not None and master.has_to_come_back:
            self._cluster.attach_master()

    def _somebody(self) -> Peer | None:
        living = sorted(self._cluster.processes)
        return self._chance.choice(living) if living else None

    def _crash(self, victim: Peer | None = None) -> None:
        victim = victim or self._somebody()
        if victim is not None and self._may_die(victim):
            self._cluster.kill(victim, "crash")

    def _crash_soon(self) -> None:
        """In the middle of a turn, between any two things that a process does."""
        victim = self._somebody()
        if victim is not None and self._may_die(victim):
            self._doubt(victim, +1)
            process = self._cluster.processes[victim]
            process.actions_left = self._chance.randrange(ACTIONS_MAX)
            self._later(lambda: self._spare(process))

    def _spare(self, process: Process) -> None:
        """Its time is over; if it has not done enough to die of it, it lives."""
        self._doubt(process.peer, -1)
        process.actions_left = None

    def _crash_the_new(self) -> None:
        """Somebody who is just being brought back, or has been."""
        later = [peer for peer, process in sorted(self._cluster.processes.items()) if process.machine.incarnation]
        waiting = [peer for peer in later if not self._cluster.processes[peer].machine.resumed]
        self._crash(self._chance.choice(waiting or later) if later else None)

    def _crash_many(self) -> None:
        """As many as may, of one operator or of all."""
        first = self._somebody()
        everybody = sorted(self._cluster.processes)
        ring = [peer for peer in everybody if first and peer.operator == first.operator]
        for victim in self._chance.choice((ring, everybody)):
            if self._chance.random() < 0.7 and victim in self._cluster.processes:
                self._crash(victim)

    def _crash_everything(self) -> None:
        """Replicas and PCS; a run that is durable is started again."""
        if self._cluster.plan.durable is not None:
            self._cluster.restart()

    def _freeze(self) -> None:
        victim = self._somebody()
        if victim is not None and self._may_vanish(victim):
            self._doubt(victim, +1)
            self._cluster.freeze(victim, True)
            self._later(lambda: self._thaw(victim))

    def _thaw(self, peer: Peer) -> None:
        self._doubt(peer, -1)
        self._cluster.freeze(peer, False)

    def _cut_link(self) -> None:
        """One link, in one direction or in both."""
        one, other = self._somebody(), self._somebody()
        if one is not None and other is not None and one != other and self._may_vanish(one):
            links = [(one, other), (other, one)] if self._chance.random() < 0.5 else [(one, other)]
            self._cut_links(links, [one])

    def _cut_off(self) -> None:
        """A replica from everybody, or from its PCS, or only what it sends, or only what it is sent."""
        victim = self._somebody()
        if victim is None or not self._may_vanish(victim):
            return
        everybody = [*self._cluster.incarnations, Peer(victim.operator, PCS)]
        others = self._chance.choice((everybody, everybody[:-1], everybody[-1:]))
        out, back = [(victim, other) for other in others], [(other, victim) for other in others]
        self._cut_links(self._chance.choice((out + back, out, back)), [victim])

    def _split(self) -> None:
        """The cluster falls in two halves; each PCS is with one of them."""
        peers = [*self._cluster.incarnations]
        pcs = sorted({Peer(peer.operator, PCS) for peer in peers})
        here = {peer for peer in [*peers, *pcs] if self._chance.random() < 0.5}
        lost = [p for p in self._cluster.processes if (p in here) != (Peer(p.operator, PCS) in here)]
        if not self._may_all_vanish(lost):
            return
        links = [(a, b) for a in [*peers, *pcs] for b in [*peers, *pcs] if (a in here) != (b in here)]
        self._cut_links(links, lost)

    def _cut_links(self, links: Iterable[tuple[Peer, Peer]], doubtful: Iterable[Peer]) -> None:
        links, doubtful = list(links), list(doubtful)
        self._cluster.note(f"{len(links)} links cut, around {', '.join(map(self._cluster.name, doubtful)) or 'nobody'}")
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + 1
        for peer in doubtful:
            self._doubt(peer, +1)
        self._later(lambda: self._join(links, doubtful))

    def _join(self, links: list[tuple[Peer, Peer]], doubtful: list[Peer]) -> None:
        self._cluster.note(f"{len(links)} links joined again")
        for link in links:
            self._cut[link] -= 1
            if not self._cut[link]:
                del self._cut[link]
        for peer in doubtful:
            self._doubt(peer, -1)

    def _hang_pcs(self) -> None:
        if self._cluster.pcs.over:
            return
        self._cluster.note("the PCS hangs")
        self._cluster.pcs.frozen = True
        self._later(self._cluster.pcs.thaw)

    def _kill_pcs(self) -> None:
        """Unless it has the only sure copy of something. Another one takes its place, sooner or later."""
        cluster, pcs = self._cluster, self._cluster.pcs
        everything = [(number, index) for number, op in enumerate(cluster.plan.operators) for index in range(op.slices)]
        if pcs.over or not all(self._kept_without(Peer(number, PCS), index) for number, index in everything):
            return
        cluster.note("the PCS dies")
        pcs.end()
        outage_ms = SUSPECT_AFTER_MS * self._aside.choice(OUTAGES) * self._aside.random()
        if not outage_ms:
            cluster.replace_pcs()
        else:
            cluster.agenda.after(outage_ms, lambda: cluster.replace_pcs() if cluster.pcs is pcs else None)

    def _kill_master(self) -> None:
        """If the run can do without it; it comes back after a while, or, if everything is said, perhaps never."""
        cluster, master = self._cluster, self._cluster.master
        if self.healed or master is None or not master.may_die:
            return
        cluster.kill_master()
        wait_ms = SUSPECT_AFTER_MS * self._aside.choice((0.0, 0.3, 1.5, 3.0))
        if master.has_to_come_back or self._aside.random() < 0.5:
            cluster.agenda.after(wait_ms, lambda: self._attach_master(master))

    def _attach_master(self, dead: SimulatedPuppetMaster) -> None:
        """A PuppetMaster needs a PCS to find the run."""
        if self._cluster.master is dead and not self.healed:
            if self._cluster.pcs.frozen:
                self._cluster.agenda.after(TICK_MS, lambda: self._attach_master(dead))
            else:
                self._cluster.attach_master()

    def _later(self, what: Callable[[], None]) -> None:
        """After a while, short or long compared with the time until somebody is suspected."""
        wait_ms = SUSPECT_AFTER_MS * self._chance.choice((0.3, 1.5, 3.0))

        def unless_healed() -> None:
            if not self.healed:
                what()

        self._cluster.agenda.after(wait_ms, unless_healed)

    def _doubt(self, peer: Peer, by: int) -> None:
        self._doubtful[peer] = self._doubtful.get(peer, 0) + by

    # -- what may happen -----------------------------------------------------------------------------------------

    def _may_die(self, victim: Peer) -> bool:
        """Whether everybody's state is still there without this replica."""
        slices = range(self._cluster.plan.operators[victim.operator].slices)
        return all(self._kept_without(victim, index) for index in slices)

    def _may_vanish(self, victim: Peer) -> bool:
        """Whether this replica may be given up by others, or is one whom nobody can replace before it is back."""
        operator = self._cluster.plan.operators[victim.operator]
        everybody = [one.machine.holder for one in (*self._cluster.processes.values(), *self._cluster.zombies)]
        mine = self._cluster.processes[victim].machine
        return all(
            mine.hosts([(index, 0)]) and not copies_at(everybody, victim.operator, index)
            for index in range(operator.slices)
            if not self._kept_without(victim, index)
        )

    def _may_all_vanish(self, victims: Iterable[Peer]) -> bool:
        doubted: list[Peer] = []
        try:
            for victim in victims:
                if not self._may_vanish(victim):
                    return False
                self._doubt(victim, +1)
                doubted.append(victim)
            return True
        finally:
            for victim in doubted:
                self._doubt(victim, -1)

    def _kept_without(self, victim: Peer, index: int) -> bool:
        """Whether a sure replica other than this one, or the PCS, unless it is that, has the slice; or there is nothing
        yet that could be lost."""
        plan, reached = self._cluster.plan, self._reached.get((victim.operator, index), START)
        # What it has settled of others' slices may be called safe before we see that it is.
        reached = max([reached, *copies_at([self._holder(victim)], victim.operator, index)])
        operator = plan.operators[victim.operator]
        if self._cluster.stop.has_ended(operator.name, index):
            reached = END  # Also that is known to its owner and to who holds its copies, and to nobody else.
        may_be_lost = plan.semantics == "at-most-once" and operator.kind not in ("source", "sink")
        if may_be_lost or reached == START or plan.durable is not None:
            return True
        sure = [
            process
            for peer, process in self._cluster.processes.items()
            if peer.operator == victim.operator and peer != victim and not self._doubtful.get(peer)
        ]
        owned = any(index in process.machine.slices for process in sure)
        holders = [process.machine.holder for process in sure]
        if victim.replica != PCS:
            holders.append(self._cluster.pcs.holder)
        return owned or any(cut >= reached for cut in copies_at(holders, victim.operator, index))

    def _holder(self, who: Peer) -> Holder:
        return self._cluster.pcs.holder if who.replica == PCS else self._cluster.processes[who].machine.holder


def copies_at(holders: Iterable[Holder], operator: int, index: int) -> list[int]:
    """The cuts of all copies of a slice that these have; END for one that says that the stream ends at its cut."""
    found = [copy[1] for holder in holders if (copy := holder.find(operator, index)) is not None]
    return [END if DRAINED in (copy.mark or {}) else copy.cut for copy in found]
