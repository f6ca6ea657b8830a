"""What old configurations compute, against a few lines of Python that follow the language's definition.

The oracle knows lists of texts and nothing else. Random chains and trees of operators over random, ragged data run
through the simulator with random replication and routing, which must not matter.
"""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dadstorm import topology
from dadstorm.legacy import language as legacy
from tests.unit.legacy_kit import LEGACY, outputs

Tuple = list[str]


class Node(NamedTuple):
    """An operator that reads the one before it with this index, or the data (-1)."""

    reads: int
    spec: str
    replicas: int
    routing: str


def number(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except ValueError:
        return None


def compared(field: str, op: str, value: str) -> bool:
    left, right = number(field), number(value)
    pair = (field, value) if left is None or right is None else (left, right)
    return {"<": pair[0] < pair[1], ">": pair[0] > pair[1], "=": pair[0] == pair[1]}[op]  # type: ignore[operator]


def computed(spec: str, tuples: list[Tuple]) -> list[Tuple]:
    """What an operator makes of its tuples."""
    kind, _, rest = spec.partition(" ")
    if kind == "COUNT":
        return [[str(count)] for count in range(1, len(tuples) + 1)]
    if kind == "DUP":
        return tuples
    if kind == "CUSTOM":
        return [one[::-1] for one in tuples]
    field = int(rest.split(",")[0]) - 1
    there = [one for one in tuples if len(one) > field]
    if kind == "UNIQ":
        return _first(there, field)
    _, op, value = rest.split(",")
    return [one for one in there if compared(one[field], op, value.strip('"'))]


def _first(tuples: list[Tuple], field: int) -> list[Tuple]:
    seen: list[str] = []
    kept = []
    for one in tuples:
        if one[field] not in seen:
            seen.append(one[field])
            kept.append(one)
    return kept


FIELDS = st.sampled_from(["", "a", "b", "a b", "10", "9", "9.0", "-1", "x,y", 'q"q', "é", "0010", "1e1", "zz"])
DATA = st.lists(st.lists(FIELDS, min_size=1, max_size=5).filter(lambda one: one != [""]), max_size=12)
NUMBERS = st.integers(1, 6)
VALUES = st.sampled_from(["a", "b", "9", "10", "9.00", "", "zz", "é", "-1"])
SPECS = st.one_of(
    st.just("COUNT"),
    st.just("DUP"),
    st.just("CUSTOM mylib.dll,Shapes,Backwards"),
    st.builds("UNIQ {}".format, NUMBERS),
    st.builds('FILTER {},{},"{}"'.format, NUMBERS, st.sampled_from("<>="), VALUES),
)
ROUTINGS = st.one_of(st.sampled_from(["primary", "random"]), st.builds("hashing({})".format, NUMBERS))


@st.composite
def programs(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 5))
    return [
        Node(draw(st.integers(-1, index - 1)), draw(SPECS), draw(st.integers(1, 3)), draw(ROUTINGS))
        for index in range(count)
    ]


def written(one: Tuple) -> str:
    """A tuple as a line of a data file: quotes where they are needed."""
    return " , ".join('"' + f.replace('"', '""') + '"' if set(f) & set(',"') else f for f in one)


def parsed(text: str) -> list[Tuple]:
    return list(csv.reader(io.StringIO(text)))


def in_folder(nodes: list[Node], data: list[Tuple], check: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("mylib.py", "followers.dat"):
            shutil.copy(LEGACY / name, folder)
        (Path(folder) / "data.dat").write_text("% data\n" + "".join(written(one) + "\n" for one in data))
        lines = [
            f"N{index} input_ops {'data.dat' if node.reads < 0 else f'N{node.reads}'} rep_fact {node.replicas} "
            f"routing {node.routing} operator_spec {node.spec}\n"
            for index, node in enumerate(nodes)
        ]
        path = Path(folder) / "random.config"
        path.write_text("".join(lines))
        check(str(path))


@settings(max_examples=60)
@given(programs(), DATA, st.integers(0, 99))
def test_random_configurations_compute_what_the_language_says(nodes: list[Node], data: list[Tuple], seed: int) -> None:
    made: list[list[Tuple]] = []
    for node in nodes:
        made.append(computed(node.spec, data if node.reads < 0 else made[node.reads]))
    ends = set(range(len(nodes))) - {node.reads for node in nodes}

    def check(path: str) -> None:
        plan, _ = legacy.load(path)
        found = outputs(plan, seed)
        assert {name: parsed(text) for name, text in found.items()} == {f"N{end}": made[end] for end in ends}
        again = Path(path).with_suffix(".yaml")
        again.write_text(legacy.convert(path).yaml)
        assert outputs(topology.load(str(again)), seed) == found

    in_folder(nodes, data, check)


AWKWARD = ["a: b", "# c", "{x}", "é 😀", "yes", "~", "\u2028x", "back\\slash", "it's", "a%b", "5,5"]


@pytest.mark.parametrize("value", AWKWARD)
def test_any_value_of_a_filter_survives_the_conversion(value: str) -> None:
    def check(path: str) -> None:
        plan, _ = legacy.load(path)
        assert parsed(outputs(plan)["N0"]) == [["1", value]]
        again = Path(path).with_suffix(".yaml")
        again.write_text(legacy.convert(path).yaml, encoding="utf-8")
        assert parsed(outputs(topology.load(str(again)))["N0"]) == [["1", value]]

    in_folder([Node(-1, f'FILTER 2,=,"{value}"', 1, "random")], [["1", value], ["2", "other"], ["3"]], check)
