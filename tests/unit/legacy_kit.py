"""What the tests of the original language share: a file's outcome as lines of text, its output from the simulator."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from dadstorm import topology
from dadstorm.core.rows import Rows
from dadstorm.errors import UserError
from dadstorm.legacy import language as legacy
from dadstorm.operators import make_kernel
from dadstorm.plan import Operator, Plan
from dadstorm.simulator.cluster import Cluster
from dadstorm.sinks.text import csv_lines
from dadstorm.sources import make_reader

LEGACY = Path(__file__).parents[1] / "legacy"


def records(plan: Plan, source: Operator, folder: str) -> Rows:
    """All that a source reads."""
    parts = []
    for index in range(source.slices):
        reader = make_reader(source, plan, index, run_dir=folder)
        while True:
            some = reader.read(1 << 20, 1 << 30)
            parts.append(some.rows)
            if some.hi == 2**63 - 1:
                break
        reader.close()
    return Rows.concat(parts)


def outputs(plan: Plan, seed: int = 0) -> dict[str, str]:
    """What each sink of a plan writes as CSV, from a run under a seeded schedule; by the file's name."""
    sources = {one.name: records(plan, one, ".") for one in plan.operators if one.kind == "source"}
    written = Cluster(plan, sources, lambda operator: make_kernel(operator, plan), seed).run()
    return {
        os.path.basename(plan[name].params["path"]).removesuffix(".csv"): _csv(plan[name], rows)
        for name, rows in written.items()
    }


def _csv(sink: Operator, rows: list[tuple[object, ...]]) -> str:
    if not rows:
        return ""
    columns = list(zip(*[fields for _, _, *fields in rows], strict=True))
    data = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, sink.schema, strict=True)], schema=sink.schema
    )
    return csv_lines(data, ragged=bool(sink.params.get("ragged"))).to_pybytes().decode()


def told(error: UserError, path: Path) -> list[str]:
    """Mistakes without their file, which is checked here."""
    lines = []
    for mistake in error.mistakes:
        assert mistake.file == str(path) and mistake.line, f"a mistake that does not say where: {mistake}"
        lines.append(f"! {mistake.line}:{mistake.column}: {mistake.message}".replace(str(path.parent), "FOLDER"))
    return lines


def outcome(path: Path) -> list[str]:
    """All that comes of a file: ``!`` its mistakes, or ``~`` warnings, ``$`` commands and ``>`` output."""
    try:
        if path.suffix == ".script":
            plan, _ = legacy.load(str(path.parent / "reach.config"))
            script = legacy.read_script(str(path), plan)
            return [*_warnings(script.warnings, path), *(f"$ {line.text}" for line in script.lines)]
        plan, commands = legacy.load(str(path))
    except UserError as error:
        return told(error, path)
    lines = _warnings(plan.warnings, path) + [f"$ {command.text}" for command in commands]
    for operator, text in sorted(outputs(plan).items()):
        lines.append(f"> {operator}: {' | '.join(text.splitlines())}" if text else f"> {operator} has no tuples")
    return lines


def _warnings(warnings: tuple[str, ...] | list[str], path: Path) -> list[str]:
    assert all(warning.startswith(f"{path}:") for warning in warnings), warnings
    return ["~ " + warning.removeprefix(f"{path}:").replace(str(path.parent), "FOLDER") for warning in warnings]


def saved(path: Path, folder: Path) -> Plan:
    """The plan of the YAML that a file is converted to, saved in a copy of the file's folder."""
    for entry in path.parent.iterdir():
        if not (folder / entry.name).exists() and entry.suffix != ".yaml":
            (folder / entry.name).symlink_to(entry)
    target = folder / f"{path.stem}.yaml"
    target.write_text(legacy.convert(str(path)).yaml, encoding="utf-8")
    return topology.load(str(target))
