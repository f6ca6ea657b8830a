"""Sinks that Spark writes: what may be said of them, and what is wrong before anything starts. Sources that it reads
are in ``spark_source``.

Formats are Spark's business (packages bring further ones), so an unknown format, an option's value or a master is
refused by Spark itself, before anything is written. What has a place in the file is checked here.
"""

from __future__ import annotations

import os
import re
from collections import Counter

from dadstorm.plan import SPARK_FORMATS
from dadstorm.topology.context import Context, Draft
from dadstorm.topology.document import Mapping, Node, Text, found, is_null
from dadstorm.topology.fields import positions
from dadstorm.topology.report import Place, nearest
from dadstorm.topology.shapes import Section
from dadstorm.topology.values import choice, duration_ms, text

MODES = ("overwrite", "append", "error")
MASTERS = "local, local[N], local[*], spark://HOST:PORT, yarn or k8s://…"
RESERVED = ("commit", "_seq", "_sub", "_epoch")
"""Columns that the table has by itself."""
OURS = ("spark.master", "spark.app.name")
"""Settings of Spark's that keys of the topology are for."""
TABLES = "NAME or DATABASE.NAME, of small letters, digits and _"
CATALOG = "_catalog"
"""Where the catalog is kept, in the output folder, if no other is named."""
_TABLE = re.compile(r"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?")


def options(ctx: Context, draft: Draft, section: Section, value: Node) -> None:
    """Everything about such a sink but where it writes."""
    report, what = ctx.report, draft.what
    form = "parquet" if is_null(value) else text(report, value, f"{what}: spark", "a format such as parquet")
    if form is not None:
        if form != form.lower() and form.lower() in SPARK_FORMATS:
            report.mistake(value.place, f'{what}: spark: found "{form}"{nearest(form, SPARK_FORMATS)}')
        draft.params["writes"] = form
    if node := section.get("mode"):
        draft.params["mode"] = choice(report, node, f"{what}: mode", MODES)
    if node := section.get("commit_every"):
        draft.params["commit_every_ms"] = duration_ms(report, node, f"{what}: commit_every", 100, 3_600_000)
    settings(ctx, draft, section)
    if node := section.get("table"):
        _table(ctx, draft, node)


def settings(ctx: Context, draft: Draft, section: Section) -> None:
    """What sources and sinks say alike about Spark: its master, its settings, the options of a format."""
    report, what = ctx.report, draft.what
    if node := section.get("master"):
        draft.params["master"] = _master(ctx, node, what)
    for key in ("conf", "options"):
        if node := section.get(key):
            draft.params[key] = _pairs(ctx, node, f"{what}: {key}")
    conf = section.get("conf")
    for name, entry in conf.entries.items() if isinstance(conf, Mapping) else ():
        if name in OURS:
            report.mistake(entry.key.place, f"{what}: conf: found {name}; it is said with the {draft.kind}'s own keys")
        elif not name.startswith("spark."):
            report.mistake(entry.key.place, f'{what}: conf: found "{name}"; expected a setting that begins with spark.')


def where(ctx: Context, draft: Draft, path: str, place: Place) -> None:
    """Whether the sink may write there."""
    path = path.removeprefix("file://") if path.startswith("file:///") else path
    if "://" in path or path.startswith("file:"):
        why = "a commit takes a rename that is atomic, which other file systems do not promise"
        ctx.report.mistake(place, f"{draft.what}: path: found {path}; expected a folder of this machine: {why}")
        return
    folder = os.path.normpath(os.path.join(ctx.out, path))
    draft.params["path"] = folder
    ctx.claim(place, f"file {folder}", draft.what)
    from dadstorm.spark.table import Table  # Much comes with it that other sinks do not need.

    # Whether the columns fit a table that is there is looked at when all of them are known.
    problem = Table(folder).problem(ctx.name, draft.name, draft.params.get("mode") or "overwrite")
    if problem:
        ctx.report.mistake(place, f"{draft.what}: {problem}")


def settle(ctx: Context, draft: Draft) -> None:
    """What depends on the fields: the columns that make folders, and names that Spark cannot tell apart."""
    if draft.fields is None:
        return
    report, what = ctx.report, draft.what
    lower = Counter(field.name.lower() for field in draft.fields)
    for name in sorted(name for name, count in lower.items() if count > 1):
        report.mistake(draft.place, f'{what}: several fields are called "{name}" but for the case; Spark cannot tell')
    for field in draft.fields:
        if field.name.lower() in RESERVED:
            report.mistake(draft.place, f'{what}: field "{field.name}" has the name of a column of the table\'s own')
    node = draft.section.get("partition_by") if draft.section else None
    if node is None:
        return
    by = positions(report, node, draft.fields, f"{what}: partition_by")
    if by is None:
        return
    if len(by) >= len(draft.fields):
        report.mistake(node.place, f"{what}: partition_by has all fields; expected some that are left as columns")
    draft.params["partition_by"] = [draft.fields[index].name for index in by]


def _master(ctx: Context, node: Node, what: str) -> str | None:
    """Where Spark is to run."""
    master = text(ctx.report, node, f"{what}: master", MASTERS)
    if master is None:
        return None
    if master.startswith(("local", "spark://", "k8s://")) or master == "yarn":
        return master
    ctx.report.mistake(node.place, f"{what}: master: found {found(node)}; expected {MASTERS}")
    return None


def _table(ctx: Context, draft: Draft, node: Node) -> None:
    """A name in the catalog, which nobody else uses; nor the catalog itself, if it is the one in the output folder."""
    report, what = ctx.report, draft.what
    name = text(report, node, f"{what}: table", TABLES)
    if name is None:
        return
    if not _TABLE.fullmatch(name):
        report.mistake(node.place, f"{what}: table: found {found(node)}; expected {TABLES}")
        return
    from dadstorm.spark import catalog  # As above.

    folder = os.path.join(ctx.out, CATALOG)
    draft.params |= {"table": name, "catalog": folder}
    if catalog.embedded(draft.params.get("conf", {})):
        thing = f"catalog {folder}, which serves one sink (a metastore in conf serves many),"
        ctx.claim(node.place, thing, what)
    else:
        ctx.claim(node.place, f"table {name}", what)


def _pairs(ctx: Context, node: Node, what: str) -> dict[str, str]:
    """Names and values that are Spark's business, all as text."""
    if not isinstance(node, Mapping):
        if not is_null(node):
            ctx.report.mistake(node.place, f"{what}: found {found(node)}; expected names and values")
        return {}
    pairs: dict[str, str] = {}
    for name, entry in node.entries.items():
        if not isinstance(entry.value, Text) or entry.value.is_null:
            ctx.report.mistake(entry.value.place, f"{what}: {name}: found {found(entry.value)}; expected a value")
        else:
            pairs[name] = entry.value.text
    return pairs
