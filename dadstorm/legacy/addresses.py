"""Addresses of replicas: ``tcp://HOST:PORT/op``, separated by commas, blanks or both.

What stands after the port names an object inside the process in the original implementation; here a process is one
replica, so it means nothing. ``localhost`` is written as 127.0.0.1, which is what a socket binds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dadstorm.legacy.statements import Piece
from dadstorm.plan import MASTER_PORT, PCS_PORT
from dadstorm.topology.placement import join
from dadstorm.topology.report import Place, Report

RESERVED = {PCS_PORT: "the PCS", MASTER_PORT: "the PuppetMaster"}

_URL = re.compile(
    r"(?P<scheme>tcp://)?(?P<host>\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?):(?P<port>[0-9]{1,9})"
    r"(?P<path>/[^\s,]*)?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    place: Place

    @property
    def key(self) -> tuple[str, int]:
        """What makes two of them the same."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"tcp://{join(self.host, self.port)}"


def address(text: str, place: Place) -> Address | None:
    """An address, with or without ``tcp://`` and ``/op``; None if it is none."""
    match = _URL.match(text)
    if not match or not 1 <= int(match["port"]) <= 65535:
        return None
    host = match["host"].lower().strip("[]")
    return Address("127.0.0.1" if host in ("localhost", "::1") else host, int(match["port"]), place)


def addresses(piece: Piece | None, place: Place, what: str, report: Report) -> tuple[Address, ...]:
    """An operator's addresses, () if it gives none that are right."""
    if piece is None or not piece.text:
        report.warn(piece.place if piece else place, f"{what}: address is missing; any port of this machine will do")
        return ()
    found: list[Address] = []
    right = True
    for match in re.finditer(r"[^\s,]+", piece.text):
        text = match[0].strip("\"“”'")
        lines = piece.text.count("\n", 0, match.start())
        here = piece.place if lines else piece.place._replace(column=piece.place.column + match.start())
        one = address(text, here)
        if one is None:
            expected = "expected tcp://HOST:PORT/op with a port from 1 to 65535"
            report.mistake(here, f'{what}: address: found "{text}"; {expected}')
            right = False
            continue
        if one.port in RESERVED:
            cure = f"port {one.port} is that of {RESERVED[one.port]}; expected another"
            report.mistake(here, f"{what}: address {text}: {cure}")
            right = False
        if not text.lower().startswith("tcp://"):
            report.warn(here, f"{what}: address {text} is taken as tcp://{text}")
        found.append(one)
    return tuple(found) if right else ()


def check_unique(named: list[tuple[str, Address]], report: Report) -> None:
    """No two replicas can bind one address."""
    users: dict[tuple[str, int], tuple[str, Place]] = {}
    for name, one in named:
        if one.key in users:
            other, place = users[one.key]
            whose = "itself" if other == name else f'operator "{other}"'
            message = f"{one} is already used by {whose} in line {place.line}; expected an address of its own"
            report.mistake(one.place, f'operator "{name}": address: {message}')
        users.setdefault(one.key, (name, one.place))
