"""Sources that Spark reads: files of any of its formats, a table, or a query.

Spark itself is not asked here, it takes seconds to start: an unknown format, a table that is not there and columns that
do not fit the fields are found when the run begins, before any row is emitted.
"""

from __future__ import annotations

import glob
import os

from dadstorm.plan import SPARK_FORMATS
from dadstorm.topology.context import Context, Draft
from dadstorm.topology.document import Node, Text, found, is_null, nearest_file
from dadstorm.topology.fields import declared
from dadstorm.topology.report import nearest
from dadstorm.topology.shapes import Section
from dadstorm.topology.spark import settings
from dadstorm.topology.values import boolean, choice, text, words

INPUTS = ("path", "table", "sql")
STREAMS = ("true", "false", "available-now")


def options(ctx: Context, draft: Draft, section: Section) -> None:
    """Everything about such a source but where its replicas are."""
    report, what = ctx.report, draft.what
    draft.params = {"type": "spark", "format": None, "paths": []}
    if len({replica.host for replica in draft.replicas}) > 1:
        report.mistake(draft.place, f"{what}: found several hosts; expected one: its rows are staged in one folder")
    _what_is_read(ctx, draft, section)
    settings(ctx, draft, section)
    for name in draft.params.get("options", {}):
        if name.lower() in ("path", "paths"):
            report.mistake(section.key_place("options"), f"{what}: options: found {name}; it is said with path:")
    if node := section.get("stream"):
        _stream(ctx, draft, node)
    if node := section.get("schema"):
        draft.params["schema"] = text(report, node, f"{what}: schema", "columns such as id INT, name STRING")
    if node := section.get("order_by"):
        columns = words(report, node, f"{what}: order_by")
        draft.params["order_by"] = [column.text.strip() for column in columns or ()]
    if node := section.get("journal"):
        folder = text(report, node, f"{what}: journal", "a folder")
        draft.params["journal"] = ctx.path(folder) if folder else None
    if node := section.get("fsync"):
        draft.params["fsync"] = bool(boolean(report, node, f"{what}: fsync"))
    _fields(ctx, draft, section)


def _stream(ctx: Context, draft: Draft, node: Node) -> None:
    """A stream is a live source: one slice, journalled."""
    report, what = ctx.report, draft.what
    chosen = choice(report, node, f"{what}: stream", STREAMS)
    if chosen is None or chosen == "false":
        return
    draft.params["stream"] = chosen
    if draft.params.get("sql") is not None:
        report.mistake(node.place, f"{what}: stream: a query is no stream; expected path or table")
    if len(draft.params["paths"]) > 1:
        report.mistake(node.place, f"{what}: stream: found several paths; expected one folder")
    if draft.slices > 1 or len(draft.replicas) > 1:
        report.mistake(node.place, f"{what}: stream: found several slices or replicas; expected one")


def _what_is_read(ctx: Context, draft: Draft, section: Section) -> None:
    """A format and its files, or a table, or a query: one of them."""
    report, what = ctx.report, draft.what
    value = section.get("spark")
    assert value is not None
    given = [key for key in INPUTS if section.get(key) is not None]
    if len(given) > 1:
        report.mistake(section.key_place(given[1]), f"{what} has both {' and '.join(given)}; expected one of these")
        return
    if given and given[0] != "path":
        key = given[0]
        node = section.get(key)
        assert node is not None
        draft.params[key] = text(report, node, f"{what}: {key}", "a table's name" if key == "table" else "a query")
        for unfit in ("options", "schema") if key == "sql" else ("schema",):
            if not section.missing(unfit):
                report.mistake(section.key_place(unfit), f"{what}: {unfit} says nothing beside {key}; leave it out")
        if not is_null(value):
            report.mistake(value.place, f"{what}: spark: found {found(value)}; expected nothing beside {key}")
        return
    form = "parquet" if is_null(value) else text(report, value, f"{what}: spark", "a format such as parquet")
    if form is None:
        return
    draft.params["format"] = form
    if form != form.lower() and form.lower() in SPARK_FORMATS:
        report.mistake(value.place, f'{what}: spark: found "{form}"{nearest(form, SPARK_FORMATS)}')
    if given:
        node = section.get("path")
        assert node is not None
        draft.params["paths"] = _paths(ctx, node, f"{what}: path")
    elif form in SPARK_FORMATS and section.missing("path"):
        report.mistake(draft.place, f"{what}: path is missing; expected what to read: path, table or sql")


def _paths(ctx: Context, node: Node, what: str) -> list[str]:
    """Files, folders or globs; those of this machine, which have to be there, become absolute."""
    found_paths: list[str] = []
    for item in words(ctx.report, node, what) or ():
        if "://" in item.text:
            found_paths.append(item.text.strip())
        else:
            found_paths.append(_local(ctx, item, what))
    return found_paths


def _local(ctx: Context, item: Text, what: str) -> str:
    path = ctx.path(item.text.strip())
    if not os.path.lexists(path) and not (glob.has_magic(path) and glob.glob(path)):
        ctx.report.mistake(item.place, f"{what}: no such file or folder: {path}{nearest_file(path)}")
    return path


def _fields(ctx: Context, draft: Draft, section: Section) -> None:
    report, what = ctx.report, draft.what
    node = section.get("fields")
    if node is None:
        if section.missing("fields"):
            report.mistake(draft.place, f"{what}: fields is missing; expected columns such as [id:int, user]")
        return
    wanted = declared(report, node, f"{what}: fields")
    if wanted is None:
        return
    lower: dict[str, str] = {}
    for one in wanted:
        other = lower.setdefault(one.name.lower(), one.name)
        if other != one.name:
            report.mistake(one.place, f'{what}: fields "{other}" and "{one.name}" differ in case; Spark cannot tell')
    draft.fields = tuple(one.field for one in wanted)
