"""JSON lines: one object per line, fields by name.

A missing key is null, and so is a null. Otherwise a value must be of its field's type: a string is no number and a
number no string, an integer has no fraction, a timestamp is a string. Keys that are no fields are ignored. NaN and
Infinity are not JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from dadstorm.core.schemas import ARROW, schema_of
from dadstorm.plan import Field
from dadstorm.sources.fields import convert
from dadstorm.sources.formats import Declined, arrow_type, finish, records_only, wrong_value
from dadstorm.sources.split import Rules, Split

INT_DIGITS_MAX = 400
"""Longer integers are neither int64 nor float: Python need not spend quadratic time on them."""


class JsonLinesFormat:
    def __init__(self, fields: tuple[Field, ...], limit: int, comment: str | None = None) -> None:
        self.rules = Rules(limit, b" \t\r", comment.encode() if comment else None)
        self._fields = fields
        self._parse = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([(field.name, arrow_type(field)) for field in fields]),
            unexpected_field_behavior="ignore",
        )

    def batch(self, data: bytes, split: Split) -> pa.RecordBatch:
        return finish(self._table(data, split), self._fields, len(split.starts))

    def _table(self, data: bytes, split: Split) -> pa.Table:
        """The records as Arrow reads them, timestamps still as strings."""
        octets = np.frombuffer(data, np.uint8)
        # Arrow does not mind an object over two lines, or two in one. Where every line is {…}, no object goes over its
        # line's end, and then the number of rows tells.
        if not ((octets[split.starts] == ord("{")).all() and (octets[split.stops - 1] == ord("}")).all()):
            raise Declined
        if b"NaN" in data or b"Inf" in data:
            raise Declined
        records = records_only(data, split)
        read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(records.size, 1 << 16))
        try:
            table = pyarrow.json.read_json(pa.BufferReader(records), read, self._parse)
        except pa.ArrowInvalid:
            raise Declined from None
        for field in self._fields:
            # Arrow takes an integer that is too large for a float as infinite.
            if field.type == "float" and not pc.all(pc.is_finite(table[field.name]), min_count=0).as_py():
                raise Declined
        return table.select([field.name for field in self._fields])

    def rows(self, records: list[str]) -> tuple[pa.RecordBatch, dict[int, str]]:
        broken: dict[int, str] = {}
        columns: list[list[Any]] = [[] for _ in self._fields]
        for i, record in enumerate(records):
            values: list[Any] = [None] * len(self._fields)
            try:
                values, wrong = self._values(record)
                if wrong:
                    broken[i] = wrong
            except RecursionError:
                # Arrow reads any depth, and how deep Python goes depends on who called: Arrow decides.
                raw = record.encode()
                try:
                    table = self._table(raw, Split(np.array([0]), np.array([len(raw)]), len(raw)))
                    if table.num_rows != 1:
                        raise Declined
                    values = [column[0].as_py() for column in table.columns]
                except Declined:
                    broken[i] = "not JSON that can be read: nested too deeply"
            except ValueError as error:
                broken[i] = str(error)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        arrays = []
        for field, column in zip(self._fields, columns, strict=True):
            if field.type == "timestamp":
                array, bad = convert(pa.array(column, pa.string()), "timestamp")
                for i in bad.tolist():
                    broken.setdefault(i, wrong_value(field, column[i]))
            else:
                array = pa.array(column, ARROW[field.type])
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(self._fields)), broken

    def _values(self, record: str) -> tuple[list[Any], str | None]:
        """The fields' values, None for a wrong one, and what is wrong with the first of those."""
        try:
            found = json.loads(record, parse_constant=_refuse_constant, parse_int=_integer)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, found {_KINDS.get(type(found), 'something else')}")
        values, wrong = [], None
        for field in self._fields:
            try:
                values.append(_checked(field, found.get(field.name)))
            except ValueError as error:
                values.append(None)
                wrong = wrong or str(error)
        return values, wrong


_KINDS = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a bool", type(None): "null"}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"not JSON: {name} is no JSON value; write null")


class _MinusZero(int):
    """-0: as an integer it is zero, as a float it keeps its sign, as Arrow reads it."""

    def __float__(self) -> float:
        return -0.0


def _integer(digits: str) -> int | float:
    if digits == "-0":
        return _MinusZero()
    return int(digits) if len(digits) <= INT_DIGITS_MAX else math.inf


def _checked(field: Field, value: Any) -> Any:
    """The value as its field's type; ``ValueError`` if it is none."""
    if value is None:
        return None
    if field.type in ("string", "timestamp"):
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"field {field.name!r}: half a surrogate pair is no character") from None
            return value
    elif field.type == "bool":
        if isinstance(value, bool):
            return value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if field.type == "int" and isinstance(value, int) and -(2**63) <= value < 2**63:
            return value
        if field.type == "float":
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
    raise ValueError(wrong_value(field, value))
