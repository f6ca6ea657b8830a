"""Random field types, values and records.

Values come from small pools, so that keys meet again and filters both hold and fail, and the pools hold what has broken
other systems: nulls, empty strings, letters beyond ASCII, white space of every kind, -0.0, NaN, the ends of the ranges.
"""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

TYPES = ("string", "int", "float", "bool", "timestamp")
SEQ_LAST = 2**63 - 2
"""The last seq there can be: END itself is past the line."""

_WORDS = ["a", "b", "bb", "é", "漢字", "🙂", "A", "0"]
_BLANKS = [" ", "  ", "\t", "\n", "\u2003", "\xa0", ",", ";"]
_TEXTS = st.one_of(
    st.sampled_from(["", "a", "b", "bb", "a b", "b a b", "é", "漢字", " ", "a,b", "x;y;;z"]),
    st.lists(st.sampled_from(_WORDS + _BLANKS), max_size=9).map("".join),
)
_TIMES = [
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(2024, 2, 29, 12, 30, 0, 1),
    datetime.datetime(2024, 2, 29, 12, 30, 0, 2),
]
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXTS,
    "int": st.one_of(st.integers(-2, 3), st.sampled_from([-(2**63), 2**63 - 1, 10**12])),
    "float": st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.5, 1e300, float("nan"), float("inf"), float("-inf")]),
    "bool": st.booleans(),
    "timestamp": st.sampled_from(_TIMES),
}
_PATTERNS = ["a", "^b", "b$", "[0-9]", "é|漢", "^$", "."]


def values(kind: str) -> st.SearchStrategy[Any]:
    """Values of a field; one in six is null."""
    return st.integers(0, 5).flatmap(lambda dice: st.none() if dice == 5 else _VALUES[kind])


def field_types() -> st.SearchStrategy[tuple[str, ...]]:
    """One to three fields; strings are what most operators are about."""
    kinds = st.one_of(st.just("string"), st.sampled_from(TYPES))
    return st.lists(kinds, min_size=1, max_size=3).map(tuple)


@st.composite
def seqs(draw: st.DrawFn, most: int) -> list[int]:
    """Ascending: every record's number, or sparse in a range that sources share, or anywhere up to the line's end."""
    count = draw(st.sampled_from([most, most, most // 2, 3, 1, 0]))
    everywhere = st.one_of(st.integers(0, 3), st.integers(0, SEQ_LAST), st.just(SEQ_LAST))
    spread = draw(st.sampled_from([None, st.integers(0, 2 * most), everywhere]))
    if spread is None:
        return list(range(count))
    return sorted(draw(st.lists(spread, min_size=count, max_size=count, unique=True)))


@st.composite
def records(draw: st.DrawFn, types: tuple[str, ...], most: int) -> list[tuple[int, tuple[Any, ...]]]:
    """A source's (seq, fields), in order."""
    rows = st.tuples(*[values(kind) for kind in types])
    return [(seq, draw(rows)) for seq in draw(seqs(most))]


@st.composite
def conditions(draw: st.DrawFn, types: tuple[str, ...]) -> list[dict[str, Any]]:
    """What a FILTER may ask of such fields; with two conditions often nothing passes."""
    found = []
    for _ in range(draw(st.integers(1, 2))):
        field = draw(st.integers(0, len(types) - 1))
        kind = types[field]
        ops = ["=", "!=", "in"] + ([] if kind == "bool" else ["<", "<=", ">", ">="])
        op = draw(st.sampled_from(ops + (["matches"] if kind == "string" else [])))
        if op == "matches":
            value: Any = draw(st.sampled_from(_PATTERNS))
        elif op == "in":
            value = draw(st.lists(_constants(kind), min_size=1, max_size=3))
        else:
            value = draw(_constants(kind))
        found.append({"field": field, "op": op, "value": value})
    return found


def _constants(kind: str) -> st.SearchStrategy[Any]:
    """Values as the plan holds them: a time as microseconds since 1970; no NaN, which equals nothing."""
    if kind == "timestamp":
        first = datetime.datetime(1970, 1, 1)
        return st.sampled_from([(time - first) // datetime.timedelta(microseconds=1) for time in _TIMES])
    return _VALUES[kind].filter(lambda value: value == value)
