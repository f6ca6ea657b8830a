"""A configuration written down as a topology, each of whose lines remembers the place in the old file it stands for."""

from __future__ import annotations

import json
import re

from dadstorm.legacy.clauses import OldOperator
from dadstorm.legacy.widths import Stream
from dadstorm.topology.report import Origin, Place

_WORD = re.compile(r"[A-Za-z_][\w./-]*\Z")
_PLAIN_VALUE = re.compile(r"[A-Za-z][\w./@-]*\Z")
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off")


class Page:
    """Lines of YAML and where they come from."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._places: list[Place] = []

    def add(self, text: str, place: Place) -> None:
        self._lines.append(text)
        self._places.append(place)

    @property
    def origin(self) -> Origin:
        return Origin("".join(f"{line}\n" for line in self._lines), tuple(self._places))


def scalar(text: str) -> str:
    """A text as YAML has it: as it is if it can only be a word, else in quotes."""
    return text if _WORD.match(text) and text.lower() not in _YAML_WORDS else quoted(text)


def quoted(text: str) -> str:
    """A text in double quotes. JSON's strings are YAML's, but for what YAML takes for line ends or no text at all."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def flow(texts: list[str]) -> str:
    """One value as it is, several as a list."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def write_source(page: Page, name: str, files: tuple[str, ...], width: int, place: Place) -> None:
    page.add(f"  {scalar(name)}:", place)
    page.add(f"    csv: {flow([scalar(file) for file in files])}", place)
    page.add(f"    fields: {width}", place)
    page.add('    comment: "%"', place)


def write_operator(page: Page, operator: OldOperator, reads: list[str], given: Stream, made: Stream) -> None:
    """An operator that reads streams like ``given`` and makes one like ``made``."""
    spec = operator.spec
    page.add(f"  {scalar(operator.name)}:", operator.place)
    page.add(f"    input: {flow([scalar(name) for name in reads])}", operator.input_place)
    if spec.kind == "FILTER":
        page.add(f"    filter: {_condition(operator, given)}", spec.place)
    elif spec.kind == "UNIQ":
        page.add(f"    uniq: {_field(spec.field, given)}", spec.place)
    elif spec.kind == "CUSTOM":
        page.add(f"    custom: {spec.function}", spec.place)
        page.add("    mode: list", spec.place)
        page.add(f"    fields: {made.width}", spec.place)
    else:
        page.add(f"    {spec.kind.lower()}:", spec.place)
    if spec.kind == "COUNT" and not made.number:
        page.add(f"    fields: {made.width}", spec.place)
    page.add(f"    replicas: {operator.replicas}", operator.replicas_place)
    if operator.routing and operator.stateful:
        page.add(f"    # routing {operator.routing}: its state decides", operator.routing.place)
    elif operator.routing:
        written = operator.routing.policy
        if operator.routing.field:
            written += f"({_field(operator.routing.field, given)})"
        page.add(f"    routing: {written}", operator.routing.place)
    if operator.addresses:
        written = flow(["auto" if one is None else str(one) for one in operator.addresses])
        page.add(f"    address: {written}", operator.address_place)


def write_script(page: Page, commands: list[tuple[str, int]]) -> None:
    """The commands of the file and their lines: the topology's script."""
    if commands:
        page.add("", Place(1, 1))
        page.add("script:", Place(commands[0][1], 1))
    for text, line in commands:
        page.add(f"  - {text}", Place(line, 1))


def _field(number: int, stream: Stream) -> str:
    return "count" if stream.number else f"f{number}"


def _condition(operator: OldOperator, given: Stream) -> str:
    spec = operator.spec
    field = _field(spec.field, given)
    if _PLAIN_VALUE.match(spec.value) and not given.number:
        # A value that is no number is always compared as text.
        return f'{field} {spec.op} "{spec.value}"'
    return f"{{field: {field}, op: {quoted(spec.op)}, value: {quoted(spec.value)}, compare: loose}}"
