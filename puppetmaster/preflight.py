"""What can be found wrong on this machine before anything starts: addresses that cannot be had."""

from __future__ import annotations

import errno
import socket

from dadstorm.errors import UserError
from dadstorm.plan import Plan


def check_ports(plan: Plan) -> None:
    """Every address that the topology fixes must be free; all that are not are told at once."""
    wanted = [
        (f"operator {operator.name}, replica {number}", replica.address.removeprefix("tcp://"))
        for operator in plan.operators
        for number, replica in enumerate(operator.replicas)
        if replica.address is not None
    ]
    wanted += [
        (f"source {operator.name}", operator.params["listen"])
        for operator in plan.operators
        if operator.kind == "source" and operator.params["type"] == "tcp"
    ]
    problems = [problem for who, address in wanted if (problem := _problem(who, address))]
    if problems:
        raise UserError(*problems)


def _problem(who: str, address: str) -> str | None:
    """Why this address cannot be listened on; None if it can."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
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
