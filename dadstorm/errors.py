"""The two ways a run can go wrong, and how each is told to the user.

``UserError``: a mistake in the user's files or arguments. Nothing was started; exit code 2.
``RunFailed``: the topology ran and had to stop (a record broke, a function raised, a disk filled); exit code 1.
Both carry a message that says what was expected, what was found, where, and what to do: they are shown without a
traceback. Anything else that reaches the top is a defect of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_CONTROLS = {code: repr(chr(code))[1:-1] for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n"}


def printable(text: str) -> str:
    """A text that holds somebody's data, as a terminal may be shown it: control characters as escapes."""
    return text.translate(_CONTROLS)


class DadstormError(Exception):
    """Base of every error that is meant for the user's eyes."""

    exit_code = 1


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in a user's file, with its place (lines and columns count from 1)."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.message}" if place else self.message


class UserError(DadstormError):
    """A mistake in the user's files or arguments: all of them at once, nothing was started."""

    exit_code = 2

    def __init__(self, *mistakes: Mistake | str) -> None:
        self.mistakes: Sequence[Mistake] = [m if isinstance(m, Mistake) else Mistake(m) for m in mistakes]
        super().__init__("\n".join(str(m) for m in self.mistakes))


class RunFailed(DadstormError):
    """The topology ran and had to stop; the message names the operator, the tuple and the cause."""

    exit_code = 1
