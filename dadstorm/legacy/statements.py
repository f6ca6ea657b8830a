"""Which lines belong together: settings, operators with their clauses, and what is left, which should be commands.

An operator begins with its name before ``input_ops`` and goes on over lines that are indented or begin with a keyword.
Keywords are found outside quotes. ``operator_spec`` comes last: once all clauses are there, words that look like
keywords belong to its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dadstorm.legacy.reading import INPUT_OPS, LOGGING_LEVEL, OPERATOR_SPEC, REP_FACT, Line
from dadstorm.topology.report import Place, Report

COMMANDS = ("Start", "Interval", "Status", "Crash", "Freeze", "Unfreeze", "Wait")
"""The language's own commands, as the log writes them."""

CLAUSES = ("input_ops", "rep_fact", "routing", "address", "operator_spec")

_KEYWORD = rf"(?P<input_ops>{INPUT_OPS})|(?P<rep_fact>{REP_FACT})|(?P<routing>routing)" \
    rf"|(?P<address>address(?:es)?)|(?P<operator_spec>{OPERATOR_SPEC})"  # fmt: skip
_EDGE = r"[\w./\\:-]"
_CLAUSE = re.compile(rf"(?<!{_EDGE})(?:{_KEYWORD})(?!{_EDGE})", re.IGNORECASE)
_HEAD = re.compile(rf"\s*(\S+)\s+{INPUT_OPS}(?!{_EDGE})", re.IGNORECASE)
_STRONG = re.compile(rf"(?<!{_EDGE})(?:{INPUT_OPS}|{REP_FACT}|{OPERATOR_SPEC})(?!{_EDGE})", re.IGNORECASE)
_BEGINS = re.compile(rf"\s*(?:{_KEYWORD})(?!{_EDGE})", re.IGNORECASE)
_SETTING = re.compile(rf"\s*(?:(?P<semantics>semantics)|(?P<logging>{LOGGING_LEVEL}))(?![\w.])\s*(.*)", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"\n]*"|“[^”\n]*”')


@dataclass(frozen=True)
class Piece:
    """Some of the file's text, and where it stands."""

    text: str
    place: Place


@dataclass(frozen=True)
class OperatorText:
    """An operator as it is written: its name, and the text of each clause that it has."""

    name: Piece
    clauses: dict[str, Piece]
    whole: bool = True
    """Nothing in it was left over, which might be one of the clauses that are missing."""


@dataclass
class Statements:
    settings: list[tuple[str, Piece]] = field(default_factory=list)
    operators: list[OperatorText] = field(default_factory=list)
    others: list[Line] = field(default_factory=list)


class Passage:
    """Lines that belong together, as one text whose every position knows its place in the file."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self.text = "\n".join(line.text for line in lines)

    def place(self, at: int) -> Place:
        line = self.text.count("\n", 0, at)
        return Place(self._lines[line].number, at - (self.text.rfind("\n", 0, at) + 1) + 1)

    def piece(self, start: int, stop: int) -> Piece:
        """The text between two positions without the blanks around it."""
        text = self.text[start:stop]
        start += len(text) - len(text.lstrip())
        return Piece(text.strip(), self.place(min(start, len(self.text))))


def statements(lines: list[Line], report: Report) -> Statements:
    """Cut a file into its statements."""
    found = Statements()
    position = 0
    while position < len(lines):
        line = lines[position]
        setting = _SETTING.match(line.text)
        if _is_operator(lines, position):
            end = _operator_end(lines, position)
            found.operators.append(_operator(Passage(lines[position:end]), report))
            position = end
            continue
        if setting:
            key = "semantics" if setting["semantics"] else "logging"
            found.settings.append((key, Piece(setting[3], line.place)))
        elif _BEGINS.match(line.text) and not is_command(line):
            word = line.text.split()[0]
            report.mistake(line.place, f'"{word}" stands outside an operator; expected it after NAME input_ops SOURCES')
        else:
            found.others.append(line)
        position += 1
    return found


def is_command(line: Line) -> bool:
    return line.text.split(maxsplit=1)[0].lower() in [command.lower() for command in COMMANDS]


def _is_operator(lines: list[Line], position: int) -> bool:
    """Whether an operator begins with this line: also one that is not right, as long as it shows."""
    text = lines[position].text
    if _HEAD.match(text):
        return True
    if _BEGINS.match(text) or is_command(lines[position]):
        return False
    alone = len(text.split()) == 1 and position + 1 < len(lines)
    if alone and re.match(rf"\s*{INPUT_OPS}(?!{_EDGE})", lines[position + 1].text, re.IGNORECASE):
        return True
    return bool(_STRONG.search(_masked(text)))


def _operator_end(lines: list[Line], start: int) -> int:
    end = start + 1
    while end < len(lines):
        line = lines[end]
        if not _BEGINS.match(line.text):
            # An indented line, or one after a comma, is the last clause's, unless it can stand for itself.
            hangs = line.indented and line.number == lines[end - 1].number + 1
            own = is_command(line) or _HEAD.match(line.text) or _SETTING.match(line.text)
            if own or not (hangs or lines[end - 1].text.endswith(",")):
                break
        end += 1
    return end


def _operator(passage: Passage, report: Report) -> OperatorText:
    head = re.match(r"\s*(\S+)", passage.text)
    assert head, "lines are not blank"
    name = passage.piece(head.start(1), head.end())
    marks = list(_clauses(passage, head.end()))
    starts = [start for _, start, _ in marks] + [len(passage.text)]
    before = passage.piece(head.end(), starts[0])
    if before.text:
        expected = "expected NAME input_ops SOURCES rep_fact N routing POLICY address URLS operator_spec SPEC"
        report.mistake(before.place, f'operator "{name.text}": found "{before.text}" before its clauses; {expected}')
    clauses: dict[str, Piece] = {}
    for (keyword, start, stop), end in zip(marks, starts[1:], strict=True):
        if keyword in clauses:
            report.mistake(passage.place(start), f'operator "{name.text}": {keyword} is given twice; remove one')
        else:
            clauses[keyword] = passage.piece(stop, end)
    return OperatorText(name, clauses, whole=not before.text)


def _clauses(passage: Passage, start: int) -> Iterator[tuple[str, int, int]]:
    """Which keyword begins and ends where."""
    seen: set[str] = set()
    for match in _CLAUSE.finditer(_masked(passage.text), start):
        keyword = next(name for name in CLAUSES if match[name])
        if "operator_spec" in seen and keyword in seen:
            continue
        seen.add(keyword)
        yield keyword, match.start(), match.end()


def _masked(text: str) -> str:
    """The text with everything in quotes blotted out, every position kept."""
    return _QUOTED.sub(lambda quoted: '"' * len(quoted[0]), text)
