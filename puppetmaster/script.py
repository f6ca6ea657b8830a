"""Scripts: commands in a file (``--script``) or in the topology's own ``script:`` list, checked before anything runs.

A script that could never end is a mistake too: an operator that nobody starts, a replica that stays frozen or a network
that stays cut holds the stream for ever. One that ends with ``Exit`` ends whatever is left. (At a console all of this
is fine: the user goes on from there.)
"""

from __future__ import annotations

from dataclasses import dataclass

from dadstorm.errors import Mistake, UserError
from dadstorm.plan import Operator, Plan, ScriptLine
from puppetmaster.commands import (
    Command,
    Crash,
    Exit,
    Freeze,
    Heal,
    Partition,
    Start,
    Unfreeze,
    WrongCommand,
    parse,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command and where it stands."""

    command: Command
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Script:
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()

    @property
    def commands(self) -> list[Command]:
        return [step.command for step in self.steps]


def load(plan: Plan, path: str | None) -> Script | None:
    """The script of a file, else the topology's own; None if there is neither. UserError with every mistake."""
    if path is not None:
        from dadstorm.legacy.commands import read_script  # A grammar that is needed for files only.

        read = read_script(path, plan)
        return Script(_steps(read.lines, plan), tuple(read.warnings))
    return Script(_steps(plan.script, plan)) if plan.script else None


def _steps(lines: tuple[ScriptLine, ...] | list[ScriptLine], plan: Plan) -> tuple[Step, ...]:
    steps: list[Step] = []
    mistakes: list[Mistake] = []
    for line in lines:
        try:
            command = parse(line.text, plan)
        except WrongCommand as wrong:
            mistakes.append(Mistake(str(wrong), line.file, line.line))
        else:
            if command is not None:
                steps.append(Step(command, line.file, line.line))
    if mistakes:
        raise UserError(*mistakes)
    return tuple(steps)


def check_ends(script: Script, plan: Plan) -> None:
    """UserError for everything that would keep a run with this script from ever ending."""
    commands = script.commands
    if any(isinstance(command, Exit) for command in commands):
        return
    own = own_starts(commands)
    started: set[str] = set()
    frozen: dict[tuple[str, int], Step] = {}
    cut: list[Step] = []
    for step in script.steps:
        command = step.command
        if isinstance(command, Start):
            started |= starts(plan, command.operator, own)
        elif isinstance(command, Freeze):
            frozen[command.operator, command.replica] = step
        elif isinstance(command, Unfreeze | Crash):
            frozen.pop((command.operator, command.replica), None)
        elif isinstance(command, Partition):
            cut.append(step)
        elif isinstance(command, Heal):
            cut.clear()
    where = script.steps[-1] if script.steps else None
    mistakes = [
        Mistake(
            f"{operator.name} is never started, so the run would never end; add Start {operator.name}, or Start alone "
            "for all, or end with Exit",
            where.file if where else None,
            where.line if where else None,
        )
        for operator in plan.operators
        if operator.name not in started and (operator.kind not in ("source", "sink") or operator.name in own)
    ]
    mistakes += [
        Mistake(
            f"{name} {replica} stays frozen, so the run would never end; add Unfreeze {name} {replica}, or end with "
            "Exit",
            step.file,
            step.line,
        )
        for (name, replica), step in frozen.items()
    ]
    mistakes += [
        Mistake("this partition stays, so the run would never end; add Heal, or end with Exit", step.file, step.line)
        for step in cut
    ]
    if mistakes:
        raise UserError(*mistakes)


def own_starts(commands: list[Command]) -> set[str]:
    """Operators that have a Start of their own."""
    return {command.operator for command in commands if isinstance(command, Start) and command.operator is not None}


def starts(plan: Plan, name: str | None, own: set[str]) -> set[str]:
    """Who begins with a Start of this operator (None: of all): also the sources that it reads, and the sinks that read
    it, but for those with a Start of their own."""
    if name is None:
        return {operator.name for operator in plan.operators}
    found = {name, *(link.operator for link in plan[name].inputs if _is(plan[link.operator], "source", own))}
    return found | {
        operator.name
        for operator in plan.operators
        if _is(operator, "sink", own) and any(link.operator in found for link in operator.inputs)
    }


def _is(operator: Operator, kind: str, own: set[str]) -> bool:
    return operator.kind == kind and operator.name not in own
