"""Topologies converted from the original language, on real processes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dadstorm.legacy import language as legacy
from tests.cluster.kit import free_port, run
from tests.unit.legacy_kit import LEGACY, outputs

pytestmark = pytest.mark.cluster


def converted(name: str, folder: Path) -> Path:
    """A file's topology in a copy of its folder, its addresses moved to ports that are free here."""
    shutil.copytree(LEGACY, folder, dirs_exist_ok=True)
    ports: dict[str, int] = {}
    text = re.sub(
        r"(tcp://localhost:)(\d+)",
        lambda found: f"{found[1]}{ports.setdefault(found[2], free_port())}",
        (folder / name).read_text(),
    )
    (folder / name).write_text(text)
    path = folder / "converted.yaml"
    path.write_text(legacy.convert(str(folder / name)).yaml)
    return path


@pytest.mark.parametrize("name", ["reach.config", "ragged-tuples.config", "count-meets-others.config"])
def test_a_converted_file_gives_what_the_language_says(name: str, tmp_path: Path) -> None:
    path = converted(name, tmp_path)
    plan, _ = legacy.load(str(tmp_path / name))
    expected = {f"{operator}.csv": text.encode() for operator, text in outputs(plan).items()}
    assert run("run", path, cwd=tmp_path).ok().files == expected


def test_other_sinks_know_absent_fields_too(tmp_path: Path) -> None:
    path = converted("ragged-tuples.config", tmp_path)
    files = run("run", path, "--sink", "jsonl", cwd=tmp_path).ok().files
    assert files["OP5.jsonl"].decode().splitlines()[:2] == ['{"f1":"1"}', '{"f1":"d","f2":"b","f3":"two","f4":"2"}']
