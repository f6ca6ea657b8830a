"""What is known about an operator once its kind has looked at its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dadstorm.topology.fields import Fields

MAX_OUTPUTS = 1 << 32
"""The most outputs of one tuple that can be declared; the rest of the ID's 63 bits is for the other operators."""


@dataclass(frozen=True)
class Computed:
    """``state`` holds the fields that the state is split by: None if there is no state, () if it cannot be split."""

    params: dict[str, Any]
    fields: Fields
    state: tuple[int, ...] | None = None
    outputs_max: int | None = 1
