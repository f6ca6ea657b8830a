"""A topology file compiled to the plan that runs; all its mistakes at once if it has any.

The steps, each of which goes on with what the one before could make of the file: the document, the settings and hosts,
the names, sources, who reads whom, the operators from producers to consumers, sinks, ID bits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from dadstorm.errors import UserError
from dadstorm.plan import Plan
from dadstorm.topology import bits, document, operators, settings, shapes, sinks
from dadstorm.topology.context import Context, Draft, mapping
from dadstorm.topology.document import Entry, Node, Text, found
from dadstorm.topology.graph import ordered
from dadstorm.topology.report import Origin, Report, listed, nearest
from dadstorm.topology.sources import source

OPERATORS_MAX = 1000
"""More vertices than this is a program that writes topologies gone wrong."""


def load(
    path: str,
    *,
    libs: Sequence[str] = (),
    sink: str | None = None,
    out: str | None = None,
    origin: Origin | None = None,
) -> Plan:
    """Compile a topology.

    ``libs``: further folders for CUSTOM modules. ``sink``: a format in which every terminal operator is written to
    ``out`` in place of the topology's own sinks; with neither, Spark writes them. ``origin``: the topology's text, for
    a file in another language. Raises UserError with every mistake found."""
    path = os.fspath(path)
    report = Report(path, None if origin is None else origin.places)
    _check_arguments(report, libs, sink, out)
    root = document.read(path, report, None if origin is None else origin.text)
    if root is None:
        report.close()
        raise UserError(f"{path}: no topology")
    top = shapes.Section(report, root, "topology", shapes.TOPOLOGY)
    chosen = settings.read(report, top, path)
    ctx = Context(
        report,
        base=os.path.dirname(os.path.abspath(path)),
        out=os.path.abspath("out" if out is None else out),
        libs=tuple(os.path.abspath(lib) for lib in libs),
        window_bytes=chosen.window_bytes,
        seed=chosen.seed,
        name=chosen.name,
        ragged=chosen.ragged,
    )
    if node := top.get("hosts"):
        ctx.hosts = settings.hosts(report, mapping(report, node, "hosts"))
    drafts = _drafts(ctx, top, sink)
    report.close()
    finished = bits.operators(ctx, drafts)
    report.close()
    return Plan(
        chosen.name, finished, chosen.semantics, chosen.window_rows, chosen.window_bytes, chosen.snapshot_every_ms,
        chosen.flush_every_ms, chosen.span, chosen.seed, chosen.logging, ctx.base, ctx.libs, report.warnings,
        chosen.suspect_after_ms, chosen.backups, chosen.script, ctx.hosts, recovery=chosen.recovery,
        durable=chosen.durable, chain=chosen.chain,
    )  # fmt: skip


def _check_arguments(report: Report, libs: Sequence[str], sink: str | None, out: str | None) -> None:
    if sink is not None and sink not in shapes.SINKS:
        report.mistake(None, f'--sink: found "{sink}"; expected {listed(shapes.SINKS)}{nearest(sink, shapes.SINKS)}')
    for lib in libs:
        if not os.path.isdir(lib):
            report.mistake(None, f"--lib: no such folder: {lib}{document.nearest_file(os.path.normpath(lib))}")
    if out == "":
        report.mistake(None, "--out: found nothing; expected a folder")
    folder = os.path.abspath("out" if out is None else out)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        report.mistake(None, f"--out: {folder} is not a folder; expected where outputs can be written")
    elif not os.access(folder, os.W_OK | os.X_OK):
        report.mistake(None, f"--out: no permission to write in {folder}")


def _drafts(ctx: Context, top: shapes.Section, form: str | None) -> list[Draft]:
    """Every source, operator and sink, compiled but for the ID bits, producers first."""
    report = ctx.report
    seen: dict[str, Text] = {}
    drafts = _section(ctx, top, "sources", source, seen)
    drafts += _section(ctx, top, "operators", operators.declare, seen)
    if top.missing("sources"):
        report.mistake(top.place, "sources is missing; expected at least one source")
    if form is None:
        drafts += _section(ctx, top, "sinks", sinks.sink, seen)
    if len(drafts) > OPERATORS_MAX:
        report.mistake(top.place, f"found {len(drafts)} sources, operators and sinks; expected at most {OPERATORS_MAX}")
        return []
    drafts = ordered(ctx, drafts)
    by_name = {draft.name: draft for draft in drafts}
    for draft in drafts:
        if draft.kind == "sink":
            draft.fields = operators.joint_fields(ctx, draft, by_name)
            sinks.settle(ctx, draft)
        elif draft.kind != "source":
            operators.settle(ctx, draft, operators.joint_fields(ctx, draft, by_name))
    return _with_ends(ctx, top, drafts, form)


def _section(
    ctx: Context, top: shapes.Section, key: str, make: Callable[[Context, Text, Node], Draft], seen: dict[str, Text]
) -> list[Draft]:
    """What one of the three sections holds, names checked over all of them."""
    node = top.get(key)
    drafts = []
    for entry in mapping(ctx.report, node, key).entries.values() if node else ():
        if _is_free(ctx.report, entry, key, seen):
            seen[entry.key.text.lower()] = entry.key
            drafts.append(make(ctx, entry.key, entry.value))
    return drafts


def _is_free(report: Report, entry: Entry, key: str, seen: dict[str, Text]) -> bool:
    """Whether a name is nobody else's yet. Names that differ in case only would be one file on some systems."""
    name = entry.key
    if not settings.NAME.match(name.text):
        rule = "expected letters, digits, _ and -, no - first"
        report.mistake(name.place, f"{key}: found {found(name)} as a name; {rule}")
    other = seen.get(name.text.lower())
    if other is None:
        return True
    same = "is already" if other.text == name.text else f'differs in case only from "{other.text}"'
    report.mistake(name.place, f'{key}: duplicate name "{name.text}": it {same} in line {other.place.line}; rename one')
    return False


def _with_ends(ctx: Context, top: shapes.Section, drafts: list[Draft], form: str | None) -> list[Draft]:
    """Sinks for terminal operators and for dead letters; sources that nobody reads are left out."""
    report = ctx.report
    read = {reading.operator for draft in drafts for reading in draft.readings}
    kept = []
    for draft in drafts:
        if draft.kind == "source" and draft.name not in read:
            report.warn(draft.place, f"nobody reads {draft.what}; it is left out")
        else:
            kept.append(draft)
    if not kept and not report.broken:
        report.mistake(top.place, "nothing to run: no operator reads a source")
    explicit = any(draft.kind == "sink" for draft in kept)
    ends: list[Draft] = []
    for draft in kept:
        if draft.kind in ("source", "sink") or draft.name in read or not settings.NAME.match(draft.name):
            continue
        if explicit:
            report.warn(draft.place, f"nobody reads {draft.what}; its tuples are dropped")
        elif form is None or form in shapes.SINKS:
            ends.append(sinks.terminal(ctx, draft, form or sinks.default(ctx)))
    ends += [sinks.dead_letters(ctx, draft) for draft in kept if draft.on_error == "dead-letter"]
    _check_overwriting(ctx, kept + ends)
    return kept + ends


def _check_overwriting(ctx: Context, drafts: list[Draft]) -> None:
    """No sink writes what somebody reads, or where another sink does, by whatever name."""
    read = {_identity(ctx.report.file): "is this topology"}
    read |= {_identity(path): f"{draft.what} reads" for draft in drafts for path in draft.params.get("paths", ())}
    written: dict[str, Draft] = {}
    for draft in drafts:
        path = draft.params.get("path") if draft.kind == "sink" else None
        if path is None:
            continue
        if (who := read.get(_identity(path))) is not None:
            ctx.report.mistake(draft.place, f"{draft.what} would overwrite {path}, which {who}")
        other = written.setdefault(os.path.realpath(path), draft)
        if other.params["path"] != path:  # The same path twice was found when it was claimed.
            ctx.report.mistake(draft.place, f"{draft.what}: {path} is what {other.what} writes; expected another")
    for path, draft in written.items():
        parents = (path[: match.start()] for match in re.finditer(os.sep, path))
        for outer in (written[parent] for parent in parents if parent in written):
            ctx.report.mistake(draft.place, f"{draft.what}: {path} is in what {outer.what} writes; expected another")


def _identity(path: str) -> object:
    """The same for all names of a file, links included."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino
