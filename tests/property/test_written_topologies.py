"""Random topology files, compiled and run: what the compiler chooses never changes what the sinks get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from budget import examples
from hypothesis import given
from programs import Program
from running import check
from written import Written, written

from dadstorm.plan import Plan
from dadstorm.topology import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("written")
    (made / "records.csv").write_text("")
    return made


def compiled(case: Written, folder: Path) -> Plan:
    path = folder / "topology.yaml"
    path.write_text(json.dumps(case.topology, ensure_ascii=False), encoding="utf-8")
    return load(str(path), libs=case.libs, out=str(folder / "out"))


@given(case=written())
@examples(120)
def test_a_topology_file_gives_what_the_oracle_says_about_its_plan(folder: Path, case: Written) -> None:
    plan = compiled(case, folder)
    records = {name: rows for name, rows in case.records.items() if name in [one.name for one in plan.operators]}
    check(Program(plan, records, case.seed, case.batch_max))


@given(case=written())
@examples(40)
def test_the_plan_is_a_pure_function_of_the_file(folder: Path, case: Written) -> None:
    assert compiled(case, folder) == compiled(case, folder)


@given(case=written())
@examples(60)
def test_every_operator_that_ends_here_and_every_dead_letter_has_a_sink(folder: Path, case: Written) -> None:
    plan = compiled(case, folder)
    read = {(link.operator, link.port) for one in plan.operators for link in one.inputs}
    for one in plan.operators:
        if one.kind not in ("source", "sink"):
            assert (one.name, 0) in read
            assert ((one.name, 1) in read) == (one.on_error == "dead-letter")
