"""Loose CSV: a tuple a line, as many fields as there are, each without the blanks and double quotes around it.

What people type by hand: ``1, user3, "www.x.org"``. A record may have fewer fields than were declared: the absent ones
are null. More of them is an error: nobody would see the rest. Within quotes a comma is no delimiter and two quotes
stand for one; a quote that is not closed where its field ends is an ordinary character, so a stray one never reaches
the next line. A line of nothing but blanks is no record.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.core.schemas import schema_of
from dadstorm.plan import Field
from dadstorm.sources.fields import convert
from dadstorm.sources.formats import Declined, records_only, typed_columns
from dadstorm.sources.split import Rules, Split

BLANKS = " \t\r\f\v"
"""What is trimmed; line feeds cannot be there."""


class RaggedFormat:
    def __init__(self, fields: tuple[Field, ...], limit: int, delimiter: str = ",", comment: str | None = None) -> None:
        # A delimiter that is a blank itself (a tab) is not to be trimmed away.
        self._blanks = BLANKS.replace(delimiter, "")
        self.rules = Rules(limit, self._blanks.encode(), comment.encode() if comment else None)
        self._fields = fields
        self._delimiter = delimiter
        self._splitter = Splitter(delimiter)

    def batch(self, data: bytes, split: Split) -> pa.RecordBatch:
        records = records_only(data, split).to_pybytes()
        lines = pa.array([line for line in records.decode().split("\n") if line.strip(self._blanks)], pa.string())
        if len(lines) != len(split.starts):
            raise Declined
        pieces = pc.split_pattern(lines, self._delimiter)
        values, starts = pc.utf8_trim(pieces.flatten(), self._blanks), pieces.offsets.to_numpy()
        if b'"' in records:
            inner = pc.replace_substring_regex(values, '^"(.*)"$', r"\1")
            if pc.any(pc.match_substring(inner, '"')).as_py():
                raise Declined
            values = inner
        widths = np.diff(starts)
        if widths.max() > len(self._fields):
            raise Declined
        columns = []
        for i, field in enumerate(self._fields):
            column, wrong = convert(values.take(pa.array(starts[:-1] + i, mask=widths <= i)), field.type)
            if len(wrong):
                raise Declined
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema_of(self._fields))

    def rows(self, records: list[str]) -> tuple[pa.RecordBatch, dict[int, str]]:
        width = len(self._fields)
        broken: dict[int, str] = {}
        columns: list[list[str | None]] = [[] for _ in self._fields]
        for i, record in enumerate(records):
            values: list[str | None] = [*self._splitter.fields(record)]
            if len(values) > width:
                broken[i] = f"expected at most {width} fields, found {len(values)}"
                values = []
            for column, value in zip(columns, values + [None] * (width - len(values)), strict=True):
                column.append(value)
        batch, wrong = typed_columns(columns, self._fields)
        return batch, wrong | broken


class Splitter:
    """Lines into fields, one at a time."""

    def __init__(self, delimiter: str = ",") -> None:
        self._blanks = BLANKS.replace(delimiter, "")
        blank, edge = f"[{self._blanks}]*", re.escape(delimiter)
        self._field = re.compile(rf'{blank}(?:"((?:[^"]|"")*)"{blank}|([^{edge}]*))({edge}|\Z)')

    def fields(self, line: str) -> list[str]:
        """The fields of a line; always at least one."""
        fields = []
        at = 0
        while True:
            found = self._field.match(line, at)
            assert found, "every text matches: an unquoted field may be anything"
            quoted, bare, delimiter = found.groups()
            fields.append(quoted.replace('""', '"') if quoted is not None else self._bare(bare))
            at = found.end()
            if not delimiter:
                return fields

    def _bare(self, text: str) -> str:
        text = text.strip(self._blanks)
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
