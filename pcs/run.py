"""One run, on one host: its replicas, their deaths and recoveries.

The PCS is the parent of its replicas (through the zygote), so it knows of a death at once and tells the ring; the
ring's next living replica then asks for a new incarnation. A replica that lives and was heard of lately is never
replaced, whoever asks; one that hangs is killed first, so that two incarnations do not write one file. If nobody of a
ring is left to ask, the PCS acts by itself. It holds the snapshots of operators that have no peers.

A ring may have members on several hosts. Each PCS says again and again who of its own is dead, to the living of the
ring and to the PCSs of the others; so every PCS knows when nobody is left. A request for a replica of another host is
passed on to that host's PCS; if that host is lost, another one takes the replica over (``moves``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from dadstorm import logs
from dadstorm.core.messages import Adopt, Beat, Copy, Down, Peer, Seek, Settle
from dadstorm.core.spreading import Spreading
from dadstorm.errors import UserError
from dadstorm.plan import Plan
from dadstorm.replica import SUPERSEDED_STATUS
from dadstorm.wire import control
from dadstorm.wire.codec import Content
from dadstorm.wire.cuts import Cuts, barred
from dadstorm.wire.endpoint import Received
from pcs.checks import replicas_on
from pcs.child import Child, placed
from pcs.copies import Copies
from pcs.forks import TRIED, Forks
from pcs.home import Home
from pcs.known import Kept, Known
from pcs.line import Ended, Forked, Kill, Kin, NotForked
from pcs.mastery import Mastery
from pcs.moves import Hands, Moves
from pcs.status import describe
from pcs.takeover import patience_s, stays

FAILED_STATUS = 1
"""A replica that ends with this has said why; bringing it back would only make it say so again."""
NEWS_S = 1.0
"""How long the word of another PCS that a replica is dead holds: it is said again ten times in that time."""

log = logs.get_logger()


class Run:
    def __init__(self, request: control.Open, plan: Plan, home: Home, owner: bytes, kept: Kept | None = None) -> None:
        """``kept``: what a PCS that was killed knew of it."""
        self.mastery = Mastery(home.endpoint, request, owner, 0 if kept is None else kept.reign)
        self.name = plan.name
        self.folder = home.folder
        self.began = time.monotonic() if kept is None else kept.began
        self.closing = False
        self.reason = ""
        """Why it ends, if it was not the PuppetMaster who wanted that."""
        self._plan = plan
        self._home = home
        self._forks = Forks(plan, home)
        self._children: dict[Peer, Child] = {}
        self._serials: dict[int, tuple[Peer, Child]] = {}
        """Processes that have not been reported as ended."""
        self._elsewhere: dict[Peer, float] = {}
        """Replicas of other hosts that were said to be dead, and when."""
        self._copies = Copies(plan, home.endpoint, self._send, 0 if kept is None else kept.incarnation + 1)
        self._known = Known(plan)
        self._barred: frozenset[str] = frozenset()
        """Where nothing of this run may be sent to: the network is to look cut."""
        hands = Hands(self._send, self.tell_owner, self._bring_up)
        self._moves = Moves(self._known, request, home, self._children, hands)
        self._spreading = Spreading(plan, self._moves.next_incarnation) if plan.recovery == "spread" else None
        if kept is not None:
            self._known.restore(kept)
            self._partition(kept.cuts)
            if self._spreading is not None and kept.book is not None:
                self._spreading.restore(kept.book)

    @property
    def request(self) -> control.Open:
        return self.mastery.request

    @property
    def replicas(self) -> int:
        """How many are to live here."""
        return len(replicas_on(self._plan, self.request.host)) + self._moves.balance

    # -- what a run is asked -------------------------------------------------------------------------------------

    def on_message(self, received: Received) -> None:
        message = received.message
        if isinstance(message, control.Spawn):
            self._spawn(message, received.reply_to)
        elif isinstance(message, control.Respawn):
            self._respawn_on_request(message)
        elif isinstance(message, Beat):
            child = self._children.get(Peer(message.operator, message.replica))
            if child is not None and message.incarnation == child.incarnation:
                child.heard = time.monotonic()
        elif isinstance(message, Copy | Settle | Seek):
            child = self._children.get(Peer(message.operator, message.replica))
            failure = self._copies.hold(message, received.body, child)
            if failure is not None and child is not None:
                self._give_up(child, failure)
        elif isinstance(message, control.Adopted):
            self._on_adopted(message)
        elif isinstance(message, Down):
            self._on_down_elsewhere(message)
        elif isinstance(message, control.Directory):
            if problem := self._known.introduce(message):
                self._home.endpoint.drop(problem)
        elif isinstance(message, control.Present | control.Moved | control.TakeOver):
            self._moves.on_message(message)
        elif isinstance(message, control.Start):
            self._known.started.update(message.operators or range(len(self._plan.operators)))
        elif isinstance(message, control.Interval):
            self._known.intervals[message.operator] = max(0, message.ms)
        elif isinstance(message, control.Slow):
            self._known.slow[Peer(message.operator, message.replica)] = max(0, message.ms)
        elif isinstance(message, control.Partition):
            self._partition(message.cuts)
        elif isinstance(message, control.Crash):
            self._crash(Peer(message.operator, message.replica))
        elif isinstance(message, control.Drain):
            self._known.draining = True
        elif isinstance(message, control.Pulse):
            self._moves.on_pulse(message)
            if self.mastery.on_pulse(message, received.reply_to) and self._known.failure is not None:
                self.tell_owner(self._known.failure)
        elif isinstance(message, control.Finished | control.Failed):
            self._on_last_words(message)
        elif isinstance(message, control.News):
            if problem := self._known.learn(message):
                self._home.endpoint.drop(problem)
        else:
            self._home.endpoint.drop(f"a {type(message).__name__} is not for a PCS")

    def _on_last_words(self, message: control.Finished | control.Failed) -> None:
        """A replica is finished, or has failed: what counts when there is no PuppetMaster to hear it."""
        peer = Peer(message.operator, message.replica)
        if not self._known.has(peer):
            self._home.endpoint.drop(f"a {type(message).__name__} of a replica that is not ours")
        elif isinstance(message, control.Finished):
            self._known.finish((peer.operator, index) for index in message.slices)
        else:
            self._known.fail(message)

    def _partition(self, cuts: Cuts) -> None:
        self._known.cuts = cuts
        self._barred = barred(cuts, [self._home.address, self._home.public_address])

    def tell_owner(self, message: control.Message) -> None:
        self.mastery.tell(message)

    def _send(self, address: str, message: control.Message, content: Content = None) -> None:
        if address not in self._barred:
            self._home.endpoint.send(address, message, content, token=self.request.run)

    def _spawn(self, request: control.Spawn, reply_to: bytes) -> None:
        peer = Peer(request.operator, request.replica)
        try:
            child = self._check(peer)
        except UserError as refusal:
            log.warning("spawn refused", reason=str(refusal))
            refused = control.Refused(request.operator, request.replica, str(refusal))
            self._home.endpoint.reply(reply_to, refused, token=self.request.run)
            return
        self._children[peer] = child
        self._fork(peer, child, None)

    def _check(self, peer: Peer) -> Child:
        """What is to be started; UserError if that cannot be."""
        if self.closing:
            raise UserError("the run is ending")
        if peer in self._children:
            raise UserError("it is running already")
        try:
            if min(peer) < 0:
                raise IndexError("negative numbers")
            operator = self._plan.operators[peer.operator]
            spec = operator.replicas[peer.replica]
        except IndexError as error:
            raise UserError(f"the plan has no such replica: {error}") from None
        if spec.host != self.request.host:
            raise UserError(f"its host is {spec.host}, and this is {self.request.host}")
        return placed(operator, peer, self.request.reach, self._home.sockets)

    def _fork(self, peer: Peer, child: Child, resume: control.Resume | None) -> None:
        if self.closing:
            return
        child.pid, child.alive, child.idle_until = None, True, 0.0
        child.born = child.heard = time.monotonic()
        self._known.lives(peer, child.incarnation)
        child.serial = self._home.serial()
        self._serials[child.serial] = (peer, child)
        self._forks.ask(self.request, peer, child, resume)

    def _crash(self, peer: Peer) -> None:
        """Kill a replica because somebody wants to see what happens; one that is dead just now stays so."""
        child = self._children.get(peer)
        if child is not None and child.alive:
            child.asked_for = True
            self._home.kill(Kill(child.serial))

    # -- deaths and recoveries -----------------------------------------------------------------------------------

    def on_zygote(self, report: Forked | NotForked | Ended) -> None:
        peer, child = self._serials[report.serial]
        ours = self._children.get(peer) is child and report.serial == child.serial
        if isinstance(report, Forked):
            if report.serial == child.serial:
                child.pid, child.lost = report.pid, 0.0
                self._forks.worked(peer)
            if self.closing or not ours:
                self._home.kill(Kill(report.serial))
            self.tell_owner(control.Spawned(*peer, report.pid))
            return
        del self._serials[report.serial]
        if ours and isinstance(report, NotForked):
            self._on_no_process(peer, child, report.reason)
        elif ours and isinstance(report, Ended):
            self._on_death(peer, child, report)

    def _on_no_process(self, peer: Peer, child: Child, reason: str) -> None:
        """A replica could not be forked. One that is to be brought back stays dead a while, whoever asks for it; then
        ``tick`` goes on with it as with any death."""
        child.alive = False
        if not child.incarnation:
            child.over = True
            self.tell_owner(control.Refused(*peer, reason))
        elif (pause_s := self._forks.failed(peer)) is not None:
            log.warning("not brought back yet", replica=child.name, reason=reason, again_in_s=pause_s)
            child.idle_until = time.monotonic() + pause_s
        else:
            why = f"{child.name} cannot be brought back on {self.request.host}: {reason} ({TRIED})"
            self._give_up(child, control.Failed(*peer, "run", why, None))

    def _give_up(self, child: Child, failure: control.Failed) -> None:
        """Nobody can take the place of a replica: the run fails, and who attaches later hears why."""
        child.over, self._known.failure = True, failure
        self._send(self.request.master, failure)

    def _on_death(self, peer: Peer, child: Child, report: Ended) -> None:
        log.info("replica ended", replica=child.name, pid=report.pid, status=report.status)
        child.die()
        child.over = self.closing or report.status in (0, FAILED_STATUS)
        if report.status == SUPERSEDED_STATUS:
            child.idle_until = time.monotonic() + patience_s(self._plan)
        self.tell_owner(control.Died(*peer, report.pid, report.status, child.incarnation, recovers=not child.over))
        if report.status == FAILED_STATUS and not self.closing and self._known.failure is None:
            self._known.fail(control.Failed(*peer, "run", f"exit code 1; see {self.folder}", child.incarnation))
        if not child.over and child.hopeless:
            why = f"{child.hopeless}: {describe(report.status)}; see the logs in {self.folder}"
            self._give_up(child, control.Failed(*peer, "run", why, None))
        if not child.over and not child.idle_until:
            self._spread_the_news(peer, child)

    def tick(self) -> None:
        """Say again who is dead, as long as nobody does something about it; and that we are there to hold copies."""
        self._copies.beat(self._children)
        for peer, child in self._children.items():
            if not child.alive and not child.over and time.monotonic() > child.idle_until:
                self._spread_the_news(peer, child)
        if not self.closing:
            self._moves.tick()
        if self._spreading is not None and (unheard := self._spreading.unheard()):
            self._home.keep()
            again = {lost for adopt in unheard for lost in self._say_again(adopt, self._spreading)}
            for lost in filter(self._wanted, again.intersection(self._children)):
                self._respawn(lost, self._children[lost])

    def _say_again(self, adopt: Adopt, spreading: Spreading) -> list[Peer]:
        """If the adopter has died on another host, its PCS does not know what it was to have: we do. Who has it now."""
        adopter = Peer(adopt.operator, adopt.replica)
        if adopter not in self._children and not self._lives(adopter):
            return [spreading.take_back(adopter)]
        self._send(self._known.directory[adopt.operator][adopt.replica], adopt)
        return []

    def _on_down_elsewhere(self, message: Down) -> None:
        peer = Peer(message.operator, message.replica)
        if peer in self._children or not self._known.has(peer):
            self._home.endpoint.drop("the death of a replica that is not of another host")
        else:
            self._elsewhere[peer] = time.monotonic()

    def _living(self, peer: Peer, child: Child) -> list[Peer]:
        """The others of a ring that are not known to be dead."""
        others = [Peer(peer.operator, replica) for replica in range(child.ring) if replica != peer.replica]
        return [other for other in others if self._lives(other)]

    def _lives(self, peer: Peer) -> bool:
        """Whether a replica is not known to be dead."""
        child = self._children.get(peer)
        return self._elsewhere.get(peer, 0.0) < time.monotonic() - NEWS_S if child is None else child.alive

    def _spread_the_news(self, peer: Peer, child: Child) -> None:
        """Tell the ring who is down; if nobody is left in it, or it has not begun yet, act."""
        if not self._known.directory:
            self._start_again(peer, child)
            return
        down = Down(peer.operator, peer.replica, child.incarnation)
        living = self._living(peer, child)
        elsewhere = [Peer(peer.operator, replica) for replica in range(child.ring)]
        pcs = {self._moves.pcs_of(other) for other in elsewhere if other not in self._children}
        for address in sorted(
            {a for a in pcs if a is not None} | {self._known.directory[o.operator][o.replica] for o in living}
        ):
            self._send(address, down)
        if not living and self._wanted(peer):
            self._respawn(peer, child)

    def _start_again(self, peer: Peer, child: Child) -> None:
        """Nobody knew of the others yet: what takes its place is told step by step, as it would have been."""
        child.incarnation = self._moves.next_incarnation(child.incarnation)
        if self._spreading is not None:
            self._spreading.reborn(peer, child.incarnation)
        self._fork(peer, child, None)

    def _wanted(self, peer: Peer) -> bool:
        """Whether a dead replica is to be replaced: its peers may have its slices already."""
        return self._spreading is None or bool(self._spreading.slices(peer))

    def _respawn_on_request(self, request: control.Respawn) -> None:
        peer = Peer(request.operator, request.replica)
        child = self._children.get(peer)
        if child is None:
            self._moves.want(request)
            return
        if child.over or time.monotonic() < child.idle_until:
            return
        if not child.alive:
            if self._known.directory and self._wanted(peer):  # Without a directory it is started again, by ``tick``.
                child.incarnation = max(child.incarnation, request.incarnation - 1)
                self._respawn(peer, child)
        elif request.incarnation > child.incarnation and child.hangs(self._plan.suspect_after_ms / 1000):
            log.warning("replica hangs: killed", replica=child.name, pid=child.pid)
            if child.pid is not None:
                child.lost = child.heard
                self._home.kill(Kill(child.serial))

    def _respawn(self, peer: Peer, child: Child) -> None:
        """Start a new incarnation, or have the others adopt its slices."""
        adopters = self._adopters(peer, child)
        if self._spreading is not None and adopters:
            adopters = self._spreading.spread(peer, child.incarnation, adopters)
            log.info("spread", replica=child.name, over=adopters)
            self.tell_owner(control.Spread(*peer, tuple(adopters)))
            return
        if peer.operator in self._known.started and (loss := self._copies.loss(peer)) is not None:
            self._give_up(child, loss)
            return
        child.incarnation = self._moves.next_incarnation(child.incarnation)
        self._bring_up(peer, child)

    def _bring_up(self, peer: Peer, child: Child) -> None:
        """A new incarnation asks everybody in its ring who is not known to be dead for copies. What we know of other
        hosts may be old by now, so everybody there is asked: who is dead is being brought back, and answers."""
        ring = [Peer(peer.operator, replica) for replica in range(child.ring) if replica != peer.replica]
        elsewhere = {other.replica: 0 for other in ring if other not in self._children}
        here = {
            o.replica: self._children[o].incarnation for o in ring if o in self._children and self._children[o].alive
        }
        living = elsewhere | here
        log.info("respawn", replica=child.name, incarnation=child.incarnation, living=living)
        slices = None
        if self._spreading is not None:
            slices = self._spreading.respawn(peer)
            self._home.keep()
        self._fork(peer, child, self._known.resume(peer, living, slices, child.lost or time.monotonic()))

    def _adopters(self, peer: Peer, child: Child) -> list[int]:
        """Who may adopt a lost replica's slices. What writes files, or listens, stays on its host."""
        stay = stays(self._plan.operators[peer.operator]) is not None
        living = self._living(peer, child)
        return [other.replica for other in living if not stay or other in self._children]

    def _on_adopted(self, message: control.Adopted) -> None:
        """A replica has got slices of a lost one: ours tells us, and we the other PCSs."""
        peer = Peer(message.operator, message.replica)
        if self._spreading is None or not self._known.has(peer):
            self._home.endpoint.drop("slices were adopted, and nobody is to adopt any")
            return
        slices = self._plan.operators[peer.operator].slices
        if any(not 0 <= index < slices or incarnation < 0 for index, incarnation in message.slices):
            self._home.endpoint.drop(f"slices {message.slices} were adopted, and there are none such")
            return
        self._spreading.adopted(peer, message.slices)
        self._spreading.heard(peer, message.slices)
        if peer in self._children:
            self._tell_others(message)

    # -- after another PCS ---------------------------------------------------------------------------------------

    def kept(self) -> bytes:
        """What a PCS that takes our place has to know."""
        known, book = self._known, None if self._spreading is None else self._spreading.book()
        slow = tuple((*peer, ms) for peer, ms in known.slow.items())
        news, moved = known.news(self._home.address), tuple(known.moved.values())
        reign, copies = self.mastery.reign, self._copies.incarnation
        return msgspec.msgpack.encode(
            Kept(self.request, self.folder, reign, self.began, copies, news, slow, known.cuts, moved, book)
        )

    def adopt(self, kin: Iterable[Kin]) -> None:
        """Take in the replicas that the PCS before us has left, dead, alive, unborn; the living know nothing of it."""
        ended = []
        for one in kin:
            peer, operator = Peer(one.operator, one.replica), self._plan.operators[one.operator]
            name, ring = f"{operator.name} replica {one.replica}", len(operator.replicas)
            child = Child(name, one.bind, ring, one.incarnation, one.serial, one.pid)
            if one.status is None:
                self._serials[one.serial] = (peer, child)
            if not self._moves.is_ours(peer, one.incarnation):
                # It was taken over, by another host or back by us, and our zygote had not been told yet to end it.
                self._home.kill(Kill(one.serial))
                continue
            self._children[peer] = child
            self._known.lives(peer, one.incarnation)
            if one.status is not None:
                ended.append((peer, child, Ended(one.serial, one.pid, one.status)))
        unborn = self._moves.unborn()
        self._children.update(unborn)
        for death in ended:
            self._on_death(*death)
        for peer, child in unborn.items():
            self._spread_the_news(peer, child)

    # -- without a PuppetMaster ----------------------------------------------------------------------------------

    @property
    def over(self) -> str | None:
        """Why the run ends if there is no PuppetMaster; None: it goes on."""
        stopped = all(child.over for child in self._children.values()) and bool(self._children)
        return self._known.over() or ("its replicas here were stopped" if stopped else None)

    def gossip(self) -> None:
        """Tell the other PCSs what we know; and our replicas, who may not have heard all that the PuppetMaster said."""
        self._tell_others(self._known.news(self._home.address))
        for address in self._known.others(self.request.host):
            # A PCS that is gone for long is not to find a heap of old news.
            self._home.endpoint.hang_up(address)
        for message in self._known.for_replicas():
            for child in self._children.values():
                if child.alive:
                    self._send(child.bind, message)

    def call_off(self, reason: str) -> None:
        """The run is over: let the other PCSs know, too."""
        self._tell_others(self._known.news(self._home.address))
        self._tell_others(control.Shutdown(reason))

    def _tell_others(self, message: control.Message) -> None:
        for address in self._known.others(self.request.host):
            self._send(address, message)

    def here(self) -> control.RunHere:
        """The run at a glance, for somebody who looks for it."""
        now, request = time.monotonic(), self.request
        since_s, silent_s = now - self.began, now - self.mastery.heard
        return control.RunHere(
            request.run, self.name, request.host, self._known.hosts, self.folder, since_s, silent_s
        )

    def shown(self) -> control.Shown:
        """All that a new PuppetMaster needs."""
        replicas = tuple(control.ReplicaHere(*peer, c.incarnation, c.pid) for peer, c in self._children.items())
        request, news = self.request, self._known.news(self._home.address)
        return control.Shown(request.host, self.mastery.reign, request.plan, request.shake, news, replicas)

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill what is left; ``gone`` tells when there is nothing left."""
        self.closing = True
        for serial in self._serials:
            self._home.kill(Kill(serial))

    def has(self, serial: int) -> bool:
        return serial in self._serials

    @property
    def gone(self) -> bool:
        return not self._serials

    @property
    def processes(self) -> list[int]:
        return [child.pid for child in self._children.values() if child.pid is not None]

    def forget(self) -> None:
        """Give back ports and connections."""
        for child in self._children.values():
            if child.port is not None:
                child.port.close()
        there = {a for replicas in self._known.directory for a in replicas} | set(self._known.others(self.request.host))
        for address in there | {self.request.master}:
            self._home.endpoint.hang_up(address)
