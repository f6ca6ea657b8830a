"""Everything that can be found wrong on any host is found before the first replica is spawned, and told at once."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import secrets
import shutil
from collections.abc import Iterator

import zmq

from dadstorm import __version__
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import LOCAL, MASTER_PORT, Plan
from dadstorm.spark import java
from dadstorm.wire.address import host_of, is_tcp, joined, port_of
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.control import Shake
from dadstorm.wire.endpoint import Endpoint
from dadstorm.wire.keys import Keys
from pcs.checks import port_problems
from puppetmaster.hosts import Host, Hosts

FILES_APART = 60
"""Open files that a process has whatever the topology is like."""
FILES_PER_REPLICA = 4
"""And for each replica that it talks to: a socket of ours, its connection, and theirs."""


def check_ports(plan: Plan, keys: Keys | None = None) -> None:
    """Every address on this machine that the topology fixes must be free; all that are not are told at once."""
    problems = port_problems(plan, LOCAL, keys=keys is not None)
    if problems:
        raise UserError(*problems)


def check_spark(plan: Plan) -> None:
    """If something on this machine is read or written with Spark, there have to be a PySpark and a Java."""
    here = (one for one in plan.operators if any(replica.host == LOCAL for replica in one.replicas))
    reads = any(one.kind == "source" and one.params["type"] == "spark" for one in plan.operators)
    needed = any("spark" in (one.params.get("type"), one.params.get("format")) for one in here)
    if needed and (problem := java.problem()):
        raise UserError(problem if reads else f"{problem}; {java.WITHOUT}")


def check_files(plan: Plan) -> None:
    """Everybody may talk to everybody: the system must allow as many open files as that takes."""
    needed = FILES_APART + FILES_PER_REPLICA * sum(len(operator.replicas) for operator in plan.operators)
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise UserError(
            f"connections to all replicas may take {needed} open files, and this system allows {allowed}: "
            "allow more (ulimit -n), or take fewer replicas"
        )


def bind_master(endpoint: Endpoint, hosts: Hosts, sockets: str, listen: str | None) -> tuple[str, str]:
    """Let the PuppetMaster listen: its address, and the host on which a private PCS's replicas have to listen.

    On a file if everything is on this machine. Else on ``listen`` (HOST or HOST:PORT), or on the address from which the
    other hosts are reached, at port 10001, or any if that is in use."""
    if hosts.all_private and listen is None:
        try:
            return endpoint.bind(f"ipc://{sockets}/master"), ""
        except zmq.ZMQError as error:
            raise RunFailed(f"the PCS, the parent of the replicas, died before it began: {error}") from None
    named = listen is not None and ":" in listen
    if listen is not None and not is_tcp(f"tcp://{listen}" if named else joined(listen, MASTER_PORT)):
        raise UserError(f'--listen "{listen}": expected HOST or HOST:PORT')
    host = host_of(listen) if listen is not None and named else listen or hosts.way()
    port = port_of(listen) if listen is not None and named else MASTER_PORT
    try:
        return endpoint.bind(joined(host, port)), host
    except zmq.ZMQError as error:
        if named:
            raise UserError(f"the PuppetMaster cannot listen on {listen}: {error.strerror or error}") from None
    try:
        return endpoint.bind(joined(host, 0)), host
    except zmq.ZMQError as error:
        raise UserError(f"the PuppetMaster cannot listen on {host}: {error.strerror or error}") from None


@contextlib.contextmanager
def opened(hosts: Hosts, master: str, folder: str, reach: str, shake: Shake) -> Iterator[Hosts]:
    """The run is open at all its hosts while the block runs; UserError with every problem if it cannot be."""
    try:
        hosts.open(master, folder, reach, shake)
        if problems := hosts.problems():
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(folder))
            raise UserError(*problems)
        yield hosts
    finally:
        hosts.close()


def look(plan: Plan, keys: Keys | None) -> dict[str, Host]:
    """Ask the PCSs of a plan what they think of it, without starting anything."""
    token = secrets.token_bytes(TOKEN_BYTES)
    endpoint = Endpoint(token, hears_answers=True, keys=keys)
    try:
        hosts = Hosts(plan, endpoint, token, None, keys=keys is not None)
        local = hosts.hosts.pop(LOCAL, None)
        found = hosts.open(joined("127.0.0.1", MASTER_PORT), "", "", Shake(), look_only=True)
    finally:
        endpoint.close()
    if local is not None:
        local.problems = port_problems(plan, LOCAL, keys=keys is not None)
        local.private = True
        found = {LOCAL: local} | found
    return found


def table(found: dict[str, Host], plan: Plan) -> str:
    """What ``look`` found, for people."""
    rows = [("host", "replicas here", "running", "limit", "version", "python", "result")]
    for name, host in found.items():
        asked = sum(replica.host == name for operator in plan.operators for replica in operator.replicas)
        result = "ok" if not host.problems else f"{len(host.problems)} problem{'s' * (len(host.problems) > 1)}"
        about = ("-", "-", __version__, platform.python_version()) if host.private else ("-", "-", "-", "-")
        if host.opened is not None:
            o = host.opened
            about = (str(o.replicas), str(o.replicas_max), o.version, o.python)
        rows.append((name, str(asked), *about, result))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    problems = [f"{name}: {problem}" for name, host in found.items() for problem in host.problems]
    return "\n".join([*lines, *problems])
