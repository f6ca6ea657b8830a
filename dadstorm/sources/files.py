"""File sources of line-like formats: csv, jsonl, text; plain or gzip-compressed; several files one after the other.

The seq of a record is its number over all paths, counted from 0; blank lines, comments and headers are no records,
broken records are. Or it is what one of its fields says (``seqs``). A mark is the start of a block: {"path", "offset",
"seq", "line"}.
"""

from __future__ import annotations

import numpy as np

from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator
from dadstorm.sources.base import Mark, Records
from dadstorm.sources.blocks import BLOCK_BYTES, Blocks, Chunk
from dadstorm.sources.csv_record import fields_of
from dadstorm.sources.format_csv import CsvFormat
from dadstorm.sources.format_jsonl import JsonLinesFormat
from dadstorm.sources.format_ragged import RaggedFormat
from dadstorm.sources.formats import Format, TextFormat
from dadstorm.sources.marks import Marks
from dadstorm.sources.pending import Pending
from dadstorm.sources.records import parse
from dadstorm.sources.seqs import Column, Numbers, Place, Seqs
from dadstorm.sources.window import Window

RECORD_BYTES_MAX = 16 << 20
"""Default limit of a record: what must be in memory at once to find its end."""

CHUNKS_PER_READ = 16
"""So many blocks without rows are passed over in one read, so that a read never takes long."""


def make_format(operator: Operator, record_bytes_max: int) -> Format:
    """How an operator's records are read, by its parameters."""
    params = operator.params
    kind = params["format"]
    limit = int(params.get("record_bytes_max") or record_bytes_max)
    if kind == "text":
        if len(operator.fields) != 1 or operator.fields[0].type != "string":
            raise RunFailed(f"source {operator.name!r}: text lines have one field of type string; use csv for others")
        return TextFormat(operator.fields, limit)
    comment = params.get("comment") or None
    if kind == "jsonl":
        return JsonLinesFormat(operator.fields, limit, comment)
    if kind == "csv":
        delimiter = params.get("delimiter") or ","
        if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
            raise RunFailed(
                f"source {operator.name!r}: the delimiter must be one ASCII character, no quote and no line end, "
                f"found {delimiter!r}"
            )
        form = RaggedFormat if params.get("ragged") else CsvFormat
        return form(operator.fields, limit, delimiter, comment)
    raise RunFailed(f"source {operator.name!r}: no such format of lines: {kind!r}; there are csv, jsonl and text")


class FileReader:
    """One slice of a file source."""

    def __init__(
        self,
        operator: Operator,
        slice_index: int,
        *,
        mark: Mark | None = None,
        cut: int = START,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._operator = operator
        self._slice = slice_index
        self._cut = cut
        self._block_bytes = block_bytes
        self._paths: list[str] = operator.params["paths"]
        self._format = make_format(operator, RECORD_BYTES_MAX)
        self._pending = Pending(operator.schema, cut)
        self._marks = Marks()
        self._window: Window | None = None
        self._blocks: Blocks | None = None
        self._drained = False
        start = mark or {"path": 0, "offset": 0, "seq": START, "line": 1}
        self._path = int(start["path"])
        self._seq = int(start["seq"])
        if self._path < len(self._paths):
            try:
                blocks = self._open(self._path)
                if start["offset"] > blocks.offset:
                    blocks.go_to(start["offset"], start["line"])
            except BaseException:
                self.close()
                raise
        self._note()

    def read(self, max_rows: int, max_bytes: int) -> Records:
        for _ in range(CHUNKS_PER_READ):
            if not self._pending.empty or self._ended:
                break
            self._next_chunk()
        if self._ended and self._pending.empty:
            self._pending.reach(END)
        return self._pending.take(max_rows, max_bytes)

    def mark(self, cut: int) -> Mark:
        return self._marks.at(cut)

    def wake_fds(self) -> list[int]:
        return []

    def drain(self) -> None:
        self._drained = True

    def close(self) -> None:
        if self._window:
            self._window.close()

    @property
    def _ended(self) -> bool:
        return self._drained or self._path >= len(self._paths)

    def _next_chunk(self) -> None:
        blocks = self._blocks or self._open(self._path)
        chunk = blocks.next()
        if chunk is None:
            self.close()
            self._window = self._blocks = None
            self._path += 1
            if self._path < len(self._paths):
                self._open(self._path)
            self._note()
            return
        if self._owns(chunk.block) and (self._seq >= self._cut or self._after(chunk) > self._cut):
            numbers = self._numbers(chunk)
            rows, dead = self._parse(chunk, numbers)
            self._seq = numbers.next
            self._pending.put(rows, dead, max(self._seq, self._cut))
        else:
            self._seq = self._after(chunk)
            self._pending.reach(max(self._seq, self._cut))
        self._note()

    def _numbers(self, chunk: Chunk) -> Numbers | Column:
        """The seqs of a chunk's records, of which the first has at least the seq where we are."""
        if "seq" in self._operator.params:
            return Column(self._operator, self._seq, self._place(chunk))
        count = len(chunk.split.starts)
        return Numbers(np.arange(self._seq, self._seq + count, dtype=np.int64), self._seq)

    def _after(self, chunk: Chunk) -> int:
        """The least seq that can come after a chunk which is not parsed."""
        numbers = self._numbers(chunk)
        if isinstance(numbers, Column):
            numbers.passed_over(self._format, chunk.data, chunk.split)
        return numbers.next

    def _place(self, chunk: Chunk) -> Place:
        path = self._paths[self._path]
        return lambda i: f"{path}:{chunk.line_of(i)}"

    def _owns(self, block: int) -> bool:
        return (self._path + block) % self._operator.slices == self._slice

    def _parse(self, chunk: Chunk, numbers: Seqs) -> tuple[Rows, Rows | None]:
        place = self._place(chunk)
        return parse(self._format, self._operator, chunk.data, chunk.split, numbers, place, self._cut)

    def _note(self) -> None:
        offset, line = (self._blocks.offset, self._blocks.line) if self._blocks else (0, 1)
        self._marks.add(self._seq, {"path": self._path, "offset": offset, "seq": self._seq, "line": line})

    def _open(self, path: int) -> Blocks:
        """Open a file and go past its header."""
        self._window = Window(self._paths[path], self._operator.name)
        self._blocks = Blocks(self._window, self._format.rules, self._block_bytes)
        if isinstance(self._format, CsvFormat) and self._operator.params.get("header"):
            self._read_header(self._format, self._paths[path], self._blocks)
        return self._blocks

    def _read_header(self, form: CsvFormat, path: str, blocks: Blocks) -> None:
        """Find the operator's fields among the names in a file's first record."""
        while (chunk := blocks.next_unit()) is not None:
            if len(chunk.split.starts):
                break
        else:
            return
        place = f"source {self._operator.name!r}: {path}:{chunk.line_of(0)}"
        try:
            if chunk.split.broken:
                raise ValueError(chunk.split.broken[0])
            text = chunk.data[chunk.split.starts[0] : chunk.split.stops[0]].decode()
            names = fields_of(text, self._operator.params.get("delimiter") or ",")
        except ValueError as error:
            raise RunFailed(f"{place}: the header cannot be read: {error}") from None
        positions = []
        for field in self._operator.fields:
            if names.count(field.name) != 1:
                found = "twice" if field.name in names else "not at all"
                raise RunFailed(
                    f"{place}: expected a column {field.name!r} once in the header, found it {found}; "
                    f"the columns are: {', '.join(names[:50])}"
                )
            positions.append(names.index(field.name))
        form.set_columns(positions, len(names))
