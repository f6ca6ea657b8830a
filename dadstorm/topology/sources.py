"""Sources: files, the generator, live lines over TCP or standard input, whatever Spark reads."""

from __future__ import annotations

import zlib
from typing import Any, cast

from dadstorm.plan import OnError
from dadstorm.topology import generators, seqs, spark_source
from dadstorm.topology.context import Context, Draft
from dadstorm.topology.document import Node, Text, found, is_null
from dadstorm.topology.fields import Declared, Fields, declared
from dadstorm.topology.files import header_fields, parquet_fields, paths
from dadstorm.topology.placement import claim_port, endpoint, join, replicas, slices
from dadstorm.topology.shapes import SOURCES, Section, kind_of
from dadstorm.topology.values import INT64_MAX, boolean, choice, integer, number, size_bytes, text

RECORD_BYTES_DEFAULT = 16 << 20
LINE_BYTES_DEFAULT = 1 << 20
"""Of live sources: every client may have one line in memory."""

RECORD_BYTES_MAX = 256 << 20
RATE_MAX = 1e9
ON_ERROR = ("fail", "skip", "dead-letter")
LINE_FORMATS = ("text", "csv", "jsonl")


def source(ctx: Context, name: Text, node: Node) -> Draft:
    """A source as far as it is right; its fields are None if they could not be found out."""
    draft = Draft(name.text, "source", name.place)
    kind = kind_of(ctx.report, name, node, draft.what, SOURCES)
    if kind is None:
        return draft
    how, section = kind
    draft.section = section
    draft.on_error = on_error(section, draft.what)
    draft.replicas = replicas(ctx, section, draft.what)
    draft.slices, _ = slices(ctx.report, section, draft.what, len(draft.replicas))
    if how == "generate":
        _generate(ctx, draft, section)
    elif how in ("tcp", "stdin"):
        _live(ctx, draft, section, how)
    elif how == "spark":
        spark_source.options(ctx, draft, section)
    else:
        _files(ctx, draft, section, how)
    return draft


def on_error(section: Section, what: str) -> OnError:
    node = section.get("on_error")
    value = None if node is None else choice(section.report, node, f"{what}: on_error", ON_ERROR)
    return cast(OnError, value or "fail")


def _files(ctx: Context, draft: Draft, section: Section, how: str) -> None:
    value = section.get(how)
    assert value is not None
    found_paths = paths(ctx, value, f"{draft.what}: {how}")
    node = section.get("fields")
    wanted = None if node is None else declared(ctx.report, node, f"{draft.what}: fields")
    header_node = section.get("header")
    header = header_node is not None and bool(boolean(ctx.report, header_node, f"{draft.what}: header"))
    delimiter = _delimiter(section, draft.what)
    comment = _comment(section, draft.what)
    limit = _record_max(ctx, section, RECORD_BYTES_DEFAULT, draft.what)
    draft.params = {
        "type": "file", "format": how, "paths": found_paths or [], "header": header, "delimiter": delimiter,
        "comment": comment, "record_bytes_max": limit,
    }  # fmt: skip
    if how == "csv" and ctx.ragged:
        draft.params["ragged"] = True
        if header:
            message = "header: a ragged topology finds fields by position; expected fields: and no header"
            ctx.report.mistake(section.key_place("header"), f"{draft.what}: {message}")
    if node is not None and wanted is None:
        return
    if how == "parquet":
        if found_paths:
            draft.fields = parquet_fields(ctx, value.place, found_paths, wanted, draft.what)
    elif how == "csv" and header:
        if found_paths:
            draft.fields = header_fields(
                ctx, value.place, found_paths, delimiter, comment, limit, wanted, draft.what
            )
    else:
        draft.fields = _line_fields(ctx, draft, how, wanted)
    if how != "text" and (reference := section.get("seq")) is not None:
        seqs.settle(ctx, draft, reference)


def _line_fields(ctx: Context, draft: Draft, form: str, wanted: list[Declared] | None) -> Fields | None:
    """Fields of records that are lines: text has one, a string; the others say which they have."""
    if form == "text":
        fields = [Declared(draft.place, "line", None)] if wanted is None else wanted
        if len(fields) != 1 or fields[0].field.type != "string":
            ctx.report.mistake(fields[0].place, f"{draft.what}: fields: text has exactly one field, a string")
            return None
        return (fields[0].field,)
    if wanted is None:
        assert draft.section is not None
        if not draft.section.missing("fields"):
            return None
        hint = ", or header: true" if form == "csv" and draft.params["type"] == "file" else ""
        ctx.report.mistake(draft.place, f"{draft.what}: fields is missing; expected such as [id:int, user]{hint}")
        return None
    return tuple(one.field for one in wanted)


def _generate(ctx: Context, draft: Draft, section: Section) -> None:
    value, count_node, rate_node, seed_node = (section.get(key) for key in ("generate", "count", "rate", "seed"))
    assert value is not None
    made = generators.fields(ctx, value, f"{draft.what}: generate")
    count = None if count_node is None else integer(ctx.report, count_node, f"{draft.what}: count", 0, 2**48)
    rate = None if rate_node is None else number(ctx.report, rate_node, f"{draft.what}: rate", 0.001, RATE_MAX)
    # Two generators of one topology must differ though neither names a seed, and must not by position in the file.
    seed: int | None = (ctx.seed + zlib.crc32(draft.name.encode())) & INT64_MAX
    if seed_node is not None:
        seed = integer(ctx.report, seed_node, f"{draft.what}: seed", 0, INT64_MAX)
    draft.params = {"type": "generate", "count": count, "rate": rate, "seed": seed, "generators": []}
    if made is not None:
        draft.fields, draft.params["generators"] = made


def _live(ctx: Context, draft: Draft, section: Section, how: str) -> None:
    value, node, journal = section.get(how), section.get("fields"), section.get("journal")
    assert value is not None
    params: dict[str, Any] = {"type": how}
    form: str | None = "text"
    if how == "tcp":
        params["listen"] = _listen(ctx, value, draft)
        format_node = section.get("format")
        if format_node is not None:
            form = choice(ctx.report, format_node, f"{draft.what}: format", LINE_FORMATS)
        if len(draft.replicas) > 1:
            ctx.report.mistake(draft.place, f"{draft.what}: found several hosts; expected one: it has one port")
    else:
        ctx.claim(draft.place, "standard input", draft.what)
        if not is_null(value):
            form = choice(ctx.report, value, f"{draft.what}: stdin", LINE_FORMATS)
    folder = None if journal is None else text(ctx.report, journal, f"{draft.what}: journal", "a folder")
    params |= {
        "format": form, "delimiter": _delimiter(section, draft.what), "journal": ctx.path(folder) if folder else None,
        "record_bytes_max": _record_max(ctx, section, LINE_BYTES_DEFAULT, draft.what),
    }  # fmt: skip
    if flag := section.get("fsync"):
        params["fsync"] = bool(boolean(ctx.report, flag, f"{draft.what}: fsync"))
    if form == "csv" and ctx.ragged:
        params["ragged"] = True
    draft.params = params
    wanted = None if node is None else declared(ctx.report, node, f"{draft.what}: fields")
    if form is not None and (node is None or wanted is not None):
        draft.fields = _line_fields(ctx, draft, form, wanted)


def _listen(ctx: Context, node: Node, draft: Draft) -> str | None:
    example = "HOST:PORT such as 127.0.0.1:7000, or a port of this machine"
    if not isinstance(node, Text) or node.is_null:
        ctx.report.mistake(node.place, f"{draft.what}: tcp: found {found(node)}; expected {example}")
        return None
    where = node.text.strip().removeprefix("tcp://")
    where = f"127.0.0.1:{where}" if where.isdecimal() else where
    parts = endpoint(ctx.report, node, where, f"{draft.what}: tcp", None, example)
    if parts is None:
        return None
    claim_port(ctx, node.place, *parts, draft.what)
    return join(*parts)


def _record_max(ctx: Context, section: Section, default: int, what: str) -> int:
    """The longest record: it has to fit into the window, or it could never be emitted."""
    node = section.get("record_max")
    most = min(RECORD_BYTES_MAX, ctx.window_bytes)
    value = None if node is None else size_bytes(ctx.report, node, f"{what}: record_max", 16, most)
    return min(default, most) if value is None else value


def _delimiter(section: Section, what: str) -> str:
    node = section.get("delimiter")
    if node is None:
        return ","
    written = node.text if isinstance(node, Text) else ""
    value = {"tab": "\t", "\\t": "\t"}.get(written, written)
    if len(value) != 1 or not value.isascii() or value in "\"\r\n'" or value.isalnum():
        expected = "expected one character such as ; or tab"
        section.report.mistake(node.place, f"{what}: delimiter: found {found(node)}; {expected}")
        return ","
    return value


def _comment(section: Section, what: str) -> str | None:
    node = section.get("comment")
    if node is None:
        return None
    if not isinstance(node, Text) or not node.text or len(node.text) > 8 or "\n" in node.text:
        expected = 'expected how a comment starts, such as "#"'
        section.report.mistake(node.place, f"{what}: comment: found {found(node)}; {expected}")
        return None
    return node.text
