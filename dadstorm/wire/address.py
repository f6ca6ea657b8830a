"""Addresses: ``tcp://HOST:PORT`` and ``ipc://PATH``, and which of them stay on this machine."""

from __future__ import annotations

import ipaddress
import re
import socket

from dadstorm.errors import UserError

_TCP = re.compile(r"tcp://([\w.:\[\]-]+):(\d{1,5})", re.ASCII)
_IPC_BYTES_MAX = len("ipc://") + 107
"""What the system allows for the path of a socket file."""


def is_address(text: str) -> bool:
    """Whether this could be somebody's address: who gives another one is not taken seriously."""
    if text.startswith("ipc://"):
        return "\0" not in text and len("ipc://") < len(text.encode()) <= _IPC_BYTES_MAX
    return is_tcp(text)


def is_tcp(text: str) -> bool:
    found = _TCP.fullmatch(text)
    return found is not None and int(found[2]) < 1 << 16


def host_of(address: str) -> str:
    """The host in ``tcp://HOST:PORT`` or ``HOST:PORT``, without the brackets of IPv6."""
    return address.removeprefix("tcp://").rpartition(":")[0].strip("[]")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def joined(host: str, port: int) -> str:
    """``tcp://HOST:PORT``; IPv6 in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def numeric(host: str) -> str:
    """The IP address of a host; UserError if it has none."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f'the host "{host}" is not known here: {reason}') from None


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this machine's loopback: nobody else can be there."""
    try:
        return ipaddress.ip_address(numeric(host)).is_loopback
    except (UserError, ValueError):
        return False


def way_to(host: str, port: int) -> str:
    """The address of this machine from which a host is reached. Nothing is sent for it."""
    target = numeric(host)
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, port))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(f'the host "{host}" cannot be reached from here: {error.strerror}') from None
