"""Who may import whom: the core has no I/O, operators and topologies know no network, and Spark is nobody's burden.

The rules are checked on the source (every import statement, also those inside functions) and, where it matters what
really gets loaded, in a fresh interpreter.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CORE_MAY_IMPORT = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dadstorm.core",
    "dadstorm.errors",
    "dadstorm.plan",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "numpy",
    "operator",
    "pyarrow",
    "sortedcontainers",
    "struct",
    "typing",
    "xxhash",
}
"""Everything else is I/O, a clock, a thread, chance, or a layer above. The plan and the errors are plain data, checked
to be as pure; ``xxhash`` is a pure function."""

CORE_MAY_NOT_IMPORT = {"numpy.random"} | {
    f"pyarrow.{part}" for part in ("csv", "dataset", "feather", "flight", "fs", "json", "orc", "parquet")
}
"""Parts of allowed libraries that read files or make chance."""


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no modules under {folder}: the test looks in the wrong place"
    return found


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, by full name, with its line; ``from a import b`` gives ``a.b``."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            for alias in node.names:
                yield ".".join([*base, *([node.module] if node.module else []), alias.name]), node.lineno


def within(name: str, allowed: set[str]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in allowed)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_the_core_imports_nothing_that_does_input_or_output() -> None:
    wrong = [
        f"{where(path, line)} imports {name}"
        for path in modules("dadstorm/core")
        for name, line in imports(path)
        if not within(name, CORE_MAY_IMPORT) or within(name, CORE_MAY_NOT_IMPORT)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_uses_no_random_part_of_numpy() -> None:
    wrong = [
        where(path, node.lineno)
        for path in modules("dadstorm/core")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "random" and ast.unparse(node.value) in ("np", "numpy")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["errors.py", "plan.py"])
def test_what_the_core_builds_on_is_as_pure(name: str) -> None:
    path = ROOT / "dadstorm" / name
    wrong = [f"{where(path, line)} imports {name}" for name, line in imports(path) if not within(name, CORE_MAY_IMPORT)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["dadstorm/operators", "dadstorm/topology"])
def test_operators_and_topologies_know_no_network(folder: str) -> None:
    above = {"zmq", "asyncio", "socket", "dadstorm.wire", "dadstorm.replica", "puppetmaster", "pcs"}
    wrong = [
        f"{where(path, line)} imports {name}"
        for path in modules(folder)
        for name, line in imports(path)
        if within(name, above)
    ]
    assert not wrong, "\n".join(wrong)


def loaded_by(statements: str) -> set[str]:
    """The modules that are loaded once a fresh interpreter has run some statements."""
    code = f"import sys\n{statements}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_every_core_module_loads_no_network() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules("dadstorm/core")]
    names = [name.removesuffix(".__init__") for name in names]
    assert not loaded_by("import " + ", ".join(names)) & {"zmq", "structlog", "pyarrow.parquet"}


HEAVY = {"numpy", "pyarrow", "pyspark", "rich", "prompt_toolkit", "dadstorm.replica", "dadstorm.legacy.language"}
"""What takes long to load, and only those need who touch rows, show a console or read the original language."""


@pytest.mark.parametrize("words", ["--help", "run --help"])
def test_help_loads_next_to_nothing(words: str) -> None:
    code = f"import contextlib, dadstorm.cli\nwith contextlib.suppress(SystemExit): dadstorm.cli.main({words.split()})"
    assert not loaded_by(code) & (HEAVY | {"zmq", "yaml", "structlog", "msgspec"})


def test_the_front_end_of_a_run_loads_nothing_that_only_replicas_need(tmp_path: Path) -> None:
    """It has its topology understood by the time that the PCS, which loads all of that, has replicas for it."""
    (tmp_path / "lines.csv").write_text("name,size\n")
    (tmp_path / "job.yaml").write_text(
        "sources: {lines: {csv: lines.csv, header: true}, more: {text: lines.csv, fields: [name]}}\n"
        "operators:\n"
        "  kept: {input: lines, filter: name = a, replicas: 2}\n"
        "  words: {input: more, split: name}\n"
        "  counts: {input: words, count: name}\n"
        "sinks: {out: {input: [kept], csv: out.csv}}\n"
    )
    code = (
        "import dadstorm.cli, pcs.private, puppetmaster.run\n"
        "from dadstorm.loading import load\n"
        f"load({str(tmp_path / 'job.yaml')!r}, sink='csv')"
    )
    assert not loaded_by(code) & HEAVY


def test_the_command_line_loads_neither_spark_nor_parquet() -> None:
    assert not loaded_by("import dadstorm.cli") & {"pyspark", "pyarrow.parquet"}


def test_sinks_without_parquet_do_not_load_it() -> None:
    loaded = loaded_by("import dadstorm.sinks, dadstorm.sinks.lines, dadstorm.sinks.console")
    assert not loaded & {"pyspark", "pyarrow.parquet", "zmq"}
