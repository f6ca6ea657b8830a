"""Fields as Arrow has them. Apart from the plan, so that who only compiles, sends or shows one need not load Arrow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from dadstorm.plan import Field

ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}
"""Every field type and the Arrow type that carries it. Timestamps are UTC."""


@cache
def schema_of(fields: tuple[Field, ...]) -> pa.Schema:
    return pa.schema([(field.name, ARROW[field.type]) for field in fields])
