"""The commands: what one can tell a run, as one line of text and as data.

One line is one command; case does not matter, nor do commas between arguments or a comment behind ``%``. How the
language's own commands are spelt, and what may be their arguments, is ``dadstorm.legacy.commands``'s business, here as
in files: there is one grammar. A line that is no command says what is wrong and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dadstorm.errors import UserError
from dadstorm.plan import LOCAL, Plan
from dadstorm.topology.report import Report, listed, nearest
from puppetmaster import sides


class WrongCommand(Exception):
    """A line that is no command: what is wrong, and what would be right."""


class Start(msgspec.Struct, frozen=True):
    """Let an operator begin to process; None: all."""

    operator: str | None = None


class Interval(msgspec.Struct, frozen=True):
    operator: str
    ms: int


class Status(msgspec.Struct, frozen=True):
    operator: str | None = None
    json: bool = False


class Crash(msgspec.Struct, frozen=True):
    operator: str
    replica: int


class Freeze(msgspec.Struct, frozen=True):
    operator: str
    replica: int


class Unfreeze(msgspec.Struct, frozen=True):
    operator: str
    replica: int


class Slow(msgspec.Struct, frozen=True):
    """What others send to a replica is taken up so late; 0: no more."""

    operator: str
    replica: int
    ms: int


class Partition(msgspec.Struct, frozen=True):
    """Nothing passes any more between two sides (see ``sides``)."""

    left: str
    right: str


class Heal(msgspec.Struct, frozen=True):
    """End all partitions."""


class Kill(msgspec.Struct, frozen=True):
    """The PCS of a host and all replicas there die at once."""

    host: str


class Wait(msgspec.Struct, frozen=True):
    ms: int


class Stop(msgspec.Struct, frozen=True):
    """Drain: the sources end, and what is under way comes out."""


class Help(msgspec.Struct, frozen=True):
    command: str | None = None


class Exit(msgspec.Struct, frozen=True):
    """End everything at once."""


Command = (
    Start
    | Interval
    | Status
    | Crash
    | Freeze
    | Unfreeze
    | Slow
    | Partition
    | Heal
    | Kill
    | Wait
    | Stop
    | Help
    | Exit
)

TEXTS = {
    "Start": ("Start [OPERATOR]", "let an operator begin to process; without a name, all"),
    "Interval": ("Interval OPERATOR MS", "its replicas sleep so long between two consecutive tuples; 0 ends it"),
    "Status": ("Status [OPERATOR] [--json]", "a table of the replicas: where they are, what they do, how far"),
    "Crash": ("Crash OPERATOR REPLICA", "kill a replica at once, as kill -9 does; it is brought back"),
    "Freeze": ("Freeze OPERATOR REPLICA", "a replica goes on receiving and stops to process"),
    "Unfreeze": ("Unfreeze OPERATOR REPLICA", "it works off what is pending"),
    "Slow": ("Slow OPERATOR REPLICA MS", "messages to a replica are taken up so late; 0 ends it"),
    "Partition": ("Partition A B", "nothing passes between A and B: hosts, operators, or replicas as OPERATOR/0"),
    "Heal": ("Heal", "end all partitions"),
    "Kill": ("Kill HOST", "the PCS of a host and all replicas there die at once, as if the host was lost"),
    "Wait": ("Wait MS", "let so much time pass before the next command"),
    "Stop": ("Stop", "drain: sources end, what is under way comes out, the run finishes"),
    "Help": ("Help [COMMAND]", "this"),
    "Exit": ("Exit", "end everything at once and leave; ^D does the same"),
}
"""Per command how it is written and what it does."""

_ON_A_REPLICA: dict[str, type[Crash] | type[Freeze] | type[Unfreeze]] = {
    "Crash": Crash,
    "Freeze": Freeze,
    "Unfreeze": Unfreeze,
}


def parse(line: str, plan: Plan) -> Command | None:
    """The command on a line; None if there is nothing on it but a comment. Raises WrongCommand."""
    words = _words(line)
    if not words:
        return None
    name = next((name for name in TEXTS if name.lower() == words[0].lower()), None)
    if name is None:
        raise WrongCommand(f'unknown command "{words[0]}"; expected {listed(TEXTS)}{nearest(words[0], TEXTS)}')
    if name in ("Stop", "Help", "Exit", "Heal"):
        return _own(name, words[1:])
    if name in ("Slow", "Partition", "Kill"):
        return _experiment(name, words[1:], plan)
    return _data(_normal(line, plan).split())


def _words(line: str) -> list[str]:
    words = line.replace(",", " ").split()
    comment = next((at for at, word in enumerate(words) if word.startswith("%")), len(words))
    return words[:comment]


def _own(name: str, arguments: list[str]) -> Command:
    """Commands that the original language never had."""
    if name == "Help" and len(arguments) == 1:
        about = next((one for one in TEXTS if one.lower() == arguments[0].lower()), None)
        if about is None:
            known = f"expected {listed(TEXTS)}{nearest(arguments[0], TEXTS)}"
            raise WrongCommand(f'Help: there is no command "{arguments[0]}"; {known}')
        return Help(about)
    if arguments:
        raise WrongCommand(f'{name}: found "{" ".join(arguments)}"; expected {TEXTS[name][0]}')
    plain: dict[str, Command] = {"Help": Help(), "Stop": Stop(), "Heal": Heal(), "Exit": Exit()}
    return plain[name]


def _experiment(name: str, arguments: list[str], plan: Plan) -> Command:
    """Commands about hosts and networks."""
    given = arguments[:-1] if name == "Slow" and arguments[-1:] == ["ms"] else arguments
    if name == "Slow" and len(given) == 2 and "://" in given[0]:
        given = [*_normal(f"Freeze {given[0]}", plan).split()[1:], given[1]]
    if len(given) != {"Slow": 3, "Partition": 2, "Kill": 1}[name]:
        found = f'found "{" ".join(arguments)}"' if arguments else "found nothing"
        raise WrongCommand(f"{name}: {found}; expected {TEXTS[name][0]}")
    try:
        if name == "Slow":
            replica = _data(_normal(f"Freeze {given[0]} {given[1]}", plan).split())
            interval = _data(_normal(f"Interval {given[0]} {given[2]}", plan).split())
            assert isinstance(replica, Freeze) and isinstance(interval, Interval)
            return Slow(replica.operator, replica.replica, interval.ms)
        if name == "Partition":
            left, right = (sides.side(plan, one) for one in given)
            _check_sides(plan, left, right)
            return Partition(left, right)
        host = sides.host(plan, given[0])
    except sides.Unknown as unknown:
        raise WrongCommand(f"{name}: {unknown}") from None
    except WrongCommand as wrong:
        raise WrongCommand(f"{name}: {str(wrong).partition(': ')[2]}") from None
    if host == LOCAL:
        cure = "Crash kills its replicas one by one"
        raise WrongCommand(f"Kill: the PCS of {LOCAL} is part of the PuppetMaster, and would take it along; {cure}")
    return Kill(host)


def _check_sides(plan: Plan, left: str, right: str) -> None:
    """A cut must have somebody on each side that is not the only one on the other."""
    one, other = sides.resolved(plan, left), sides.resolved(plan, right)
    if one == other and len(one.peers) == 1:
        raise WrongCommand(f"Partition: {left} and {right} are the same replica; expected two sides")


def _normal(line: str, plan: Plan) -> str:
    """The line in script syntax, its operators and replicas checked."""
    from dadstorm.legacy.commands import Known, commands  # A grammar that most runs do not need.
    from dadstorm.legacy.reading import Line

    report = Report("")
    found = commands([Line(1, line.strip())], Known.of_plan(plan), report)
    try:
        report.close()
    except UserError as error:
        raise WrongCommand(error.mistakes[0].message.removesuffix(" (put % in front of a comment)")) from None
    return found[0].text


def _data(words: list[str]) -> Command:
    name, *arguments = words
    if name == "Start":
        return Start(*arguments)
    if name == "Status":
        operators = [word for word in arguments if word != "--json"]
        return Status(operators[0] if operators else None, json=len(operators) < len(arguments))
    if name == "Wait":
        return Wait(int(arguments[0]))
    if name == "Interval":
        return Interval(arguments[0], int(arguments[1]))
    return _ON_A_REPLICA[name](arguments[0], int(arguments[1]))


def text(command: Command) -> str:
    """A command in script syntax, as the log has it."""
    fields = [getattr(command, name) for name in command.__struct_fields__]
    shown = ["--json" if field is True else str(field) for field in fields if field is not None and field is not False]
    return " ".join([type(command).__name__, *shown])


def help_text(about: str | None = None) -> str:
    """What commands there are, or how one is written."""
    names = list(TEXTS) if about is None else [about]
    width = max(len(TEXTS[name][0]) for name in names)
    lines = [f"{TEXTS[name][0]:{width}}  {TEXTS[name][1]}" for name in names]
    if about is None:
        lines.append("Commands may be written in any case; the arrow keys and Tab help. Replicas are numbered from 0.")
    return "\n".join(lines)


def completions(before: str, plan: Plan) -> Iterator[str]:
    """What could stand where the line ends: commands, operators, replica numbers."""
    words = before.split()
    word = "" if not words or before[-1:].isspace() else words.pop()
    lower = word.lower()
    if not words:
        yield from (name for name in TEXTS if name.lower().startswith(lower))
        return
    name = next((one for one in TEXTS if one.lower() == words[0].lower()), None)
    if name == "Help" and len(words) == 1:
        yield from (one for one in TEXTS if one.lower().startswith(lower))
    elif name in ("Start", "Interval", "Status", "Slow", *_ON_A_REPLICA) and len(words) == 1:
        yield from (one.name for one in plan.operators if one.name.lower().startswith(lower))
    elif name in ("Slow", *_ON_A_REPLICA) and len(words) == 2:
        operator = next((one for one in plan.operators if one.name.lower() == words[1].lower()), None)
        numbers = range(len(operator.replicas) if operator else 0)
        yield from (str(number) for number in numbers if str(number).startswith(word))
    elif name == "Kill" and len(words) == 1:
        yield from (one for one in sides.hosts(plan) if one != LOCAL and one.lower().startswith(lower))
    elif name == "Partition" and len(words) <= 2:
        yield from (one for one in sides.every(plan) if one.lower().startswith(lower))
    elif name == "Status" and "--json" not in words and "--json".startswith(lower):
        yield "--json"
