"""The service: opens runs and starts their replicas on request, and ends them.

It does what a request asks or refuses it with a reason; a request that makes no sense changes nothing. What a plan may
do here is the ``Policy``'s decision; a private PCS has none, for it belongs to who asks. Runs are kept apart by their
tokens: nobody who does not know a run's token can say anything to it.

A run ends here when its PuppetMaster says so. If that has not been heard of for ``MASTER_PATIENCE_S`` the run goes on
without it, and the PCSs of the run end it among themselves when it is over (``known``). The service ends when
its lifeline closes, when it is told to (a signal; a private one also by the end of its run), and when its zygote is
gone, without which it can neither start nor watch replicas; whatever the reason, its replicas end before it does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import signal
import time
from dataclasses import dataclass

import msgspec

from dadstorm import __version__, logs
from dadstorm.core.messages import Beat, Copy, Down, Seek, Settle
from dadstorm.errors import UserError
from dadstorm.plan import Operator, Plan
from dadstorm.wire import control
from dadstorm.wire.address import is_address, is_tcp, joined
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.endpoint import MESSAGE_BYTES_MAX, Endpoint, Received
from dadstorm.wire.keys import Keys
from pcs import zygote
from pcs.checks import file_problem, replicas_on
from pcs.folders import make_folder
from pcs.home import Home
from pcs.known import Kept
from pcs.line import Bye, Census, Keep, Kill, Kin, Line, Report
from pcs.policy import Policy, decoded
from pcs.run import Run
from pcs.tails import Tails

REPLICAS_MAX = 1024
"""More processes than this on one host are a mistake, or an attack."""
RUNS_MAX = 64
ZYGOTE_PATIENCE_S = 3.0
"""How long the zygote may take to end the replicas, which it kills, and itself."""
MASTER_PATIENCE_S = 10.0
"""A PuppetMaster says something every second. One that was killed never does again."""
GOSSIP_S = 2.0
"""How often PCSs tell each other how a run is that has no PuppetMaster."""
ENDED_MAX = 1000
"""So many runs are remembered to be over, in case that somebody has not heard of it."""
TICK_S = 0.1
BACKLOG = 1000
"""Messages of one sender that may wait; then its connection is not read until there is room."""

PASSING = control.Pulse | control.Present | control.Finished | control.Failed | Beat | Copy | Settle | Seek | Down
"""Messages that change nothing which a PCS would need to know that takes our place."""

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Settings:
    """How a service is set up."""

    token: bytes
    """With this one may open runs."""
    address: str
    sockets: str | None
    """The folder for socket files; it belongs to a private PCS."""
    policy: Policy | None
    keys: Keys | None = None
    replicas_max: int = REPLICAS_MAX
    message_bytes_max: int = MESSAGE_BYTES_MAX
    master_patience_s: float = MASTER_PATIENCE_S


class Service:
    def __init__(
        self, settings: Settings, zygote_pid: int, line: Line, lifeline: int | None, census: Census | None = None
    ) -> None:
        """``census``: what a PCS that was killed has left with this zygote."""
        self._settings = settings
        self._endpoint = Endpoint(
            settings.token,
            keys=settings.keys,
            message_bytes_max=settings.message_bytes_max,
            backlog=BACKLOG if settings.policy else 0,
        )
        self.address = self._endpoint.bind(settings.address)
        self._public_address = self.address
        """Where PCSs of other hosts reach us."""
        self._zygote_pid = zygote_pid
        self._line = line
        self._lifeline = lifeline
        self._runs: dict[bytes, Run] = {}
        self._tails: dict[bytes, Tails] = {}
        self._serial = itertools.count(0 if census is None else census.serial + 1)
        self._kept: dict[bytes, bytes] = {}
        """What the zygote remembers of each run for who takes our place."""
        self._stopping = False
        self._next_tick = 0.0
        self._next_gossip = 0.0
        self._ended: dict[bytes, str] = {}
        """Runs that are over, and why."""
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        for number in (signal.SIGINT, signal.SIGHUP):
            private = settings.policy is None
            signal.signal(number, signal.SIG_IGN if private else lambda *_: self.stop())
        if census is not None:
            self._adopt(census)

    def run(self) -> None:
        """Serve until told to stop."""
        line = self._line.sock.fileno()
        self._endpoint.also_wake_for([line] if self._lifeline is None else [line, self._lifeline])
        try:
            while not self._stopping:
                received, woke = self._endpoint.receive(TICK_S * 1000)
                if self._lifeline in woke:
                    return
                if line in woke:
                    self._on_zygote()
                for item in received:
                    self._on_message_contained(item)
                self._tick()
        except (EOFError, ConnectionError):
            log.error("the zygote is gone", pid=self._zygote_pid)
            if self._settings.policy is not None:
                raise UserError(
                    "the process that starts replicas was killed, so this PCS ends; start it again"
                ) from None
        except Exception:
            log.exception("the PCS failed")
            raise
        finally:
            for run in self._runs.values() if self._settings.policy is not None else ():
                run.tell_owner(control.Closed(run.request.host, "the PCS was ended"))
                if self._is_alone(run):
                    run.call_off(f"the PCS {run.request.host} was ended")
            self._end_replicas()
            self._line.sock.close()
            self._endpoint.close(linger_ms=200)

    def stop(self) -> None:
        self._stopping = True

    def _end_replicas(self) -> None:
        """We go only when the zygote has ended its children and itself. If it was killed, or hangs, they are killed
        from here."""
        gone = self._line.farewell(ZYGOTE_PATIENCE_S)
        orphans = [process for run in self._runs.values() for process in run.processes]
        if gone is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._zygote_pid, signal.SIGKILL)
        for process in () if gone else orphans:
            zygote.kill_group(process)
        with contextlib.suppress(ChildProcessError):
            # One that was adopted is not our child.
            os.waitpid(self._zygote_pid, 0)

    # -- requests ------------------------------------------------------------------------------------------------

    def _on_message_contained(self, received: Received) -> None:
        """One message. A defect that it finds in us ends the run that it is of, and not those of everybody else."""
        try:
            self._on_message(received)
        except (EOFError, ConnectionError):
            raise
        except Exception:
            run = self._runs.get(received.token)
            if self._settings.policy is None:
                raise
            log.exception("a defect", message=type(received.message).__name__, run=None if run is None else run.name)
            if run is not None:
                where = f"the PCS {run.request.host}"
                self._close(run, f"{where} met a defect in DADSTORM; its log has it, please report it")

    def _on_message(self, received: Received) -> None:
        message, run = received.message, self._runs.get(received.token)
        if isinstance(message, control.Open):
            if received.token == self._settings.token:
                self._open(message, received.reply_to)
            else:
                self._endpoint.drop("a run cannot be opened from within another")
        elif isinstance(message, control.Runs | control.Show):
            self._tell(message, received)
        elif run is None:
            self._on_message_without_run(received)
        elif isinstance(message, control.Shutdown):
            self._on_shutdown(run, message, received.reply_to)
        elif isinstance(message, control.Perish):
            self._perish(run)
        else:
            reign = run.mastery.reign
            run.on_message(received)
            if run.mastery.reign != reign and self._settings.policy is not None:
                # A new PuppetMaster has none of the logs.
                self._tails[received.token] = Tails(run.folder)
            if run.mastery.reign != reign or not isinstance(message, PASSING):
                self._keep(run)

    def _on_shutdown(self, run: Run, message: control.Shutdown, reply_to: bytes) -> None:
        """The PuppetMaster's word counts; another PCS's, who gives a reason, only if there is none."""
        if not message.reason:
            run.mastery.ended_by(reply_to)
            self._close(run)
        elif self._is_alone(run, 0.5):
            self._close(run, message.reason)

    def _on_message_without_run(self, received: Received) -> None:
        """Who goes on with a run that is over here has not heard of it."""
        message, reason = received.message, self._ended.get(received.token)
        if isinstance(message, control.News) and reason is not None and is_tcp(message.address):
            self._endpoint.send(message.address, control.Shutdown(reason), token=received.token)
            self._endpoint.hang_up(message.address)
        elif isinstance(message, control.Pulse) and reason is not None:
            self._endpoint.reply(received.reply_to, control.Closed(message.host, reason), token=received.token)
        else:
            self._endpoint.drop(f"a {type(message).__name__} without a run")

    def _tell(self, message: control.Runs | control.Show, received: Received) -> None:
        """What runs here, for a PuppetMaster that wants to attach itself: whoever may open runs may do that."""
        if received.token != self._settings.token or self._settings.policy is None:
            self._endpoint.drop("somebody asks for runs from within a run")
        elif isinstance(message, control.Runs):
            open_runs = [run.here() for run in self._runs.values() if not run.closing]
            self._endpoint.reply(received.reply_to, control.Running(__version__, tuple(open_runs)))
        elif (run := self._runs.get(message.run)) is not None:
            self._endpoint.reply(received.reply_to, run.shown())

    def _perish(self, run: Run) -> None:
        """Die at once with all replicas, as by the loss of the host. A private PCS is no host of its own, and others'
        runs are not part of anybody's experiment."""
        if self._settings.policy is None:
            self._endpoint.drop("a private PCS does not perish")
        elif len(self._runs) > 1:
            run.tell_owner(control.Spared(run.request.host, f"it serves {len(self._runs) - 1} other runs"))
        else:
            log.warning("killed, as an experiment", run=run.name)
            # Otherwise it would wait for another PCS.
            self._line.farewell(ZYGOTE_PATIENCE_S)
            os.kill(os.getpid(), signal.SIGKILL)

    def _open(self, request: control.Open, reply_to: bytes) -> None:
        """Tell all that is wrong; if nothing is, the run exists."""
        problems, plan = self._look(request)
        if plan is not None and not problems and not request.look_only:
            try:
                self._begin(request, plan, reply_to)
            except (UserError, OSError, ValueError) as error:
                problems.append(str(error))
        if problems:
            log.warning("a run is refused", problems=problems[:10])
        opened = control.Opened(
            request.host,
            __version__,
            platform.python_version(),
            self._public_address,
            sum(len(run.processes) for run in self._runs.values()),
            self._settings.replicas_max,
            tuple(problems[:100]),
        )
        token = request.run if len(request.run) == TOKEN_BYTES else self._settings.token
        self._endpoint.reply(reply_to, opened, token=token)

    def _look(self, request: control.Open) -> tuple[list[str], Plan | None]:
        """What is wrong with a request; and its plan, if that can be read."""
        problems = []
        policy = self._settings.policy
        try:
            plan = decoded(request.plan)
        except UserError as error:
            return [str(error)], None
        if len(request.run) != TOKEN_BYTES or (policy is not None and request.run == self._settings.token):
            problems.append("that is no token of a run")
        if request.run in self._runs:
            problems.append("this run is open already")
        if request.run in self._ended:
            problems.append("this run is over")
        if len(self._runs) >= RUNS_MAX:
            problems.append(f"{RUNS_MAX} runs are open here, the most there may be")
        if not (is_address(request.master) if policy is None else is_tcp(request.master)):
            problems.append(f"{request.master!r} is no address of a PuppetMaster")
        asked = len(replicas_on(plan, request.host))
        there = sum(run.replicas for run in self._runs.values())
        if there + asked > self._settings.replicas_max:
            limit = self._settings.replicas_max
            problems.append(f"{asked} replicas more than the {there} here would exceed the limit of {limit}")
        if policy is not None and not problems:
            problems = policy.problems(plan, request.host)
        return problems, plan

    def _problems_with(self, operator: Operator) -> list[str]:
        """Why a replica of an operator cannot come here from a lost host; nothing if it can."""
        there, limit = sum(run.replicas for run in self._runs.values()), self._settings.replicas_max
        if there >= limit:
            return [f"{there} replicas are here, the most there may be"]
        if self._settings.policy is not None:
            return self._settings.policy.operator(operator)
        paths = operator.params["paths"] if operator.kind == "source" and operator.params["type"] == "file" else ()
        return [problem for path in paths if (problem := file_problem(path)) is not None]

    def _begin(self, request: control.Open, plan: Plan, reply_to: bytes) -> None:
        settings, policy = self._settings, self._settings.policy
        if policy is None:
            folder, sockets = request.folder, settings.sockets or request.folder
            logs.configure(process="pcs", file=os.path.join(folder, "pcs.log"))
            if request.reach and not self._runs:
                self._public_address = self._endpoint.bind(joined(request.reach, 0))
        else:
            request = msgspec.structs.replace(request, reach=policy.host)
            plan = policy.confined(plan)
            folder = sockets = make_folder(policy.runs, plan.name)
            log.info("run opened", run=plan.name, folder=folder, master=request.master)
        self._begin_run(request, plan, folder, sockets, reply_to)

    def _begin_run(
        self,
        request: control.Open,
        plan: Plan,
        folder: str,
        sockets: str,
        reply_to: bytes = b"",
        kept: Kept | None = None,
    ) -> Run:
        settings, policy = self._settings, self._settings.policy
        home = Home(
            endpoint=self._endpoint,
            fork=self._line.send,
            kill=self._line.send,
            keep=lambda: self._keep(self._runs[request.run]),
            serial=self._serial.__next__,
            problems=self._problems_with,
            address=self.address,
            public_address=self._public_address,
            folder=folder,
            sockets=sockets,
            keys=None if settings.keys is None else settings.keys.folder,
            confined=policy is not None,
            message_bytes_max=settings.message_bytes_max,
        )
        run = self._runs[request.run] = Run(request, plan, home, reply_to, kept)
        self._endpoint.accept(request.run)
        if policy is not None:
            self._tails[request.run] = Tails(folder)
        self._keep(run)
        return run

    def _keep(self, run: Run) -> None:
        """Have the zygote remember how a run stands."""
        token = run.request.run
        state = run.kept() if self._settings.policy is not None and token in self._runs else b""
        if state != self._kept.get(token, b""):
            self._kept[token] = state
            self._line.send(Keep(token, state))

    # -- what another PCS has left -------------------------------------------------------------------------------

    def _adopt(self, census: Census) -> None:
        """Go on with the runs of a PCS that was killed; end what we do not understand or would not allow."""
        for token, state in census.kept:
            kin = [one for one in census.kin if one.token == token]
            try:
                self._adopt_run(state, kin)
            except (UserError, msgspec.DecodeError, UnicodeDecodeError, IndexError, ValueError) as error:
                log.warning("a run cannot be adopted: its replicas end", reason=str(error))
                self._runs.pop(token, None)
                self._kept.pop(token, None)
                self._line.send(Keep(token, b""))
        for one in census.kin:
            if one.token not in self._runs and one.status is None:
                self._line.send(Kill(one.serial))

    def _adopt_run(self, state: bytes, kin: list[Kin]) -> None:
        kept = msgspec.msgpack.decode(state, type=Kept)
        policy = self._settings.policy
        assert policy is not None, "a private PCS leaves nothing"
        plan = decoded(kept.request.plan)
        problems = policy.problems(plan, kept.request.host, ports=False)
        if problems:
            raise UserError(*problems)
        run = self._begin_run(kept.request, policy.confined(plan), kept.folder, kept.folder, kept=kept)
        run.adopt(kin)
        log.info("run adopted", run=run.name, replicas=len(kin), folder=run.folder)

    # -- what happens --------------------------------------------------------------------------------------------

    def _on_zygote(self) -> None:
        for payload in self._line.receive():
            report = msgspec.msgpack.decode(payload, type=Report)
            for run in () if isinstance(report, Bye) else self._runs.values():
                if run.has(report.serial):
                    run.on_zygote(report)
                    break

    def _tick(self) -> None:
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + TICK_S
        for reply_to, _ in self._endpoint.foreign:
            # Whatever we say, it is of another version: that is what he has to know.
            self._endpoint.reply(reply_to, control.Pulse(""))
        self._endpoint.foreign.clear()
        for run in list(self._runs.values()):
            run.tick()
            self._forward_logs(run)
            if self._is_alone(run) and (reason := run.over) is not None:
                log.warning("a run without PuppetMaster ends", run=run.name, reason=reason)
                run.call_off(reason)
                self._close(run, reason)
            if run.closing and run.gone:
                self._finish(run)
        if now >= self._next_gossip:
            self._next_gossip = now + GOSSIP_S * min(1.0, self._settings.master_patience_s / MASTER_PATIENCE_S)
            for run in self._runs.values():
                # Soon enough for everybody to know as much when his patience ends.
                if self._is_alone(run, 0.5):
                    run.gossip()

    def _is_alone(self, run: Run, part: float = 1.0) -> bool:
        """Whether a run at a daemon has not heard of its PuppetMaster for (this part of) too long."""
        silent_s = time.monotonic() - run.mastery.heard
        patience_s = part * self._settings.master_patience_s
        return self._settings.policy is not None and not run.closing and silent_s > patience_s

    def _forward_logs(self, run: Run, *, last: bool = False) -> None:
        tails = self._tails.get(run.request.run)
        if tails is not None:
            for file, offset, data in tails.rest() if last else tails.news():
                run.tell_owner(control.Log(run.request.host, file, data, offset))

    def _close(self, run: Run, reason: str = "") -> None:
        """End a run; a private PCS ends with it."""
        if self._settings.policy is None:
            self._stopping = True
        elif not run.closing:
            run.reason = reason
            run.close()

    def _finish(self, run: Run) -> None:
        """All replicas of the run are gone."""
        self._forward_logs(run, last=True)
        run.tell_owner(control.Closed(run.request.host, run.reason))
        run.forget()
        token = run.request.run
        self._ended[token] = run.reason or "its PuppetMaster has ended the run"
        if len(self._ended) > ENDED_MAX:
            oldest = next(iter(self._ended))
            self._endpoint.refuse(oldest)
            del self._ended[oldest]
        del self._runs[token]
        del self._tails[token]
        self._keep(run)
        del self._kept[token]
        log.info("run closed", run=run.name, folder=run.folder)
