"""Every example of docs/operators.md compiles and gives the output that the page shows."""

from __future__ import annotations

import csv
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dadstorm.core.rows import Rows
from dadstorm.core.schemas import ARROW
from dadstorm.operators import make_kernel
from dadstorm.plan import Operator, Plan
from dadstorm.topology import load

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
SOURCES = BLOCKS[0][1]
VISITS, LINES = (text for kind, text in BLOCKS if kind == "csv")
CODE = "\n\n".join(text for kind, text in BLOCKS if kind == "python")
EXAMPLES = [(one[1], after[1]) for one, after in pairwise(BLOCKS) if one[1].startswith("operators:")]


def typed(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    return {"int": int, "float": float}[kind](text) if text else None


def source_rows(source: Operator) -> Rows:
    table = [[line] for line in LINES.splitlines()] if source.name == "lines" else list(csv.reader(io.StringIO(VISITS)))
    columns = [
        pa.array([typed(row[i], field.type) for row in table], type=ARROW[field.type])
        for i, field in enumerate(source.fields)
    ]
    seq = np.arange(len(table), dtype=np.int64)
    return Rows(seq, np.zeros_like(seq), pa.RecordBatch.from_arrays(columns, schema=source.schema))


def output_of(plan: Plan) -> str:
    (operator,) = [one for one in plan.operators if one.kind not in ("source", "sink")]
    data = make_kernel(operator, plan).process(source_rows(plan[operator.inputs[0].operator])).data
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*[column.to_pylist() for column in data.columns], strict=True))
    return text.getvalue()


def test_the_page_has_an_example_of_every_operator() -> None:
    for kind in ("filter", "uniq", "count", "dup", "split", "custom"):
        assert any(f" {kind}: " in example for example, _ in EXAMPLES), kind
    assert all(kind in ("yaml", "csv", "python", "text") for kind, _ in BLOCKS)


@pytest.mark.parametrize(("example", "expected"), EXAMPLES, ids=[text.split()[1].strip(":") for text, _ in EXAMPLES])
def test_an_example_gives_what_the_page_shows(tmp_path: Path, example: str, expected: str) -> None:
    (tmp_path / "visits.csv").write_text(VISITS, encoding="utf-8")
    (tmp_path / "lines.txt").write_text(LINES, encoding="utf-8")
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    used = re.search(r"input: (\w+)", example)
    assert used is not None
    sources = "\n".join(line for line in SOURCES.splitlines() if line.startswith(("sources", f"  {used[1]}:")))
    file = tmp_path / "page.yaml"
    file.write_text(f"{sources}\n{example}", encoding="utf-8")
    assert output_of(load(str(file))) == expected
