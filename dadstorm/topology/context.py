"""What compiling one topology needs to have at hand, and the form an operator has on its way to the plan."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from dadstorm.core.ports import MAIN
from dadstorm.plan import Input, OnError, Operator, Replica, Routing
from dadstorm.topology.document import Mapping, Text, found
from dadstorm.topology.fields import Fields
from dadstorm.topology.report import Place, Report
from dadstorm.topology.shapes import Section


@dataclass
class Context:
    report: Report
    base: str
    """The topology's folder: inputs are looked for from here."""
    out: str
    """Where outputs go."""
    libs: tuple[str, ...] = ()
    hosts: dict[str, str] = field(default_factory=dict)
    """Host names of the topology and where their PCS listens."""
    window_bytes: int = 20 << 20
    seed: int = 0
    name: str = ""
    """Of the topology."""
    ragged: bool = False
    """Tuples may lack fields at their end; those are null."""
    taken: dict[str, str] = field(default_factory=dict)
    """Endpoints and files that only one may use, and who does."""

    def path(self, text: str) -> str:
        return os.path.normpath(os.path.join(self.base, text))

    def claim(self, place: Place, thing: str, who: str) -> None:
        """Note that ``who`` uses a port or a file for itself; a second claim is a mistake."""
        if thing in self.taken:
            self.report.mistake(place, f"{who}: {thing} is already used by {self.taken[thing]}; expected another")
        self.taken.setdefault(thing, who)


@dataclass
class Draft:
    """An operator, source or sink on its way to the plan. ``fields`` is None while, or because, they are not known."""

    name: str
    kind: str
    place: Place
    section: Section | None = None
    readings: list[Reading] = field(default_factory=list)
    severed: bool = False
    """One of its inputs is wrong, so what it reads is not known."""
    params: dict[str, Any] = field(default_factory=dict)
    fields: Fields | None = None
    slices: int = 1
    replicas: tuple[Replica, ...] = (Replica("localhost"),)
    routing: Routing = field(default_factory=Routing)
    on_error: OnError = "fail"
    outputs_max: int | None = 1
    """The most outputs of one tuple; None: not said."""

    @property
    def what(self) -> str:
        group = self.kind if self.kind in ("source", "sink") else "operator"
        return f'{group} "{self.name}"'

    def operator(self, inputs: tuple[Input, ...], input_bits: int, output_bits: int) -> Operator:
        return Operator(
            self.name, self.kind, self.params, inputs, self.fields or (), self.slices, self.replicas, self.routing,
            input_bits, output_bits, self.on_error,
        )  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One input of a draft: whose output, which port, and where that is written."""

    operator: str
    place: Place
    port: int = MAIN


def mapping(report: Report, node: Any, what: str) -> Mapping:
    """A node that has to be a mapping; an empty one after a mistake, so that reading can go on."""
    if isinstance(node, Mapping):
        return node
    if not (isinstance(node, Text) and node.is_null):
        report.mistake(node.place, f"{what}: found {found(node)}; expected a mapping of names")
    return Mapping(node.place, {})
