"""Replicas, the hosts they run on and the addresses they bind.

A host is named in ``hosts:``, or is this machine, or is an address (``10.0.0.2``, ``node.example.org:10000``).
In the plan a host is ``localhost`` or HOST:PORT of its PCS.
"""

from __future__ import annotations

import ipaddress
import re

from dadstorm.plan import LOCAL, PCS_PORT, REPLICAS_MAX, SLICES_MAX, Replica
from dadstorm.topology.context import Context
from dadstorm.topology.document import Node, Text, found
from dadstorm.topology.report import Place, Report, nearest
from dadstorm.topology.shapes import Section
from dadstorm.topology.values import integer, parse_int, words

AUTO = "auto"
"""The address of a replica that may bind any."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\Z")


def endpoint(
    report: Report, node: Text, text: str, what: str, port: int | None, example: str
) -> tuple[str, int] | None:
    """HOST and PORT of ``HOST:PORT``; the port may be left out if there is a default one."""
    host, number = _parts(text)
    right = _is_ip(host) or bool(_HOST.match(host))
    if not right or (number is None and port is None):
        report.mistake(node.place, f"{what}: found {found(node)}; expected {example}")
        return None
    value = port if number is None else parse_int(number)
    if value is None or not 1 <= value <= 65535:
        report.mistake(node.place, f'{what}: found {found(node)}; port "{number}" is not from 1 to 65535')
        return None
    return host, value


def _parts(text: str) -> tuple[str, str | None]:
    """Host and port of an endpoint, an IPv6 address with or without its brackets."""
    bracketed = re.match(r"\[([^\]]*)\](?::(.*))?\Z", text)
    if bracketed:
        return bracketed[1], bracketed[2]
    host, colon, number = text.rpartition(":")
    return (host, number) if colon and not _is_ip(text) else (text, None)


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def host(ctx: Context, node: Text, what: str) -> str | None:
    """A host as the plan names it."""
    name = node.text.strip()
    if name in ctx.hosts:
        return ctx.hosts[name]
    if name in (LOCAL, "127.0.0.1", "::1", "[::1]"):
        return LOCAL
    if not (_is_ip(name) or "." in name or ":" in name):
        known = [*ctx.hosts, LOCAL]
        hint = nearest(name, known) or f"; hosts: has {', '.join(ctx.hosts) or 'none'}"
        ctx.report.mistake(node.place, f"{what}: unknown host {found(node)}{hint}")
        return None
    parts = endpoint(ctx.report, node, name, what, PCS_PORT, "a host of hosts:, or HOST or HOST:PORT")
    return join(*parts) if parts else None


def replicas(ctx: Context, section: Section, what: str) -> tuple[Replica, ...]:
    """As many replicas as asked for, each with its host; one here if something about them is wrong."""
    report = ctx.report
    count_node, on_node, address_node = section.get("replicas"), section.get("on"), section.get("address")
    count = None if count_node is None else integer(report, count_node, f"{what}: replicas", 1, REPLICAS_MAX)
    on = None if on_node is None else words(report, on_node, f"{what}: on")
    addresses = None if address_node is None else words(report, address_node, f"{what}: address")
    if count_node is None:
        count = len(addresses or on or ()) or 1
    if count is None:
        count = 1
        addresses = None
    hosts = [host(ctx, one, f"{what}: on") or LOCAL for one in on or ()]
    if on_node is not None and len(hosts) > count:
        report.warn(on_node.place, f"{what}: {len(hosts)} hosts for {count} replicas; the last ones are not used")
    if address_node is not None and addresses is not None and len(addresses) != count:
        report.mistake(
            address_node.place, f"{what}: found {len(addresses)} addresses for {count} replicas; expected one each"
        )
        addresses = None
    bound = [_address(ctx, one, what) for one in addresses or ()]
    made = []
    for index in range(count):
        own_host, own_address = bound[index] if bound else (LOCAL, None)
        made.append(Replica(hosts[index % len(hosts)] if hosts else own_host, own_address))
    return tuple(made)


def _address(ctx: Context, node: Text, what: str) -> tuple[str, str | None]:
    """The host that an address lies on, and the address."""
    example = "an address such as tcp://10.0.0.1:11000, or auto"
    text = node.text.strip()
    if text == AUTO:
        return LOCAL, None
    if not text.startswith("tcp://"):
        ctx.report.mistake(node.place, f"{what}: address: found {found(node)}; expected {example}")
        return LOCAL, None
    parts = endpoint(ctx.report, node, text[len("tcp://") :], f"{what}: address", None, example)
    if parts is None:
        return LOCAL, None
    named, port = parts
    address_host = _parts(ctx.hosts[named])[0] if named in ctx.hosts else named
    address = f"tcp://{join(address_host, port)}"
    claim_port(ctx, node.place, address_host, port, what)
    for pcs in ctx.hosts.values():
        if _parts(pcs)[0] == address_host:
            return pcs, address
    return (LOCAL if address_host in (LOCAL, "127.0.0.1", "::1") else join(address_host, PCS_PORT)), address


def claim_port(ctx: Context, place: Place, address_host: str, port: int, what: str) -> None:
    """Note that a port is used, whatever the host is called."""
    canonical = LOCAL if address_host in ("127.0.0.1", "::1") else address_host
    ctx.claim(place, f"port {join(canonical, port)}", what)


def slices(report: Report, section: Section, what: str, count: int) -> tuple[int, bool]:
    """How many slices, and whether the user said so; as many as replicas if not."""
    node: Node | None = section.get("slices")
    if node is None:
        return count, False
    value = integer(report, node, f"{what}: slices", 1, SLICES_MAX)
    return (count if value is None else value), value is not None
