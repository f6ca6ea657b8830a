"""The console: rows as lines for a person to watch.

What was shown cannot be taken back, so this is the one sink whose rows may be seen again after a recovery: the rows
since the last commit are shown anew. Whoever counts on each row once writes to a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from dadstorm.chains import JOINT
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator
from dadstorm.sinks.base import Mark
from dadstorm.sinks.rows_out import Progress, Shape, pieces
from dadstorm.sinks.text import console_lines


class ConsoleSink:
    """Lines ``operator: f1, f2``, given to ``say`` (default: standard output) as they come."""

    def __init__(self, operator: Operator, *, cut: int, say: Callable[[str], None] | None) -> None:
        # The lines carry the name of the operator whose tuples they are, which is what the user thinks in: of a chain,
        # the last one.
        self._label = operator.inputs[0].operator.split(JOINT)[-1] if len(operator.inputs) == 1 else operator.name
        self._ragged = bool(operator.params.get("ragged"))
        self._shape = Shape(operator)
        self._progress = Progress(operator, cut)
        self._say = say or _print

    def write(self, rows: Rows, again: bool = False) -> None:
        if not len(rows):
            return
        self._progress.wrote(rows, again)
        for piece in pieces(self._shape.batch(rows)):
            self._say(console_lines(piece, self._label, self._ragged).to_pybytes().decode())

    def commit(self, cut: int) -> None:
        self._progress.check(cut)
        self._progress.commit(cut)

    @property
    def committed(self) -> int:
        return self._progress.committed

    def mark(self) -> Mark:
        return {}

    def wake_fds(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        pass


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
