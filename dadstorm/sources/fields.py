"""Typed values from strings, a column at a time.

The same rules hold in every format and on every path: integers and floats may have blanks around them, a bool is true,
false, 1 or 0 in any case, a timestamp is ISO 8601 (a date, or a date and a time with T or a space between; with Z or an
offset it is converted to UTC, without one it is taken as UTC; at most microseconds). An empty string is a string, and
null for every other type.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.line import Ints
from dadstorm.core.schemas import ARROW

UTC = pa.timestamp("us", "UTC")
EXPECTED = {
    "int": "an integer of 64 bits",
    "float": "a number",
    "bool": "true, false, 1 or 0",
    "timestamp": "an ISO 8601 date or time, such as 2024-05-31T12:30:00Z",
    "string": "a string",
}


def _every_case(word: str) -> list[str]:
    return ["".join(letters) for letters in itertools.product(*((c.lower(), c.upper()) for c in word))]


_NONE: Ints = np.empty(0, np.int64)
TRUE = [*_every_case("true"), "1"]
FALSE = [*_every_case("false"), "0"]


def convert(strings: pa.Array, field_type: str) -> tuple[pa.Array, Ints]:
    """The column as its type, null where the string was empty, and the positions of strings that are not of the
    type."""
    if field_type == "string":
        return strings, _NONE
    cast = _CASTS[field_type]
    empty = pc.equal(strings, "")
    present = pc.if_else(empty, pa.scalar(None, pa.string()), strings)
    try:
        return cast(present), _NONE
    except pa.ArrowInvalid:
        pass
    # Something in the column is wrong: find out which of its distinct strings.
    encoded = present.dictionary_encode()
    bad = _refused(encoded.dictionary, cast)
    wrong = pc.is_in(encoded.indices, value_set=pa.array(bad, encoded.indices.type))
    column = cast(pc.if_else(wrong, pa.scalar(None, pa.string()), present))
    return column, np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).astype(np.int64)


def convert_plain(strings: pa.Array, field_type: str) -> tuple[pa.Array, Ints]:
    """``convert``, quicker where all are numbers without blanks around them."""
    if field_type in ("int", "float"):
        try:
            return strings.cast(ARROW[field_type]), _NONE
        except pa.ArrowInvalid:
            pass
    return convert(strings, field_type)


def _refused(strings: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> list[int]:
    """The positions of the strings that cannot be cast: halves that can be are passed over at once."""
    bad: list[int] = []
    ranges = [(0, len(strings))] if len(strings) else []
    while ranges:
        start, stop = ranges.pop()
        try:
            cast(strings.slice(start, stop - start))
        except pa.ArrowInvalid:
            if stop - start == 1:
                bad.append(start)
            else:
                middle = (start + stop) // 2
                ranges += [(start, middle), (middle, stop)]
    return bad


def _number(target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda strings: pc.utf8_trim(strings, " \t").cast(target)


def _bool(strings: pa.Array) -> pa.Array:
    true = pc.is_in(strings, value_set=pa.array(TRUE))
    known = pc.or_(true, pc.is_in(strings, value_set=pa.array(FALSE)))
    if not pc.all(pc.or_(known, pc.is_null(strings)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a bool")
    return pc.if_else(known, true, pa.scalar(None, pa.bool_()))


def _timestamp(strings: pa.Array) -> pa.Array:
    # Arrow reads a column either with zones or without: split it by what follows the date and its separator.
    zoned = pc.match_substring_regex(strings, "^.{11,}[Z+-]")
    missing = pa.scalar(None, pa.string())
    local = pc.if_else(zoned, missing, strings).cast(ARROW["timestamp"])
    return pc.coalesce(local, pc.if_else(zoned, strings, missing).cast(UTC).cast(ARROW["timestamp"]))


_CASTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "int": _number(pa.int64()),
    "float": _number(pa.float64()),
    "bool": _bool,
    "timestamp": _timestamp,
}
