"""How the protocol is broken on purpose, and put together again; ``mutants`` has the ways."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dadstorm.simulator.scenario import Outcome, Scenario

SEEDS = 2000
"""Each mutant must be caught by one of so many."""

UNIT = Path(__file__).resolve().parents[1] / "unit"

Patches = Iterable[tuple[Any, str, Any]]
MUTANTS: dict[str, Callable[[], Patches]] = {}
RARE: dict[str, str] = {}
"""Mutants that need a coincidence which so many seeds do not bring, and the unit tests that fail with them."""


def mutant(make: Callable[[], Patches]) -> Callable[[], Patches]:
    """Its name is the function's; what it breaks, the docstring's."""
    MUTANTS[_name(make)] = make
    return make


def rare(tests: str) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    """A mutant that the simulator hardly ever catches, but these unit tests do."""

    def register(make: Callable[[], Patches]) -> Callable[[], Patches]:
        RARE[_name(make)] = tests
        return mutant(make)

    return register


def _name(make: Callable[[], Patches]) -> str:
    return make.__name__.replace("_", " ")


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    """The protocol as the mutant has it."""
    patches = list(MUTANTS[name]())
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in patches]
    try:
        for owner, attribute, value in patches:
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)


def catch(name: str, seeds: Iterable[int] = range(SEEDS)) -> Outcome | None:
    """The first scenario that notices the mutant; None if none of them does."""
    with broken(name):
        for seed in seeds:
            outcome = Scenario(seed).run()
            if outcome.problem:
                return outcome
    return None


def caught_by_unit_tests(name: str) -> bool:
    """Whether the unit tests of a rare mutant pass without it and fail with it."""
    sound = _unit_tests(RARE[name])
    with broken(name):
        return sound == pytest.ExitCode.OK and _unit_tests(RARE[name]) == pytest.ExitCode.TESTS_FAILED


def _unit_tests(file: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.main(["-q", "-p", "no:cacheprovider", str(UNIT / file)])
