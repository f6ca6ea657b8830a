"""How the protocol is broken on purpose, and put together again; ``mutants`` has the ways."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dadstorm.simulator.scenario import Outcome, Scenario

SEEDS = 2000
"""Each mutant must be caught by one of so many."""

Patches = Iterable[tuple[Any, str, Any]]
MUTANTS: dict[str, Callable[[], Patches]] = {}


def mutant(make: Callable[[], Patches]) -> Callable[[], Patches]:
    """Its name is the function's; what it breaks, the docstring's."""
    MUTANTS[make.__name__.replace("_", " ")] = make
    return make


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
