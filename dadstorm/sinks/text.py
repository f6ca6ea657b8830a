"""Columns to text: CSV, JSON lines and console lines, whole batches at a time.

A value has one text, the same in every run and however rows were batched:

- int and bool as one writes them; bool is ``true`` or ``false``;
- float: the shortest digits that read back as the same number, always recognisable as a float (``1.0``, ``0.1``,
  ``1e+20``), and ``nan``, ``inf``, ``-inf``;
- timestamp: ISO 8601 in UTC with all six digits, ``2026-01-02T03:04:05.000006Z``.

Most text needs no quoting, and finding that out is a scan over the bytes of a column (about a nanosecond a row). Only a
column that does contain a special byte takes the slower way, which gives the same text for all other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_CSV_SPECIAL = b',"\r\n'
_CSV_UNQUOTED = csv.WriteOptions(include_header=False, quoting_style="none", batch_size=1 << 15)
_SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_CONTROLS_BELOW = 0x20
_DELETE = 0x7F


def csv_lines(batch: pa.RecordBatch, ragged: bool = False) -> pa.Buffer:
    """RFC 4180 without a header, lines ended by LF; only what must be quoted is. Null is the empty field.

    A row of one empty field is ``""``: readers skip blank lines, and the row would be lost. Of a ``ragged`` row, the
    nulls at its end are not written.
    """
    if ragged:
        return _ragged_csv(batch)
    special = (pa.types.is_floating, pa.types.is_timestamp)
    columns = [as_text(column) if any(kind(column.type) for kind in special) else column for column in batch.columns]
    alone = len(columns) == 1
    if not (alone and _any_empty(columns[0])) and not any(_has(c, _CSV_SPECIAL) for c in columns):
        out = pa.BufferOutputStream()
        csv.write_csv(pa.RecordBatch.from_arrays(columns, batch.schema.names), out, _CSV_UNQUOTED)
        return out.getvalue()
    texts = [_csv_field(column) for column in columns]
    if alone:
        texts[0] = pc.if_else(pc.equal(pc.binary_length(pc.fill_null(texts[0], "")), 0), '""', texts[0])
    return _concatenated(_separated(texts, ","), null="")


def json_lines(batch: pa.RecordBatch, ragged: bool = False) -> pa.Buffer:
    """One compact object a line, keys in field order, UTF-8 as it is; null, NaN and the infinities are ``null``. Of a
    ``ragged`` row, the nulls at its end are not written."""
    if ragged:
        return _ragged_json(batch)
    parts: list[pa.Array | str] = []
    literal = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        literal += msgspec.json.encode(name).decode() + ":"
        value, quote = _json_value(column)
        if column.null_count and quote:
            # The quotes must vanish with the value, so they become part of it.
            value, quote = pc.binary_join_element_wise(quote, value, quote, ""), ""
        parts += [literal + quote, value]
        literal = quote + ","
    return _concatenated([*parts, literal[:-1] + "}\n"], null="null")


def console_lines(batch: pa.RecordBatch, operator: str, ragged: bool = False) -> pa.Buffer:
    """``operator: f1, f2``, one line a row: control characters are shown as escapes, never sent to the terminal."""
    texts = [_escaped(column, delete=True) if _is_text(column) else as_text(column) for column in batch.columns]
    if ragged:
        return _concatenated([f"{operator}: ", *_present(batch.columns, texts, ", "), "\n"], null="")
    return _concatenated([f"{operator}: ", *_separated(texts, ", ")], null="")


def _ragged_csv(batch: pa.RecordBatch) -> pa.Buffer:
    parts = _present(batch.columns, [_csv_field(column) for column in batch.columns], ",")
    blank = pc.and_(pc.equal(parts[0], ""), pc.is_null(parts[1]) if len(parts) > 1 else True)
    return _concatenated([pc.if_else(blank, '""', parts[0]), *parts[1:], "\n"], null="")


def _ragged_json(batch: pa.RecordBatch) -> pa.Buffer:
    texts = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        value, quote = _json_value(column)
        whole = pc.binary_join_element_wise(quote, value, quote, "")
        texts.append(pc.binary_join_element_wise(msgspec.json.encode(name).decode(), pc.fill_null(whole, "null"), ":"))
    return _concatenated(["{", *_present(batch.columns, texts, ","), "}\n"], null="")


def _present(columns: Sequence[pa.Array], texts: Sequence[pa.Array], separator: str) -> list[pa.Array]:
    """The texts, each but the first after its separator, null for the columns that are null up to the row's end."""
    parts: list[pa.Array] = []
    there: pa.Array | None = None
    for index in range(len(columns) - 1, -1, -1):
        valid = columns[index].is_valid()
        there = valid if there is None else pc.or_(there, valid)
        text = pc.fill_null(texts[index], "")
        part = pc.binary_join_element_wise(separator, text, "") if index else text
        parts.append(pc.if_else(there, part, pa.scalar(None, pa.string())))
    return parts[::-1]


def as_text(column: pa.Array) -> pa.Array:
    """The column as strings, null staying null."""
    if _is_text(column):
        return column
    if pa.types.is_timestamp(column.type):
        spaced = column.cast(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(pc.replace_substring(spaced, " ", "T", max_replacements=1), "Z", "")
    text = column.cast(pa.string())
    return _with_point(column, text) if pa.types.is_floating(column.type) else text


def _with_point(column: pa.Array, text: pa.Array) -> pa.Array:
    """Arrow writes 1.0 as ``1``: give whole numbers that have neither point nor exponent a ``.0``."""
    numbers = column.to_numpy(zero_copy_only=False)
    whole = np.isfinite(numbers) & (numbers == np.trunc(numbers))
    if not whole.any():
        return text
    bare = pc.and_(whole, pc.invert(pc.or_(pc.match_substring(text, "."), pc.match_substring(text, "e"))))
    return pc.if_else(bare, pc.binary_join_element_wise(text, ".0", ""), text)


def _csv_field(column: pa.Array) -> pa.Array:
    text = as_text(column)
    if not _has(text, _CSV_SPECIAL):
        return text
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(text, '[,"\\r\\n]'), quoted, text)


def _json_value(column: pa.Array) -> tuple[pa.Array, str]:
    """A column's values as JSON, and the quote that belongs on both sides of each."""
    if _is_text(column):
        return _escaped(column, quotes=True), '"'
    if pa.types.is_timestamp(column.type):
        return as_text(column), '"'
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    return as_text(column), ""


def _escaped(text: pa.Array, quotes: bool = False, delete: bool = False) -> pa.Array:
    """Backslashes and control characters as JSON escapes them: one pass for each that occurs at all."""
    data = _bytes(text)
    found = np.unique(data[(data < _CONTROLS_BELOW) | (data == _DELETE) & delete]).tolist()
    if _has(text, b"\\") and (quotes or len(found)):
        text = pc.replace_substring(text, "\\", "\\\\")
    if quotes and _has(text, b'"'):
        text = pc.replace_substring(text, '"', '\\"')
    for code in found:
        character = chr(code)
        text = pc.replace_substring(text, character, _SHORT_ESCAPES.get(character, f"\\u{code:04x}"))
    return text


def _is_text(column: pa.Array) -> bool:
    return bool(pa.types.is_string(column.type))


def _any_empty(column: pa.Array) -> bool:
    if column.null_count:
        return True
    return _is_text(column) and len(column) > 0 and pc.min(pc.binary_length(column)).as_py() == 0


def _has(column: pa.Array, special: bytes) -> bool:
    """Whether any of these bytes occurs in the text of the column."""
    if not _is_text(column):
        return False
    data = _bytes(column).tobytes()
    return any(bytes([byte]) in data for byte in special)


def _bytes(text: pa.Array) -> np.ndarray:
    """The UTF-8 of a string column, end to end. A slice shares its parent's buffers: take its own stretch."""
    _, offsets, data = text.buffers()
    if not len(text) or data is None:
        return np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32, count=text.offset + len(text) + 1)
    return np.frombuffer(data, dtype=np.uint8)[ends[text.offset] : ends[-1]]


def _separated(texts: Iterable[pa.Array], separator: str) -> list[pa.Array | str]:
    parts: list[pa.Array | str] = []
    for text in texts:
        parts += [text, separator]
    parts[-1] = "\n"
    return parts


def _concatenated(parts: Sequence[pa.Array | str], null: str) -> pa.Buffer:
    """Line by line the parts in order, and the lines end to end: joining whole columns leaves exactly these bytes."""
    lines = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement=null)
    return pa.py_buffer(_bytes(lines))
