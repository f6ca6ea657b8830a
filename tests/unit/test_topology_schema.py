"""The JSON Schema and the documentation say the same as the compiler."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dadstorm import topology
from dadstorm.topology import document, shapes, values
from dadstorm.topology.report import Report

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
SCHEMA: dict[str, Any] = json.loads(topology.json_schema())
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "topology.md").read_text(encoding="utf-8"), re.DOTALL)
MISSHAPEN = (
    "bad-generator", "bad-options", "bad-replicas", "bad-semantics", "bad-sink", "bad-spark-sink",
    "bad-spark-source", "bad-spool", "no-input", "no-kind", "no-sources",
    "sections-of-the-wrong-shape", "two-kinds", "unknown-kind", "unknown-operator-key", "unknown-top-key",
)  # fmt: skip


def plain(path: Path) -> Any:
    """A file as plain data, read as the compiler reads it."""
    node = document.read(str(path), Report(str(path)))
    assert node is not None
    return values.data(node)


def problems(data: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(data)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_the_schema_accepts_every_example(path: Path) -> None:
    assert problems(plain(path)) == []


@pytest.mark.parametrize("name", MISSHAPEN)
def test_the_schema_refuses_what_has_the_wrong_shape(name: str) -> None:
    assert problems(plain(ROOT / "tests" / "broken" / f"{name}.yaml"))


def kinds(section: str) -> dict[str, set[str]]:
    """Per kind, the keys beside the kind's own, as the schema has them."""
    options = SCHEMA["properties"][section]["additionalProperties"]["anyOf"]
    return {option["title"]: set(option["properties"]) - {option["title"]} for option in options}


def test_the_schema_has_the_keys_of_the_compiler() -> None:
    assert set(SCHEMA["properties"]) == set(shapes.TOPOLOGY)
    assert kinds("sources") == {kind: set(keys) for kind, keys in shapes.SOURCES.items()}
    assert kinds("operators") == {kind: set(keys) for kind, keys in shapes.OPERATORS.items()}
    assert kinds("sinks") == {kind: set(keys) for kind, keys in shapes.SINKS.items()}
    window = SCHEMA["properties"]["window"]["anyOf"][1]
    assert set(window["properties"]) == set(shapes.WINDOW)


def mappings(schema: Any) -> list[set[str]]:
    """The keys of every mapping with fixed keys within a schema."""
    if isinstance(schema, list):
        return [keys for item in schema for keys in mappings(item)]
    if not isinstance(schema, dict):
        return []
    own = [set(schema["properties"])] if "properties" in schema else []
    return own + [keys for value in schema.values() for keys in mappings(value)]


def test_long_forms_have_the_keys_of_the_compiler() -> None:
    for option in SCHEMA["properties"]["operators"]["additionalProperties"]["anyOf"]:
        kind = option["title"]
        if kind in shapes.LONG_FORMS:
            assert set(shapes.LONG_FORMS[kind]) in mappings(option["properties"][kind])
    generators = mappings(SCHEMA["definitions"]["generator"])
    for kind, keys in shapes.GENERATORS.items():
        assert {kind} in generators
        assert not keys or set(keys) in generators


def test_there_are_examples_to_check() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[1].strip()[:40])
def test_every_example_of_the_documentation_compiles(example: str, tmp_path: Path) -> None:
    for name in ("reach", "wordcount", "reach.py"):
        (tmp_path / name).symlink_to(CONFIGS / name)
    path = tmp_path / "example.yaml"
    path.write_text(example)
    plan = topology.load(str(path), out=str(tmp_path / "out"))
    assert plan.operators
    assert problems(plain(path)) == []


OTHER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHER_EXAMPLES = [
    (path.name, text)
    for path in OTHER_PAGES
    if path.name not in ("topology.md", "operators.md")  # The latter has tests of its own.
    for text in re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
]
SALES = "sources:\n  sales: {generate: {n: counter}, count: 3}\n  buyers: {generate: {n: counter}, count: 3}\n"


@pytest.mark.parametrize(("page", "example"), OTHER_EXAMPLES, ids=[page for page, _ in OTHER_EXAMPLES])
def test_the_examples_of_the_other_pages_compile_too(page: str, example: str, tmp_path: Path) -> None:
    for name in ("reach", "wordcount", "reach.py"):
        (tmp_path / name).symlink_to(CONFIGS / name)
    (tmp_path / "lines.txt").write_text("to be or not to be\n")
    path = tmp_path / "example.yaml"
    whole = example if example.startswith("sources:") or "\nsources:" in example else SALES + example
    path.write_text(whole.replace("/srv/data/", f"{tmp_path}/"))
    assert topology.load(str(path), out=str(tmp_path / "out")).operators
    assert problems(plain(path)) == []


def test_the_documentation_names_every_key() -> None:
    text = (ROOT / "docs" / "topology.md").read_text(encoding="utf-8")
    tables = [shapes.SOURCES, shapes.OPERATORS, shapes.SINKS, shapes.LONG_FORMS, shapes.GENERATORS]
    keys = {key for table in tables for kind in table for key in (kind, *table[kind])}
    keys |= {*shapes.TOPOLOGY, *shapes.WINDOW}
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", text)) == []
