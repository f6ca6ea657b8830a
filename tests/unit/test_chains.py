"""Which operators are chained, and what a chain looks like in the plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dadstorm.chains import chained
from dadstorm.plan import Plan, Routing
from dadstorm.topology import load
from dadstorm.topology.describe import describe
from puppetmaster.commands import Crash, Interval, Partition, Slow, Status, WrongCommand, parse

SOURCE = "sources: {lines: {generate: {n: counter, k: {int: [0, 9]}, w: {words: {count: 2}}}, count: 10}}\n"


def compiled(folder: Path, operators: str, more: str = "") -> Plan:
    (folder / "t.yaml").write_text(f"{more}\n{SOURCE}operators:\n{operators}")
    return load(str(folder / "t.yaml"), sink="csv")


def names(plan: Plan) -> list[str]:
    return [operator.name for operator in plan.operators if operator.kind != "sink"]


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ("  a: {input: lines, filter: n > 1}\n  b: {input: a, split: w}", ["lines+a+b"]),
        ("  a: {input: lines, filter: n > 1, replicas: 2}\n  b: {input: a, count: k, replicas: 2}\n"
         "  c: {input: b, filter: count > 1, replicas: 2}", ["lines", "a+b+c"]),
        ("  a: {input: lines, split: w, replicas: 2}\n  b: {input: a, count: w, replicas: 2}", ["lines", "a", "b"]),
        ("  a: {input: lines, split: w, replicas: 2, slices: 1}\n  b: {input: a, count: w, replicas: 2, slices: 1}",
         ["lines", "a+b"]),
        ("  a: {input: lines, count: k}", ["lines", "a"]),
        ("  a: {input: lines, uniq: k, replicas: 2}\n  b: {input: a, count: k, replicas: 2}", ["lines", "a", "b"]),
        ("  a: {input: lines, uniq: k, replicas: 2}\n  b: {input: a, dup: , replicas: 3}", ["lines", "a", "b"]),
        ("  a: {input: lines, uniq: k, replicas: 2}\n  b: {input: a, dup: , replicas: 2, slices: 4}", ["lines", "a+b"]),
        ("  a: {input: lines, uniq: k, replicas: 3, slices: 2}\n  b: {input: a, dup: , replicas: 3, slices: 4}",
         ["lines", "a", "b"]),
        ("  a: {input: lines, dup: }\n  b: {input: a, filter: n > 1}\n  c: {input: a, filter: n < 1}",
         ["lines+a", "b", "c"]),
        ("  a: {input: lines, filter: n > 1}\n  b: {input: lines, filter: n < 1}\n  c: {input: [a, b], dup: }",
         ["lines", "a", "b", "c"]),
        ("  a: {input: lines, filter: n > 1, address: [tcp://127.0.0.1:20111]}", ["lines", "a"]),
        ("  a: {input: lines, filter: n > 1}\n  b: {input: a, custom: len, fields: [n:int]}", ["lines+a", "b"]),
    ],
)  # fmt: skip
def test_operators_with_no_routing_in_between_are_chained(tmp_path: Path, operators: str, expected: list[str]) -> None:
    if "custom" in operators:
        (tmp_path / "own.py").write_text("def f(n, k, w):\n    return n\n")
        operators = operators.replace("custom: len", "custom: own.f")
    plan = compiled(tmp_path, operators)
    found = chained(plan)
    assert names(found) == expected
    assert chained(found) == found
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Plan) == found


def test_a_chain_has_its_heads_inputs_and_its_ends_outputs(tmp_path: Path) -> None:
    operators = (
        "  a: {input: lines, filter: n > 1, replicas: 2}\n  b: {input: a, count: w, replicas: 2}\n"
        "  c: {input: b, split: w, replicas: 2}\n  d: {input: c, count: w}"
    )
    plan = compiled(tmp_path, operators)
    found = chained(plan)
    chain = found["a+b+c"]
    assert chain.kind == "chain" and chain.has_state
    assert chain.routing == plan["b"].routing == Routing("hashing", (2,))
    assert chain.fields == plan["c"].fields
    assert [link.operator for link in chain.inputs] == ["lines"]
    assert [link.operator for link in found["d"].inputs] == ["a+b+c"]
    assert found.sub_bits("a+b+c") == plan.sub_bits("c") > 0
    assert found.input_schema(found["c"]) == plan.input_schema(plan["c"])


@pytest.mark.parametrize("more", ["chain: false", "logging: full", "durable: kept", "script: [Start]"])
def test_who_looks_at_single_operators_finds_them(tmp_path: Path, more: str) -> None:
    plan = compiled(tmp_path, "  a: {input: lines, filter: n > 1}", more)
    assert chained(plan) == plan


def test_an_audit_finds_every_operator(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(compiled(tmp_path, "  a: {input: lines, filter: n > 1}"), audit=True)
    assert chained(plan) == plan


def test_a_chain_s_name_is_never_too_long_for_a_file(tmp_path: Path) -> None:
    chosen = [f"remove_invalid_rows_{number:02d}" for number in range(16)]
    before = ["lines", *chosen[:-1]]
    text = "".join(f"  {b}: {{input: {a}, filter: n > 1}}\n" for a, b in zip(before, chosen, strict=True))
    found = chained(compiled(tmp_path, text))
    assert 1 < len(names(found)) < 4
    assert all(len(name) <= 200 for name in names(found))


def test_commands_take_a_members_name_for_its_chain(tmp_path: Path) -> None:
    plan = compiled(tmp_path, "  a: {input: lines, count: k, replicas: 2}\n  b: {input: a, dup: , replicas: 2}")
    found = chained(plan)
    assert parse("crash B 1", found) == Crash("a+b", 1)
    assert parse("Interval a 5", found) == Interval("a+b", 5)
    assert parse("Slow b 0 7", found) == Slow("a+b", 0, 7)
    assert parse("Partition b/1 lines", found) == Partition("a+b/1", "lines")
    assert parse("Status a+b", found) == Status("a+b")
    with pytest.raises(WrongCommand, match="there is no operator"):
        parse("Crash c 0", found)


def test_dead_letters_keep_an_operator_apart(tmp_path: Path) -> None:
    plan = compiled(tmp_path, "  a: {input: lines, split: w, on_error: dead-letter}\n  b: {input: a, dup: }")
    assert names(chained(plan)) == ["lines", "a", "b"]


def test_check_tells_what_is_chained(tmp_path: Path) -> None:
    assert "single operators: lines+a\n" in describe(compiled(tmp_path, "  a: {input: lines, filter: n > 1}"))
    assert "single operators" not in describe(compiled(tmp_path, "  a: {input: lines, count: n}"))
