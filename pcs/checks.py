"""What can be found wrong with a plan on one host, before anything starts there. Nothing here runs anything."""

from __future__ import annotations

import errno
import os
import socket

from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from dadstorm.wire.address import host_of, is_loopback, port_of
from dadstorm.wire.keys import CURE


def replicas_on(plan: Plan, host: str) -> list[Peer]:
    """The replicas that a plan places on a host."""
    return [
        Peer(index, number)
        for index, operator in enumerate(plan.operators)
        for number, replica in enumerate(operator.replicas)
        if replica.host == host
    ]


def listeners(plan: Plan, host: str) -> list[tuple[str, str]]:
    """Who is to listen on which HOST:PORT there, because the user says so."""
    wanted = [
        (f"operator {plan.operators[peer.operator].name}, replica {peer.replica}", address.removeprefix("tcp://"))
        for peer in replicas_on(plan, host)
        if (address := plan.operators[peer.operator].replicas[peer.replica].address) is not None
    ]
    return wanted + [
        (f"source {operator.name}", operator.params["listen"])
        for operator in plan.operators
        if operator.kind == "source" and operator.params["type"] == "tcp" and operator.replicas[0].host == host
    ]


def port_problems(plan: Plan, host: str, *, keys: bool) -> list[str]:
    """Every address that the topology fixes must be free, and without keys must be one that nobody else reaches."""
    problems = []
    for who, address in listeners(plan, host):
        if not keys and not is_loopback(host_of(address)):
            problems.append(
                f"{who}: {address} can be reached by others, and there are no keys: {CURE}; or use 127.0.0.1"
            )
        elif problem := _port_problem(who, address):
            problems.append(problem)
    return problems


def _port_problem(who: str, address: str) -> str | None:
    """Why this address cannot be listened on; None if it can."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host_of(address), port_of(address), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        cure = (
            "Stop what uses it or choose another port."
            if error.errno == errno.EADDRINUSE
            else "Choose an address of this machine."
        )
        return f"{who}: cannot listen on {address}: {error.strerror}. {cure}"
    return None


def file_problem(path: str) -> str | None:
    """Why a data file cannot be read here; None if it can."""
    if not os.path.exists(path):
        return f"there is no file {path}"
    if not os.path.isfile(path):
        return f"{path} is not a regular file"
    return None if os.access(path, os.R_OK) else f"no permission to read {path}"
