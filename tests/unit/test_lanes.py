"""Where slices are never parted, those of a replica are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dadstorm.chains import chained
from dadstorm.lanes import in_lanes
from dadstorm.plan import Plan
from dadstorm.topology import load
from dadstorm.topology.describe import describe

TOPOLOGY = """
sources: {{lines: {{generate: {{n: counter, k: {{int: [0, 9]}}}}, count: 10, slices: 4}}}}
operators:
  alone: {{input: lines, count: k, slices: 16}}
  two:   {{input: alone, uniq: k, replicas: 2, slices: 5}}
  spare: {{input: two, count: k, replicas: 3, slices: 2}}
  own:   {{input: spare, custom: own.f, fields: [k:int], slices: 4}}
sinks: {{written: {{input: own, csv: written.csv}}}}
{more}
"""


def compiled(folder: Path, more: str = "") -> Plan:
    (folder / "own.py").write_text("def f(k, *counts):\n    return k\n")
    (folder / "t.yaml").write_text(TOPOLOGY.format(more=more))
    return load(str(folder / "t.yaml"))


def slices(plan: Plan) -> dict[str, int]:
    return {operator.name: operator.slices for operator in plan.operators}


def test_a_replica_has_one_slice_of_an_operator_of_ours(tmp_path: Path) -> None:
    plan = compiled(tmp_path)
    found = in_lanes(plan)
    assert slices(found) == {"lines": 4, "alone": 1, "two": 2, "spare": 2, "own": 4, "written": 1}
    assert in_lanes(found) is found
    assert chained(plan) == found, "nothing of this can be chained"
    assert "with one slice to a replica, where nobody looks: alone, two" in describe(plan)


def test_who_is_chained_to_a_source_keeps_its_slices(tmp_path: Path) -> None:
    text = (
        "sources: {lines: {generate: {n: counter, w: {words: {count: 2}}}, count: 10, slices: 4, replicas: 2}}\n"
        "operators:\n  words: {input: lines, split: w, slices: 4, replicas: 2}\n"
        "  some: {input: words, filter: n > 1, slices: 4, replicas: 2}\n"
        "  counts: {input: some, count: w, slices: 4, replicas: 2}\n"
        "  late: {input: counts, dup: , slices: 8, replicas: 2}"
    )
    (tmp_path / "t.yaml").write_text(text)
    plan = load(str(tmp_path / "t.yaml"), sink="csv")
    found = chained(plan)
    assert slices(found) == {"lines+words+some": 4, "counts+late": 2, "late.sink": 1}
    assert chained(found) == found
    assert "with one slice to a replica, where nobody looks: counts, late" in describe(plan)


def test_slices_that_peers_may_adopt_stay_apart(tmp_path: Path) -> None:
    plan = compiled(tmp_path, "recovery: spread")
    assert in_lanes(plan) is plan


@pytest.mark.parametrize("more", ["chain: false", "logging: full", "durable: kept", "script: [Start]"])
def test_who_looks_at_slices_finds_them(tmp_path: Path, more: str) -> None:
    plan = compiled(tmp_path, more)
    assert chained(plan) is plan
    assert "one slice to a replica" not in describe(plan)
