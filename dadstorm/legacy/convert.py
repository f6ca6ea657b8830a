"""A configuration file of the original language, converted to a topology and compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dadstorm import custom, topology
from dadstorm.errors import UserError
from dadstorm.legacy.addresses import check_unique
from dadstorm.legacy.clauses import OldOperator, operator, unquoted
from dadstorm.legacy.commands import Known, commands
from dadstorm.legacy.inputs import Inputs, Reads
from dadstorm.legacy.reading import Line, lines_of
from dadstorm.legacy.statements import Piece, is_command, statements
from dadstorm.legacy.widths import Longest, Widths, longest
from dadstorm.legacy.writing import Page, write_operator, write_script, write_source
from dadstorm.plan import Plan, ScriptLine
from dadstorm.topology.fields import FIELDS_MAX
from dadstorm.topology.report import Origin, Place, Report, listed, nearest

SETTINGS = {
    "semantics": ("Semantics", ("at-most-once", "at-least-once", "exactly-once")),
    "logging": ("LoggingLevel", ("full", "light")),
}
"""Per setting of a topology, how the language calls it and what it can be."""

DEFAULTS = {"semantics": "at-most-once", "logging": "light"}


@dataclass(frozen=True)
class Converted:
    """A configuration as a topology, and the commands that stood in it."""

    yaml: str
    script: list[ScriptLine]
    warnings: list[str]
    origin: Origin
    """The topology once more, with the places that its lines come from."""


def convert(path: str, libs: Sequence[str] = ()) -> Converted:
    """Convert a file; UserError with every mistake in it.

    ``libs`` are folders where CUSTOM modules may lie: one that declares its fields is believed."""
    path = os.fspath(path)
    report = Report(path)
    found = statements(lines_of(path, report), report)
    settings = _settings(found.settings, report)
    operators = [operator(text, report) for text in found.operators]
    if not operators and not report.broken:
        _nothing(found.others, report)
    _check_names([text.name for text in found.operators], report)
    check_unique([(one.name, address) for one in operators for address in one.addresses if address], report)
    folder = os.path.dirname(os.path.abspath(path))
    finder = Inputs(folder, operators, report)
    reads = [finder.of(one) for one in operators]
    script = commands(found.others, Known.of_file(operators), report) if operators else []
    _check_started(operators, script, report)
    report.close()
    inputs = {one.name: read for one, read in zip(operators, reads, strict=True) if read is not None}
    page = _write(path, settings, operators, inputs, [folder, *libs], report)
    report.close()
    write_script(page, [(line.text, line.line) for line in script])
    origin = page.origin
    return Converted(origin.text, script, list(report.warnings), origin)


def load(
    path: str, *, libs: Sequence[str] = (), sink: str | None = None, out: str | None = None
) -> tuple[Plan, list[ScriptLine]]:
    """The plan of a file and the commands in it. All mistakes name the old file's lines."""
    converted = convert(path, libs)
    plan = topology.load(path, libs=libs, sink=sink, out=out, origin=converted.origin)
    warnings = (*converted.warnings, *plan.warnings)
    return msgspec.structs.replace(plan, warnings=warnings), converted.script


def _nothing(lines: list[Line], report: Report) -> None:
    """What to say about a file without operators."""
    expected = "expected such as  OP1 input_ops data.dat rep_fact 1 routing random address tcp://localhost:11000/op"
    message = f"there is no operator in this file; {expected} operator_spec COUNT"
    if any(map(is_command, lines)):
        message = "there are only commands in this file; expected operators: give it as the script of a configuration"
    report.mistake(Place(1, 1), message)


def _settings(given: list[tuple[str, Piece]], report: Report) -> dict[str, tuple[str, Place]]:
    """Per setting its value and where it stands."""
    chosen: dict[str, tuple[str, Place]] = {}
    for key, piece in given:
        name, options = SETTINGS[key]
        written = unquoted(re.sub(r"\s%.*", "", piece.text))
        value = re.sub(r"[\s_–—‑]+", "-", written).lower()
        if value not in options:
            found = f'found "{written}"' if written else "found nothing"
            report.mistake(piece.place, f"{name}: {found}; expected {listed(options)}{nearest(value, options)}")
        elif key in chosen and chosen[key][0] != value:
            line = chosen[key][1].line
            report.mistake(piece.place, f"{name}: found {value}, but line {line} says {chosen[key][0]}; remove one")
        else:
            chosen.setdefault(key, (value, piece.place))
    return {key: chosen.get(key, (DEFAULTS[key], Place(1, 1))) for key in SETTINGS}


def _check_names(names: list[Piece], report: Report) -> None:
    """Names become files, and on some systems those differ by more than their case."""
    seen: dict[str, Piece] = {}
    for name in names:
        other = seen.setdefault(name.text.lower(), name)
        if other is not name:
            same = "defined" if other.text == name.text else f'defined as "{other.text}"'
            line = other.place.line
            report.mistake(name.place, f'operator "{name.text}" is already {same} in line {line}; rename one')


def _check_started(operators: list[OldOperator], script: list[ScriptLine], report: Report) -> None:
    """A script that starts some operators and not others lets those wait for ever."""
    started = {line.text.partition(" ")[2] for line in script if line.text.split()[0] == "Start"}
    if not script or "" in started:
        return
    for one in operators:
        if one.name not in started:
            report.warn(one.place, f'operator "{one.name}" is never started by the commands in this file')


def _write(
    path: str,
    settings: dict[str, tuple[str, Place]],
    operators: list[OldOperator],
    reads: dict[str, Reads],
    folders: list[str],
    report: Report,
) -> Page:
    sources = _source_names(operators, reads)
    found = {files: longest([os.path.join(folders[0], file) for file in files]) for files in sources}
    for files, longest_line in found.items():
        _check_width(longest_line, next(one.place for one in reads.values() if one.files == files), report)
    streams = {
        name: tuple(sources[one.files] if read is None else read for read in one.inputs) for name, one in reads.items()
    }
    declared = {one.name: _declared(one, folders) for one in operators if one.spec.kind == "CUSTOM"}
    widths = Widths(operators, streams, {sources[files]: line.width for files, line in found.items()}, declared)
    top = Place(1, 1)
    page = Page()
    page.add(f"# {os.path.basename(path)}, a configuration in DADSTORM's original language, as a topology.", top)
    for key, (value, place) in settings.items():
        page.add(f"{key}: {value}", place)
    page.add("ragged: true", top)
    page.add("", top)
    page.add("sources:", top)
    for files, name in sources.items():
        place = next(one.place for one in reads.values() if one.files == files)
        write_source(page, name, files, widths.stream(name).width, place)
    page.add("", top)
    page.add("operators:", top)
    for one in operators:
        given = streams[one.name]
        write_operator(page, one, list(given), widths.stream(given[0]), widths.stream(one.name))
    return page


def _source_names(operators: list[OldOperator], reads: dict[str, Reads]) -> dict[tuple[str, ...], str]:
    """A name for each set of files that operators read: who reads the same files shares a source."""
    taken = {one.name.lower() for one in operators}
    names: dict[tuple[str, ...], str] = {}
    for name, one in reads.items():
        if one.files and one.files not in names:
            stem = os.path.basename(one.files[0]).partition(".")[0]
            clean = re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_-")
            wanted = clean if clean and len(one.files) == 1 else f"{name}_files"
            names[one.files] = _free(wanted, taken)
    return names


def _free(wanted: str, taken: set[str]) -> str:
    """The name, or the first one like it that nobody has."""
    name, number = wanted, 2
    while name.lower() in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name.lower())
    return name


def _check_width(line: Longest, place: Place, report: Report) -> None:
    if line.width > FIELDS_MAX:
        cure = f"expected at most {FIELDS_MAX}: read it with a CUSTOM method instead"
        report.mistake(place, f"{line.path}:{line.line} has {line.width} fields; {cure}")


def _declared(one: OldOperator, folders: list[str]) -> int | None:
    """How many fields a CUSTOM method says its outputs have. What is wrong with it is told when it is compiled."""
    try:
        fields = custom.declaration(custom.load(one.spec.function, folders)).fields
    except UserError:
        return None
    return len(fields) if fields else None
