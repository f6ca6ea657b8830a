"""What the user sees while a topology runs: one live line on a terminal, plain lines elsewhere, a summary at the end.

Progress goes to standard error, results to standard output, so that a pipe gets only results.
"""

from __future__ import annotations

import itertools
import os
import sys
import time

from dadstorm.core.line import END
from dadstorm.errors import printable
from dadstorm.plan import Plan
from dadstorm.spark.session import shown_file
from puppetmaster.deployment import Snapshot

LIVE_EVERY_S = 0.1
PLAIN_EVERY_S = 2.0
SHOWN_ROWS = 10
"""How many rows of each output the summary shows."""
SHOWN_WIDTH = 200


class Progress:
    def __init__(self, plan: Plan, *, quiet: bool = False) -> None:
        self._plan = plan
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._begun = time.monotonic()
        self._next = self._begun if self._live else self._begun + PLAIN_EVERY_S
        self._before = (self._begun, 0)
        self._shown = False

    def show(self, look: Snapshot) -> None:
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (LIVE_EVERY_S if self._live else PLAIN_EVERY_S)
        then, rows = self._before
        rate = (look.rows_read - rows) / max(now - then, 1e-9)
        self._before = (now, look.rows_read)
        frontier = "end" if look.frontier == END else f"{look.frontier:,}"
        line = (
            f"{self._plan.name}: {look.rows_read:,} tuples read, {rate:,.0f}/s, {look.rows_written:,} written, "
            f"frontier {frontier}, {look.alive}/{look.replicas} replicas alive"
        )
        if self._live:
            sys.stderr.write(f"\r{line[: _columns()]}\x1b[K")
            self._shown = True
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        self.clear()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """Output of a console sink."""
        self.clear()
        sys.stdout.write(text)
        sys.stdout.flush()

    def clear(self) -> None:
        """Take the live line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False

    def finish(self, written: dict[str, int], look: Snapshot, folder: str) -> None:
        """The summary: what was read and written, how fast, where it is, and how it begins."""
        self.clear()
        if self._quiet:
            return
        seconds = time.monotonic() - self._begun
        for operator in self._plan.operators:
            path = operator.params.get("path")
            if operator.kind == "sink" and path:
                table = operator.params["format"] == "spark"
                show = show_table if table else show_output
                beginning = shown_file(operator.name, folder) if table else path
                show(os.path.relpath(path), beginning, written.get(operator.name, 0))
        sys.stderr.write(
            f"{self._plan.name}: {look.rows_read:,} tuples in {seconds:.2f} s ({look.rows_read / seconds:,.0f}/s), "
            f"{look.replicas} replicas, logs in {os.path.relpath(folder)}\n"
        )
        sys.stderr.flush()


def show_output(name: str, path: str, rows: int) -> None:
    """How a file begins."""
    print(f"{name}: {rows:,} rows")
    if os.path.isfile(path):
        _show_lines(path, SHOWN_ROWS)
        _show_more(rows)
    sys.stdout.flush()


def show_table(name: str, path: str, rows: int) -> None:
    """How a table begins: ``path`` is what Spark read back of it."""
    there = os.path.isfile(path)
    print(f"{name}: {rows:,} rows{', read back through Spark:' if there else ''}")
    if there:
        _show_lines(path, None)
        _show_more(rows)
    sys.stdout.flush()


def _show_lines(path: str, count: int | None) -> None:
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        for line in itertools.islice(file, count):
            text = printable(line[: SHOWN_WIDTH + 1].rstrip("\n"))
            print("  " + (text if len(text) <= SHOWN_WIDTH else text[: SHOWN_WIDTH - 1] + "…"))


def _show_more(rows: int) -> None:
    if rows > SHOWN_ROWS:
        print(f"  … {rows - SHOWN_ROWS:,} more")


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except OSError:
        return 120
