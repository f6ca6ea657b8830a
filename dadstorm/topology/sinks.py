"""Sinks: those the user names, those that terminal operators get by themselves, and those of dead letters.

Relative paths of sinks start in the output folder (``--out``), as those of sources start in the topology's.
"""

from __future__ import annotations

import os
import stat

from dadstorm.core.ports import DEAD_FIELDS, DEAD_LETTERS
from dadstorm.plan import Field
from dadstorm.topology import spark
from dadstorm.topology.context import Context, Draft, Reading
from dadstorm.topology.document import Node, Text, found, is_null
from dadstorm.topology.operators import inputs
from dadstorm.topology.placement import replicas
from dadstorm.topology.report import Place
from dadstorm.topology.shapes import SINKS, Section, kind_of
from dadstorm.topology.values import boolean, duration_ms, size_bytes, text

LETTER = tuple(Field(name) for name in DEAD_FIELDS)


def sink(ctx: Context, name: Text, node: Node) -> Draft:
    """A sink that the user wrote."""
    draft = Draft(name.text, "sink", name.place)
    kind = kind_of(ctx.report, name, node, draft.what, SINKS)
    if kind is None:
        return draft
    form, section = kind
    draft.section = section
    draft.readings = inputs(ctx, name, section, draft.what)
    draft.replicas = replicas(ctx, section, draft.what)
    if len(draft.replicas) > 1:
        ctx.report.mistake(name.place, f"{draft.what}: found several hosts; expected one: it writes one file")
    value = section.get(form)
    assert value is not None
    path: str | None = None
    if form == "spark":
        _spark(ctx, draft, section, value)
    elif form != "console":
        path = f"{name.text}.{form}" if is_null(value) else text(ctx.report, value, f"{draft.what}: {form}", "a path")
    elif not is_null(value):
        ctx.report.mistake(value.place, f"{draft.what}: console: found {found(value)}; expected nothing")
    if form != "spark":
        _writes(ctx, draft, form, path, value.place)
    if form == "spool":
        _spool(ctx, draft, section)
    for option in ("with_id", "fsync"):
        if flag := section.get(option):
            draft.params[option] = bool(boolean(ctx.report, flag, f"{draft.what}: {option}"))
    return draft


def _spark(ctx: Context, draft: Draft, section: Section, value: Node) -> None:
    draft.params = {"format": "spark", "path": None}
    spark.options(ctx, draft, section, value)
    node = section.get("path")
    path = draft.name if node is None else text(ctx.report, node, f"{draft.what}: path", "a folder")
    if path is not None:
        spark.where(ctx, draft, path, draft.place if node is None else node.place)


def _spool(ctx: Context, draft: Draft, section: Section) -> None:
    """How much a spool may hold, and how often it grows."""
    if node := section.get("keep"):
        draft.params["keep_bytes"] = size_bytes(ctx.report, node, f"{draft.what}: keep", 1 << 16, 1 << 40)
    if node := section.get("commit_every"):
        draft.params["commit_every_ms"] = duration_ms(ctx.report, node, f"{draft.what}: commit_every", 10, 3_600_000)


def settle(ctx: Context, draft: Draft) -> None:
    """What depends on the fields that a sink writes."""
    if draft.params.get("format") == "spark":
        spark.settle(ctx, draft)


def default(ctx: Context) -> str:
    """How operators that nobody reads are written if nobody says: with Spark; ragged tuples as CSV, for in a table the
    fields that they lack would be nulls."""
    return "csv" if ctx.ragged else "spark"


def terminal(ctx: Context, operator: Draft, form: str) -> Draft:
    """The sink of an operator that nobody reads: DIR/<operator>.<format>, or the folder DIR/<operator> of Spark's."""
    draft = Draft(f"{operator.name}.sink", "sink", operator.place, readings=[Reading(operator.name, operator.place)])
    draft.fields = operator.fields
    if form == "spark":
        draft.params = {"format": form, "writes": "parquet"}
        spark.where(ctx, draft, operator.name, operator.place)
        settle(ctx, draft)
        return draft
    _writes(ctx, draft, form, None if form == "console" else f"{operator.name}.{form}", operator.place)
    return draft


def dead_letters(ctx: Context, operator: Draft) -> Draft:
    """The sink of what an operator refused: DIR/<operator>.dead.jsonl."""
    reading = Reading(operator.name, operator.place, DEAD_LETTERS)
    draft = Draft(f"{operator.name}.dead", "sink", operator.place, readings=[reading], fields=LETTER)
    _writes(ctx, draft, "jsonl", f"{operator.name}.dead.jsonl", operator.place)
    return draft


def _writes(ctx: Context, draft: Draft, form: str, name: str | None, place: Place) -> None:
    path = None if name is None else os.path.normpath(os.path.join(ctx.out, name))
    draft.params = {"format": form, "path": path}
    if ctx.ragged:
        draft.params["ragged"] = True
    if path is not None:
        ctx.claim(place, f"file {path}", draft.what)
        folder = form in ("parquet", "spool")
        if folder and os.path.isfile(path):
            ctx.report.mistake(place, f"{draft.what}: {path} is a file; {form} is written as a folder of files")
        if not folder and os.path.isdir(path):
            ctx.report.mistake(place, f"{draft.what}: {path} is a folder; expected a file to write")
        elif _is_odd(path):
            ctx.report.mistake(place, f"{draft.what}: {path} is a pipe, a socket or a disk; expected a file to write")


def _is_odd(path: str) -> bool:
    """Whether something is there that cannot be cut back to what was committed."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode)
