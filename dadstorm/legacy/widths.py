"""How many fields the tuples of each stream have room for.

In the original language a tuple is a list of any length. Here it is a row whose absent fields, at the end, are null; so
every stream needs a width that its longest tuple fits. A file's is that of its longest line; a CUSTOM method's is what
it declares, or else so many that it hardly matters; and a field that somebody asks for must be there to be missed.

Streams that meet at an operator have to agree, and FILTER, UNIQ and DUP pass on what they get: such streams form one
*bundle*, as wide as its widest. COUNT makes one number; where it meets others, or is asked for more fields, it
makes texts like theirs.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from dadstorm.legacy.clauses import OldOperator
from dadstorm.sources.format_ragged import BLANKS, Splitter
from dadstorm.topology.fields import FIELDS_MAX

CUSTOM_WIDTH = 64
"""Fields of a CUSTOM output that declares nothing. An absent field costs some bytes a row; one too many, the run."""


@dataclass(frozen=True)
class Stream:
    """What a source or an operator puts out."""

    width: int
    number: bool = False
    """It is COUNT's and nobody else's: one field, a number."""


class Widths:
    """The streams of a configuration, by the name of the source or operator that makes them."""

    def __init__(
        self,
        operators: list[OldOperator],
        inputs: Mapping[str, tuple[str, ...]],
        sources: Mapping[str, int],
        declared: Mapping[str, int | None],
    ) -> None:
        self._leader = {name: name for name in [*sources, *inputs]}
        self._operators = operators
        self._inputs = inputs
        for operator in operators:
            passes = operator.spec.kind in ("FILTER", "UNIQ", "DUP")
            self._unite([*inputs[operator.name], *([operator.name] if passes else [])])
        self._width = dict.fromkeys(self._leader, 1)
        for name, width in sources.items():
            self._widen(name, width)
        for operator in operators:
            for read in inputs[operator.name][:1]:
                self._widen(read, operator.field_needed)
        customs = [operator.name for operator in operators if operator.spec.kind == "CUSTOM"]
        # A method may hand on what it got: what it makes is at least as wide, through any chain of them.
        for _ in range(len(customs) + 1):
            for name in customs:
                given = max((self._width[self._find(read)] for read in inputs[name]), default=1)
                self._widen(name, declared.get(name) or max(CUSTOM_WIDTH, given))
        counts = {operator.name for operator in operators if operator.spec.kind == "COUNT"}
        made = {self._find(name) for name in [*sources, *customs]}
        numbers = {self._find(name) for name in counts}
        self._numbers = {leader for leader in numbers - made if self._width[leader] == 1}

    def stream(self, name: str) -> Stream:
        """What the consumers of a source or operator get."""
        leader = self._find(name)
        return Stream(self._width[leader], leader in self._numbers)

    def _find(self, name: str) -> str:
        while self._leader[name] != name:
            name = self._leader[name]
        return name

    def _unite(self, names: Iterable[str]) -> None:
        first, *others = (self._find(name) for name in names)
        for other in others:
            self._leader[other] = first

    def _widen(self, name: str, width: int) -> None:
        leader = self._find(name)
        self._width[leader] = min(FIELDS_MAX, max(self._width[leader], width))


class Longest(NamedTuple):
    """The line with the most fields of some data files, and where it stands."""

    width: int = 1
    path: str = ""
    line: int = 0


def longest(paths: Iterable[str]) -> Longest:
    """The longest line of some data files. What cannot be read is left to the source, which says so when it runs."""
    splitter = Splitter()
    found = Longest()
    for path in paths:
        unpack = gzip.open if path.endswith(".gz") and os.path.getsize(path) else open
        with suppress(OSError, EOFError, zlib.error), unpack(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.startswith(b"%") or raw.count(b",") < found.width:
                    continue
                # Every byte as one character: delimiters and quotes are ASCII, and nothing else matters here.
                width = len(splitter.fields(raw.decode("latin-1").strip(BLANKS + "\n")))
                found = max(found, Longest(width, path, number), key=lambda one: one.width)
    return found
