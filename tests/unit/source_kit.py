"""What the tests of file sources share: making sources, reading them to the end, writing files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dadstorm.core.line import END
from dadstorm.plan import Field, Operator, Replica, Routing
from dadstorm.sources.files import FileReader

LINE = (Field("line"),)
NUMBER_AND_NAME = (Field("n", "int"), Field("name"))


def source(
    *paths: Path | str,
    form: str = "csv",
    fields: tuple[Field, ...] = NUMBER_AND_NAME,
    slices: int = 1,
    on_error: Any = "fail",
    **params: Any,
) -> Operator:
    given = {
        "type": "file",
        "format": form,
        "paths": [str(p) for p in paths],
        "header": False,
        "delimiter": ",",
        "comment": None,
    }
    return Operator(
        "in", "source", {**given, **params}, (), fields, slices, (Replica("here"),), Routing(), on_error=on_error
    )


def everything(reader: FileReader, max_rows: int = 1 << 20, max_bytes: int = 1 << 30) -> tuple[list[Any], list[Any]]:
    """All rows and dead letters as (seq, values), checking on the way that each read keeps within its ``hi``."""
    rows: list[Any] = []
    dead: list[Any] = []
    hi = 0
    for _ in range(100_000):
        records = reader.read(max_rows, max_bytes)
        assert len(records.rows) <= max_rows
        for part, out in ((records.rows, rows), (records.dead, dead)):
            if part is not None:
                seqs = part.seq.tolist()
                assert seqs == sorted(set(seqs)) and all(hi <= seq < records.hi for seq in seqs)
                assert not part.sub.any()
                out += zip(seqs, (tuple(row.values()) for row in part.data.to_pylist()), strict=True)
        assert records.hi >= hi
        hi = records.hi
        if hi == END:
            reader.close()
            return rows, dead
    raise AssertionError("the reader does not reach END")


def read(operator: Operator, slice_index: int = 0, **how: Any) -> tuple[list[Any], list[Any]]:
    return everything(FileReader(operator, slice_index, **how))


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path
