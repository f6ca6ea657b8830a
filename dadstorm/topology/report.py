"""Collecting mistakes: everything that is wrong in a topology is told at once.

A check that fails writes its mistake here and the compiler goes on with what is left; what depends on the broken part
is then not checked, so that one mistake gives one message. ``close`` raises them all, in the order of the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dadstorm.errors import Mistake, UserError

MISTAKES_MAX = 100
"""A file with more mistakes than this is not a topology gone wrong but something else; nobody reads on."""


class Place(NamedTuple):
    """A position in the topology file; both numbers count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Origin:
    """A topology made out of a file in another language: its text, and for each of its lines the place in that file
    that it comes from, which is where the user looks for a mistake."""

    text: str
    places: tuple[Place, ...]


class Report:
    """The mistakes and warnings about one file; with ``places``, about the text that was made out of it."""

    def __init__(self, file: str, places: Sequence[Place] | None = None) -> None:
        self.file = file
        self._places = places
        self._mistakes: list[Mistake] = []
        self._warnings: list[tuple[Place, str]] = []

    def mistake(self, place: Place | None, message: str) -> None:
        found = Mistake(message, self.file, *self.original(place)) if place else Mistake(message)
        if found not in self._mistakes:
            self._mistakes.append(found)

    def warn(self, place: Place, message: str) -> None:
        self._warnings.append((self.original(place), message))

    def original(self, place: Place) -> Place:
        """Where the user finds what stands at this place."""
        return self._places[min(place.line, len(self._places)) - 1] if self._places else place

    @property
    def warnings(self) -> tuple[str, ...]:
        ordered = sorted(self._warnings, key=lambda warning: warning[0])
        return tuple(f"{self.file}:{place.line}:{place.column}: {message}" for place, message in ordered)

    @property
    def broken(self) -> bool:
        return bool(self._mistakes)

    def close(self) -> None:
        """Raise what was collected, if anything was."""
        if not self._mistakes:
            return
        ordered = sorted(self._mistakes, key=lambda mistake: (mistake.line or 0, mistake.column or 0))
        left = len(ordered) - MISTAKES_MAX
        if left > 0:
            ordered = [*ordered[:MISTAKES_MAX], Mistake(f"and {left} more mistakes", self.file)]
        raise UserError(*ordered)


def closest(word: str, options: Iterable[str]) -> str | None:
    """The option that is spelt most like the word, whatever the case."""
    by_lower = {option.lower(): option for option in options}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def nearest(word: str, options: Iterable[str]) -> str:
    """``; did you mean "x"?`` for the closest option; nothing if none is close."""
    near = closest(word, options)
    return f'; did you mean "{near}"?' if near else ""


def listed(options: Iterable[str]) -> str:
    """``a, b or c``"""
    *most, last = options
    return f"{', '.join(most)} or {last}" if most else last
