"""Commands of the original language, brought into script syntax and checked before anything runs.

A script is a list of commands, a line each; what they do is the PuppetMaster's business. Here their spelling is set
right (any case, commas between arguments, ``ms`` after a number, a comment behind them), a process named by its address
becomes operator and replica, and arguments are checked against the operators there are.

A line that begins with none of the commands is prose that somebody forgot to comment out if it is long enough to be a
sentence; it is passed over with a warning. A shorter one is a misspelt command, which is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dadstorm.legacy.addresses import Address, address
from dadstorm.legacy.clauses import OldOperator, unquoted
from dadstorm.legacy.reading import Line, lines_of
from dadstorm.legacy.statements import COMMANDS, statements
from dadstorm.plan import Plan, ScriptLine
from dadstorm.topology.report import Place, Report, closest, listed, nearest

PASSED_ON = ("Stop", "Help", "Exit", "Kill", "Partition", "Heal", "Slow")
"""Commands that the language never had; the PuppetMaster's own grammar knows them."""

MS_MAX = 2**31 - 1
SENTENCE_WORDS = 3
"""No command has an operator's name, a number and yet more words; a misspelt one has at most this many."""
SHOWN_MAX = 8
"""So many operators or addresses a message lists; of more, it names the nearest."""

FORMS = {
    "Start": "Start [OPERATOR]",
    "Interval": "Interval OPERATOR MILLISECONDS",
    "Status": "Status [OPERATOR] [--json]",
    "Crash": "Crash OPERATOR REPLICA",
    "Freeze": "Freeze OPERATOR REPLICA",
    "Unfreeze": "Unfreeze OPERATOR REPLICA",
    "Wait": "Wait MILLISECONDS",
}

_COMMENT = re.compile(r"(?:^|\s)%.*\Z")


class Script(NamedTuple):
    lines: list[ScriptLine]
    warnings: list[str]


@dataclass(frozen=True)
class Known:
    """The operators that commands may name, with their replicas."""

    replicas: Mapping[str, int]
    addresses: Mapping[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """Who binds an address: operator and replica."""
    chains: Mapping[str, str] = field(default_factory=dict)
    """Per member of a chain, in lower case, the chain."""

    @staticmethod
    def of_file(operators: list[OldOperator]) -> Known:
        bound = {
            one.key: (operator.name, index)
            for operator in operators
            for index, one in enumerate(operator.addresses)
            if one is not None
        }
        return Known({operator.name: operator.replicas for operator in operators}, bound)

    @staticmethod
    def of_plan(plan: Plan) -> Known:
        bound: dict[tuple[str, int], tuple[str, int]] = {}
        for operator in plan.operators:
            for index, replica in enumerate(operator.replicas):
                one = address(replica.address, Place(1, 1)) if replica.address else None
                if one is not None:
                    bound[one.key] = (operator.name, index)
        chains = {member.name.lower(): operator.name for operator in plan.operators for member in operator.members}
        return Known({operator.name: len(operator.replicas) for operator in plan.operators}, bound, chains)


def read_script(path: str, plan: Plan | None = None) -> Script:
    """The commands of a script file; UserError with every mistake in it.

    With a plan, the operators and replicas that the commands name are checked too, and addresses become such."""
    report = Report(path)
    found = statements(lines_of(path, report), report)
    for operator in found.operators:
        cure = "expected commands only: give the configuration's file as the topology"
        report.mistake(operator.name.place, f'found the operator "{operator.name.text}" in a script; {cure}')
    for key, piece in found.settings:
        cure = "expected commands only: it belongs into the configuration"
        report.mistake(piece.place, f"found a setting ({key}) in a script; {cure}")
    lines = commands(found.others, None if plan is None else Known.of_plan(plan), report)
    report.close()
    return Script(lines, list(report.warnings))


def commands(lines: list[Line], known: Known | None, report: Report) -> list[ScriptLine]:
    """The commands among some lines; without ``known`` only their form is checked."""
    script = []
    for line in lines:
        text = _command(line, known, report)
        if text is not None:
            script.append(ScriptLine(text, report.file, line.number))
    return script


def _command(line: Line, known: Known | None, report: Report) -> str | None:
    words = [unquoted(word) for word in _COMMENT.sub("", line.text).replace(",", " ").split()]
    if not words:
        return None
    word, *arguments = words
    name = next((name for name in (*COMMANDS, *PASSED_ON) if name.lower() == word.lower()), None)
    if name is None:
        _no_command(line, words, report)
        return None
    if name in PASSED_ON:
        return " ".join([name, *arguments])
    checked = _Arguments(name, arguments, line, known, report).checked()
    return None if checked is None else " ".join([name, *checked])


def _no_command(line: Line, words: list[str], report: Report) -> None:
    near = closest(words[0], COMMANDS)
    if len(words) > SENTENCE_WORDS or (len(words) == SENTENCE_WORDS and near is None):
        report.warn(line.place, f'"{line.text.strip()}" is no command and passed over; put % in front of a comment')
        return
    expected = f"expected {listed(COMMANDS)}{nearest(words[0], COMMANDS)}"
    report.mistake(line.place, f'unknown command "{words[0]}"; {expected} (put % in front of a comment)')


class _Arguments:
    """The arguments of one command."""

    def __init__(self, name: str, given: list[str], line: Line, known: Known | None, report: Report) -> None:
        self._name = name
        self._given = given
        self._line = line
        self._known = known
        self._report = report

    def checked(self) -> list[str] | None:
        """The arguments as script syntax has them; None after a mistake."""
        name, given = self._name, self._given
        if name in ("Interval", "Wait") and len(given) > 1 and given[-1].lower() == "ms":
            given = given[:-1]
        if name in ("Crash", "Freeze", "Unfreeze") and len(given) == 1:
            return self._process(given[0])
        if name == "Status" and given and given[-1].lower() == "--json":
            rest = _Arguments(name, given[:-1], self._line, self._known, self._report).checked()
            return None if rest is None else [*rest, "--json"]
        counts = {"Start": (0, 1), "Status": (0, 1), "Wait": (1,)}.get(name, (2,))
        if len(given) not in counts:
            found = f'found "{" ".join(given)}"' if given else "found nothing"
            self._wrong(f"{found}; expected {FORMS[name]}")
            return None
        if name == "Wait":
            return self._numbers(given[0], "milliseconds")
        if not given:
            return []
        operator = self._operator(given[0])
        if len(given) == 1:
            return None if operator is None else [operator]
        number = self._numbers(given[1], "milliseconds" if name == "Interval" else "a replica's number, from 0")
        if operator is None or number is None or (name != "Interval" and not self._is_replica(operator, number[0])):
            return None
        return [operator, *number]

    def _process(self, text: str) -> list[str] | None:
        """A process by its address, as the course's text has it."""
        one = address(text, self._line.place)
        if one is None or ("://" not in text and not self._is_bound(one)):
            expected = f"expected {FORMS[self._name]}, or the address of a replica, tcp://HOST:PORT/op"
            self._wrong(f'found "{text}"; {expected}')
            return None
        if self._known is None:
            return [str(one)]
        if not self._is_bound(one):
            if self._report.broken:
                return None  # Perhaps it is one of the addresses that could not be understood.
            there = [f"tcp://{host}:{port}/op" for host, port in self._known.addresses]
            hint = f"; there are {', '.join(there)}" if 0 < len(there) <= SHOWN_MAX else nearest(text, there)
            self._wrong(f"no replica has the address {text}{hint}")
            return None
        operator, replica = self._known.addresses[one.key]
        return [operator, str(replica)]

    def _is_bound(self, one: Address) -> bool:
        return self._known is not None and one.key in self._known.addresses

    def _operator(self, text: str) -> str | None:
        if self._known is None or text in self._known.replicas:
            return text
        same = [name for name in self._known.replicas if name.lower() == text.lower()]
        if same or text.lower() in self._known.chains:
            return same[0] if same else self._known.chains[text.lower()]
        names = list(self._known.replicas)
        hint = f"; the operators are {', '.join(names)}" if len(names) <= SHOWN_MAX else nearest(text, names)
        self._wrong(f'there is no operator "{text}"{hint}')
        return None

    def _is_replica(self, operator: str, number: str) -> bool:
        if self._known is None or int(number) < self._known.replicas[operator]:
            return True
        last = self._known.replicas[operator] - 1
        only = "it has replica 0 only" if last == 0 else f"it has the replicas 0 to {last}"
        self._wrong(f"{operator} has no replica {number}; {only}")
        return False

    def _numbers(self, text: str, expected: str) -> list[str] | None:
        if re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= MS_MAX:
            return [str(int(text))]
        self._wrong(f'found "{text}"; expected {expected}: a whole number from 0 to {MS_MAX}')
        return None

    def _wrong(self, message: str) -> None:
        # With this many words it is perhaps a sentence that happens to begin like a command.
        cure = " (put % in front of a comment)" if len(self._given) >= SENTENCE_WORDS else ""
        self._report.mistake(self._line.place, f"{self._name}: {message}{cure}")
