"""How many examples a property gets.

By default as many as fit the whole folder into a minute on one core. ``DADSTORM_HYPOTHESIS=long`` runs fifty times
more. Under ``CI`` the examples are the same in every run, so that a red build says something about the change;
everywhere else they are new each time. A failure prints the line that brings the example back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

LONG = os.environ.get("DADSTORM_HYPOTHESIS") == "long"
LONG_FACTOR = 50
IN_CI = bool(os.environ.get("CI"))

T = TypeVar("T", bound=Callable[..., object])


def examples(count: int) -> Callable[[T], T]:
    """The settings of a property that by default runs so many examples."""
    return settings(
        max_examples=count * LONG_FACTOR if LONG else count,
        deadline=None,
        derandomize=IN_CI and not LONG,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )
