"""The hosts of a run, as the PuppetMaster sees them: one PCS each.

A host is ``localhost``, where the PuppetMaster's private PCS is, or HOST:PORT of a PCS that somebody started there. All
are asked at once, before anything starts, whether the plan can run there, and everything that is wrong anywhere is told
at once. Afterwards the PuppetMaster and each PCS tell each other every second that they are still there.

A PCS that falls silent is no loss as long as its replicas are heard of: data flows without it, and if it is started
again it adopts them. A PuppetMaster that was told that another one has taken over says nothing more to anybody.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from dadstorm import __version__, audit, logs
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import LOCAL, PCS_PORT, Operator, Plan
from dadstorm.wire import control
from dadstorm.wire.address import host_of, is_loopback, is_tcp, port_of, way_to
from dadstorm.wire.codec import VERSION
from dadstorm.wire.endpoint import Endpoint
from dadstorm.wire.keys import CURE
from pcs.checks import port_problems
from pcs.takeover import patience_s

REACH_S = 2.0
"""How long a PCS may take to answer."""
PULSE_S = 1.0
PCS_SILENT_S = 3.0
"""A PCS that has said nothing for so long is told to be silent."""
PCS_PATIENCE_S = 10.0
"""A host of which nothing was heard for so long, neither of the PCS nor of a replica, is gone, or cut off."""
CLOSE_PATIENCE_S = 5.0

log = logs.get_logger()


@dataclass(slots=True)
class Host:
    """One PCS."""

    name: str
    """As the plan calls it."""
    address: str
    private: bool = False
    opened: control.Opened | None = None
    heard: float = 0.0
    """When its PCS was."""
    replicas_heard: float = 0.0
    silent: bool = False
    """Its PCS has not been heard of for a while, and that was told."""
    closed: bool = False
    problems: list[str] = field(default_factory=list)


class Hosts:
    def __init__(self, plan: Plan, endpoint: Endpoint, token: bytes, private: str | None, *, keys: bool) -> None:
        """``private``: where the PuppetMaster's own PCS listens."""
        self._plan = plan
        self._endpoint = endpoint
        self._token = token
        self._private = private
        self._keys = keys
        self._next_pulse = 0.0
        self._present_since = 0.0
        """Since when we have listened without a pause."""
        self.on_loss: Callable[[str, float], None] = lambda host, silent_s: None
        """Hears of a host of which nothing was heard for so long; again and again."""
        self._folder = ""
        self._master = ""
        self.reign = 0
        """Which PuppetMaster of the run this is."""
        self.superseded = False
        """Another PuppetMaster has taken over."""
        self.observe: Callable[[str], None] = lambda text: None
        """Hears when a PCS falls silent and when it is back."""
        self._kept: dict[str, int] = {}
        """How much of each log is here."""
        self.hosts = {name: self._host(name) for name in names(plan)}
        self._logs = {
            (replica.host, f"{operator.name}.{number}{ending}")
            for operator in plan.operators
            for number, replica in enumerate(operator.replicas)
            for ending in (".log", audit.DIGESTS)
        }

    def _host(self, name: str) -> Host:
        if name == LOCAL:
            return Host(name, self._private or f"tcp://127.0.0.1:{PCS_PORT}", private=self._private is not None)
        return Host(name, f"tcp://{name}")

    @property
    def all_private(self) -> bool:
        return all(host.private for host in self.hosts.values())

    def way(self) -> str:
        """This machine's address as the other hosts reach it."""
        others = sorted(
            (h.address for h in self.hosts.values() if not h.private), key=lambda a: is_loopback(host_of(a))
        )
        return way_to(host_of(others[0]), port_of(others[0])) if others else ""

    # -- before anything starts ----------------------------------------------------------------------------------

    def open(
        self, master: str, folder: str, reach: str, shake: control.Shake, *, look_only: bool = False
    ) -> dict[str, Host]:
        """Ask every PCS whether the plan can run there, and to make ready for it. The hosts, each with its problems."""
        self._folder, self._master = folder, master
        plan = msgspec.msgpack.encode(self._plan)
        for host in self.hosts.values():
            if not self._keys and not host.private and not is_loopback(host_of(host.address)):
                host.problems.append(f"it is another machine, and there are no keys: {CURE}")
                continue
            request = control.Open(self._token, host.name, plan, master, folder, reach, shake, look_only)
            token = self._token if host.private else control.PUBLIC
            self._endpoint.send(host.address, request, token=token)
        self._wait_for_answers()
        silent = [host for host in self.hosts.values() if host.opened is None and not host.problems]
        if any(host.private for host in silent):
            raise RunFailed(f"the PCS, the parent of the replicas, died before it began; see the logs in {folder}")
        with ThreadPoolExecutor(16) as pool:
            for host, problem in zip(silent, pool.map(self._why_silent, silent), strict=True):
                host.problems.append(problem)
        if LOCAL in self.hosts and self.hosts[LOCAL].private:
            self.hosts[LOCAL].problems += port_problems(self._plan, LOCAL, keys=self._keys)
        return self.hosts

    def _wait_for_answers(self) -> None:
        deadline = time.monotonic() + REACH_S
        while (left := deadline - time.monotonic()) > 0:
            if all(host.opened is not None or host.problems for host in self.hosts.values()):
                return
            for item in self._endpoint.receive(min(100.0, left * 1000))[0]:
                self.on_message(item.message)

    def _why_silent(self, host: Host) -> str:
        return why_silent(self._endpoint, host.address, keys=self._keys)

    def problems(self) -> list[str]:
        """Everything that is wrong anywhere, in the order of the hosts."""
        return [
            problem if host.private else f"PCS {host.name}: {problem}"
            for host in self.hosts.values()
            for problem in host.problems
        ]

    def take_over(self, master: str, folder: str, reign: int) -> None:
        """Be the PuppetMaster of a run that is open already; where a PCS is dead just now, when it is back."""
        self._master, self._folder, self.reign = master, folder, reign
        for host in self.hosts.values():
            host.heard = host.replicas_heard = time.monotonic()
        self.keep_in_touch()

    # -- while it runs -------------------------------------------------------------------------------------------

    def address_of(self, host: str) -> str:
        return self.hosts[host].address

    def addresses_of(self, host: str) -> tuple[str, ...]:
        """Where a PCS listens, for whoever does."""
        return tuple(dict.fromkeys((self.hosts[host].address, self._public(host))))

    def tell(self, message: control.Message) -> None:
        """Tell every PCS."""
        for host in self.hosts.values():
            self._endpoint.send(host.address, message)

    def directory(self) -> tuple[tuple[str, ...], ...]:
        """Where the PCS of each replica listens, for the other PCSs."""
        return tuple(tuple(self._public(replica.host) for replica in op.replicas) for op in self._plan.operators)

    def _public(self, name: str) -> str:
        opened = self.hosts[name].opened
        return self.hosts[name].address if opened is None else opened.address

    def on_message(self, message: control.Message) -> bool:
        """Take in what a PCS says about itself; False if it is about something else."""
        if not isinstance(
            message, control.Opened | control.Pulse | control.Superseded | control.Log | control.Closed
        ):
            return False
        host = self.hosts.get(message.host)
        if host is None:
            self._endpoint.drop(f"a {type(message).__name__} of a host that is not ours")
            return True
        host.heard = time.monotonic()
        if isinstance(message, control.Opened):
            self._on_opened(host, message)
        elif isinstance(message, control.Superseded):
            self.superseded = True
            raise RunFailed(
                f"another PuppetMaster, at {message.master}, has taken over the run; it goes on, and this one ends"
            )
        elif isinstance(message, control.Log):
            self._on_log(host, message)
        elif isinstance(message, control.Closed):
            host.closed = True
            if message.reason:
                raise RunFailed(f"the PCS {host.name} has ended the run: {message.reason}")
        return True

    def _on_opened(self, host: Host, message: control.Opened) -> None:
        host.opened = message
        host.problems += message.problems
        if message.version != __version__:
            host.problems.append(f"it has DADSTORM {message.version}, and this is {__version__}: install the same")

    def _on_log(self, host: Host, message: control.Log) -> None:
        """Append what a replica of another host has logged to the file of its name here."""
        name = message.file
        if name == "printed.txt":
            name = f"printed-{re.sub(r'[^A-Za-z0-9.-]', '-', host.name)}.txt"
        elif (host.name, name) not in self._logs:
            self._endpoint.drop(f"a log {name!r} that is not of a replica of {host.name}")
            return
        here = self._kept.get(name, 0)
        self._kept[name] = max(here, message.offset + len(message.data))
        try:
            with open(os.path.join(self._folder, name), "ab") as file:
                file.write(message.data[max(0, here - message.offset) :])
        except OSError as error:
            log.warning("a log cannot be kept", file=name, error=str(error))

    def keep_in_touch(self) -> None:
        """Tell the PCSs that we are there; see whether they are."""
        now = time.monotonic()
        if now < self._next_pulse:
            return
        # Who was not here itself cannot blame others for their silence.
        late = self._next_pulse and now > self._next_pulse + PCS_PATIENCE_S / 2
        if now > self._next_pulse + PULSE_S:
            self._present_since = now
        self._next_pulse = now + PULSE_S
        silent = self._silent(now)
        for host in self.hosts.values():
            self._endpoint.send(host.address, control.Pulse(host.name, self.reign, self._master, silent))
            if late:
                host.heard = host.replicas_heard = now
            if not host.private and host.heard:
                self._look_at(host, now)

    def _look_at(self, host: Host, now: float) -> None:
        """Tell when a PCS falls silent and when it is back; see to a host of which nothing is heard any more."""
        silent = now - host.heard > PCS_SILENT_S
        if silent != host.silent:
            host.silent = silent
            self.observe(f"PCS {host.name} {'silent' if silent else 'back'}")
        silent_s = now - max(host.heard, host.replicas_heard)
        if silent_s > PCS_PATIENCE_S:
            self.on_loss(host.name, silent_s)

    def _silent(self, now: float) -> tuple[str, ...]:
        """Hosts of which we have heard nothing for too long: our voice when PCSs ask themselves who is lost."""
        least_s = patience_s(self._plan) + PULSE_S
        return tuple(
            host.name
            for host in self.hosts.values()
            if host.heard and now - max(host.heard, host.replicas_heard, self._present_since) > least_s
        )

    def heard_replica(self, name: str) -> None:
        """A replica of this host has said something."""
        self.hosts[name].replicas_heard = time.monotonic()

    def has_moved(self, host: str, log_file: str) -> bool:
        """A replica lives on this host now, and its log comes from there; False if there is no such host."""
        self._logs.add((host, log_file))
        return host in self.hosts

    def close(self) -> None:
        """End the run everywhere, and wait for the last logs. May be called at any time, more than once."""
        if self.superseded:
            return
        left = [host for host in self.hosts.values() if not host.closed and (host.opened is not None or self.reign)]
        for host in left:
            self._endpoint.send(host.address, control.Shutdown())
        now = time.monotonic()
        left = [host for host in left if not host.private and now - host.heard < CLOSE_PATIENCE_S]
        deadline = now + CLOSE_PATIENCE_S
        while any(not h.closed for h in left) and time.monotonic() < deadline:
            for item in self._endpoint.receive(50)[0]:
                try:
                    self.on_message(item.message)
                except RunFailed as error:
                    log.warning("while ending", error=str(error))


def why_silent(endpoint: Endpoint, where: str, *, keys: bool) -> str:
    """What can be found out about a PCS that does not answer. ``keys``: whether we have some."""
    foreign = {address: version for address, version in endpoint.foreign}
    if (version := foreign.get(where.encode())) is not None:
        return f"it speaks version {version} of the wire, and this is version {VERSION}: install the same DADSTORM"
    try:
        socket.create_connection((host_of(where), port_of(where)), timeout=REACH_S).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return f"no PCS can be reached there: {reason}; start one there: pcs --host {host_of(where)}"
    ours = "has other keys than ours, or none" if keys else "has keys, and we have none: give --keys DIR"
    return f"somebody listens there but does not answer us within {REACH_S:.0f} s: no PCS, or one that {ours}"


def names(plan: Plan) -> list[str]:
    """The hosts of a plan, each once, in the plan's order."""
    return list(dict.fromkeys(replica.host for operator in plan.operators for replica in operator.replicas))


def place(plan: Plan, pcs: Iterable[str]) -> Plan:
    """The plan with what is on this machine spread over these PCSs (HOST or HOST:PORT): replica k goes to the k-th.

    What has an address of its own, and standard input, stays."""
    where = [address if is_tcp(f"tcp://{address}") else f"{address}:{PCS_PORT}" for address in pcs]
    for address in where:
        if not is_tcp(f"tcp://{address}"):
            raise UserError(f'--pcs "{address}": expected HOST or HOST:PORT')
    if not where:
        return plan
    return msgspec.structs.replace(plan, operators=tuple(_placed(operator, where) for operator in plan.operators))


def _placed(operator: Operator, where: list[str]) -> Operator:
    if operator.kind == "source" and operator.params["type"] == "stdin":
        return operator
    replicas = tuple(
        msgspec.structs.replace(replica, host=where[number % len(where)])
        if replica.host == LOCAL
        and (replica.address is None or is_loopback(host_of(f"tcp://{where[number % len(where)]}")))
        else replica
        for number, replica in enumerate(operator.replicas)
    )
    return msgspec.structs.replace(operator, replicas=replicas)
