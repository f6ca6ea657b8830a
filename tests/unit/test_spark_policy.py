"""What a PCS that runs as a daemon lets Spark read: files of its own formats below the folders it was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dadstorm.plan import Field, Operator, Replica, Routing
from pcs.policy import Policy


def problems(folder: Path, **params: Any) -> list[str]:
    (folder / "data" / "sales").mkdir(parents=True)
    given = {"type": "spark", "format": "csv", "paths": [str(folder / "data" / "sales")], **params}
    operator = Operator("s", "source", given, (), (Field("n"),), 1, (Replica("here"),), Routing())
    return Policy("127.0.0.1", "runs", data=(str(folder / "data"),), out=(str(folder / "out"),)).operator(operator)


@pytest.mark.parametrize(
    "params",
    [
        {"format": None, "sql": "SELECT reflect('java.lang.System', 'exit', 1)"},
        {"format": None, "table": "sales"},
        {"format": "jdbc"},
        {"options": {"cleanSource": "delete"}},
        {"conf": {"spark.jars": "/srv/evil.jar"}},
        {"stream": "true"},
        {"master": "spark://elsewhere:7077"},
        {"paths": ["/etc/passwd"]},
        {"paths": ["hdfs://elsewhere/data"]},
        {"journal": "/etc"},
    ],
    ids=lambda params: "-".join(params),
)
def test_what_could_do_more_than_read_such_files_is_refused(params: dict[str, Any], tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, **params)
    assert problem.startswith("source s: ")


@pytest.mark.parametrize("pattern", ["*", "{sales,../../etc}", "[s]ales"])
def test_patterns_that_could_lead_out_of_a_folder_are_refused(pattern: str, tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, paths=[str(tmp_path / "data" / pattern)])
    assert "below one that this PCS may read" in problem


def test_files_below_its_folders_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    assert problems(tmp_path) == []
