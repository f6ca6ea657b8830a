"""Input files as the compiler sees them: which there are, in which order, and what their first bytes say.

Globs are expanded here, once, and sorted by the bytes of the path: the plan holds a fixed list, so every run
numbers the same records alike.
"""

from __future__ import annotations

import glob
import gzip
import os
import stat
import zlib
from typing import TYPE_CHECKING

from dadstorm.plan import Field, FieldType
from dadstorm.sources.csv_record import fields_of
from dadstorm.topology.context import Context
from dadstorm.topology.document import Node, Text, found, nearest_file
from dadstorm.topology.fields import Declared, Fields
from dadstorm.topology.report import Place, nearest
from dadstorm.topology.values import words

if TYPE_CHECKING:
    import pyarrow as pa

FILES_MAX = 10_000
"""A glob that matches more files is more likely a slip than a wish; list folders instead, or join the files."""


def paths(ctx: Context, node: Node, what: str) -> list[str] | None:
    """The files that a path, a glob or a list of them stands for."""
    patterns = words(ctx.report, node, what)
    if patterns is None:
        return None
    expanded: list[str] = []
    right = True
    for pattern in patterns:
        some = _expand(ctx, pattern, what)
        right = right and some is not None
        expanded += some or []
    if len(expanded) > FILES_MAX:
        ctx.report.mistake(node.place, f"{what}: found {len(expanded)} files; expected at most {FILES_MAX}")
        right = False
    return expanded if right else None


def _expand(ctx: Context, pattern: Text, what: str) -> list[str] | None:
    path = ctx.path(pattern.text)
    if not os.path.lexists(path) and glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True), key=os.fsencode)
        files = [match for match in matches if not os.path.isdir(match)]
        if not files:
            ctx.report.mistake(pattern.place, f"{what}: no file matches {found(pattern)} (looked for {path})")
            return None
    else:
        files = [path]
    problems = [problem for problem in map(_unreadable, files) if problem]
    for problem in problems:
        ctx.report.mistake(pattern.place, f"{what}: {problem}")
    return None if problems else files


def _unreadable(path: str) -> str | None:
    """Why a file cannot be read, if it cannot."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return f"no such file: {path}{nearest_file(path)}"
    except (OSError, ValueError) as error:
        return f"cannot be read: {path}: {getattr(error, 'strerror', None) or error}"
    if stat.S_ISDIR(mode):
        return f'{path} is a folder; expected a file, or a glob such as "{os.path.basename(path)}/*"'
    if not stat.S_ISREG(mode):
        return f"{path} is not a regular file, so it cannot be read again after a failure; use stdin or tcp"
    return None if os.access(path, os.R_OK) else f"no permission to read {path}"


def header_fields(
    ctx: Context, place: Place, files: list[str], delimiter: str, comment: str | None, limit: int,
    wanted: list[Declared] | None, what: str,
) -> Fields | None:  # fmt: skip
    """The wanted fields, each of which every header has to name; if none are wanted, the first header's, as strings.

    A file without records needs no header."""
    for path in files:
        try:
            record = _first_record(path, comment, limit)
            names = None if record is None else fields_of(record, delimiter)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            ctx.report.mistake(place, f"{what}: cannot read the header of {path}: {error}")
            return None
        if names is None:
            continue
        if "" in names or len(set(names)) < len(names):
            shown = ", ".join(names)[:60]
            expected = "expected a name per column, each once"
            ctx.report.mistake(place, f"{what}: the header of {path} is {shown!r}; {expected}")
            return None
        if wanted is None:
            wanted = [Declared(place, name, None) for name in names]
        missing = [one for one in wanted if one.name not in names]
        for one in missing:
            hint = nearest(one.name, names) or f"; it has {', '.join(names)}"
            ctx.report.mistake(one.place, f'{what}: the header of {path} has no column "{one.name}"{hint}')
        if missing:
            return None
    if wanted is None:
        ctx.report.mistake(place, f"{what}: {files[0]} has no header; expected a first line with the columns' names")
        return None
    return tuple(one.field for one in wanted)


def _first_record(path: str, comment: str | None, limit: int) -> str | None:
    """The first record that is neither empty nor a comment; a quoted name may go over several lines."""
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        record = b""
        while raw := file.readline(limit + 1):
            record += raw
            if len(record) > limit:
                raise ValueError(f"it is longer than record_max ({limit} bytes)")
            if record.count(b'"') % 2:
                continue
            line = record.decode("utf-8-sig").rstrip("\r\n")
            if line and not (comment and line.startswith(comment)):
                return line
            record = b""
    return None


def parquet_fields(
    ctx: Context, place: Place, files: list[str], wanted: list[Declared] | None, what: str
) -> Fields | None:
    """The wanted columns (all, if none are named) with the types that the Parquet files give them."""
    import pyarrow as pa  # Both take long to import, and few topologies need them.
    import pyarrow.parquet as pq

    agreed: Fields | None = None
    for path in files:
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            ctx.report.mistake(place, f"{what}: {path} is not a Parquet file: {reason}")
            return None
        own = _from_schema(ctx, place, path, schema, wanted, what)
        if own is None:
            return None
        if agreed is not None and own != agreed:
            ctx.report.mistake(place, f"{what}: the columns of {path} are not those of {files[0]}; expected the same")
            return None
        agreed = own
    return agreed


def _from_schema(
    ctx: Context, place: Place, path: str, schema: pa.Schema, wanted: list[Declared] | None, what: str
) -> Fields | None:
    columns = {column.name: column.type for column in schema}
    if wanted is None:
        wanted = [Declared(place, name, None) for name in columns]
    fields: list[Field] = []
    for one in wanted:
        if one.name not in columns:
            hint = nearest(one.name, columns) or f"; it has {', '.join(columns)}"
            ctx.report.mistake(one.place, f'{what}: {path} has no column "{one.name}"{hint}')
            continue
        kind = field_type(columns[one.name])
        if kind is None or (one.type is not None and not _readable(kind, one.type)):
            expected = one.type or "text, numbers, booleans or times"
            ctx.report.mistake(
                one.place, f'{what}: column "{one.name}" of {path} is {columns[one.name]}; expected {expected}'
            )
            continue
        fields.append(Field(one.name, one.type or kind))
    return tuple(fields) if fields and len(fields) == len(wanted) else None


def field_type(kind: pa.DataType) -> FieldType | None:
    """The field type that a column of an Arrow type has if nothing is said; None if it cannot be a field."""
    import pyarrow as pa  # As above.

    if pa.types.is_dictionary(kind):
        return field_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "bool"
    return "timestamp" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else None


def _readable(found: FieldType, wanted: FieldType) -> bool:
    """Whether the Parquet reader takes a column for a field of another type: text is read as a CSV field would be."""
    return found in (wanted, "string") or (found, wanted) == ("int", "float")
