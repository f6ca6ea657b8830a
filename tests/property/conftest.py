"""The long profile takes as long as it takes: no time limit per test."""

from __future__ import annotations

from pathlib import Path

import pytest
from budget import LONG

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called with the items of the whole session, of which only this folder's are meant."""
    for item in items:
        if LONG and HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(0))
