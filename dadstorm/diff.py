"""``dadstorm diff``: two audited runs side by side, and the first difference between them.

The digests come first: operator by operator, producers before consumers, epoch by epoch. The first operator that
differs is where the runs part; what comes after it could not be the same. How many slices, replicas or
hosts each run had does not matter. Then the outputs: the first line or row that is not the same, as tuples show more
than digests do.

A run that did not come to its end is compared as far as its digests are known to be complete.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from dadstorm.audit import OperatorNote, Output, RunNote, read_digests, read_run
from dadstorm.core.ledger import Ledger, Total
from dadstorm.diff_outputs import compare
from dadstorm.errors import UserError

NOTHING = Total()


@dataclass(frozen=True, slots=True)
class Run:
    """One of the two, as its folder tells it."""

    name: str
    note: RunNote
    ledger: Ledger
    out: str | None
    """Where its outputs are now, if not where they were written."""

    def operator(self, name: str) -> OperatorNote | None:
        return next((one for one in self.note.operators if one.name == name), None)

    def reached(self, name: str) -> int | None:
        operator = self.operator(name)
        return None if operator is None else self.ledger.reached(name, operator.slices)

    @property
    def complete(self) -> bool:
        return all(self.reached(one.name) is None for one in self.note.operators)

    def output(self, sink: str) -> Output | None:
        return next((one for one in self.note.outputs if one.sink == sink), None)

    def path(self, output: Output) -> str:
        """Where an output is. Raises UserError if the user said where and it is not there."""
        if self.out is None:
            return output.path
        path = os.path.join(self.out, output.name)
        if not os.path.exists(path):
            raise UserError(f"expected the output of {output.sink} of {self.name} at {path}, found nothing there")
        return path


@dataclass(slots=True)
class Findings:
    """What was found: differences, and what else there is to say."""

    different: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(folder: str, out: str | None) -> Run:
    """A run from its folder. Raises UserError if it is none, or was not audited."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: expected the folder of a run, runs/<name>-<number>, found no folder")
    note = read_run(folder)
    if not note.audit:
        raise UserError(f"{folder} was run without --audit, so it has no digests. Run it again: dadstorm run … --audit")
    return Run(folder, note, read_digests(folder, note.operators), out)


def diff(one: str, other: str, out1: str | None = None, out2: str | None = None) -> int:
    """Compare two runs and print what is different; 0 if nothing is, else 1. Raises UserError for what cannot be."""
    first, second = read(one, out1), read(other, out2)
    if first.note.span != second.note.span:
        raise UserError(
            f"epochs of different length: {one} has span {first.note.span}, {other} has {second.note.span}. Run one of "
            "them again with the span of the other"
        )
    found = Findings()
    parted = _digests(first, second, found)
    _outputs(first, second, found, parted)
    for text in (*found.different, *found.notes):
        print(text)
    if found.different:
        print("different")
        return 1
    if not first.complete or not second.complete:
        print("the same as far as both are known")
        return 1
    epochs = sum(len(first.ledger.epochs(operator.name)) for operator in first.note.operators)
    print(f"the same: {epochs:,} epochs of {len(first.note.operators)} operators")
    return 0


# -- digests -----------------------------------------------------------------------------------------------------


def _digests(first: Run, second: Run, found: Findings) -> list[str]:
    """Compare the digests; the operators that differ."""
    for run in (first, second):
        for conflict in run.ledger.conflicts[:1]:
            found.different.append(
                f"{run.name}: operator {conflict.operator} recorded different digests of epoch {conflict.epoch}, "
                "before and after a recovery: it is not deterministic"
            )
        if not run.complete:
            found.notes.append(
                f"{run.name} did not come to its end, or some of its digests were lost: compared as far as they go"
            )
    parted: dict[str, int] = {}
    for name in _names(first, second):
        there = [run for run in (first, second) if run.operator(name) is not None]
        if len(there) == 1:
            found.different.append(f"operator {name} is only in {there[0].name}")
            continue
        epoch = _first_epoch(first, second, name)
        if epoch is None:
            continue
        if not parted:
            found.different.append(_told(first, second, name, epoch))
        parted[name] = epoch
    later = [f"{name} (from epoch {epoch})" for name, epoch in list(parted.items())[1:]]
    if later:
        found.different.append(f"different too: {', '.join(later)}")
    return list(parted)


def _names(first: Run, second: Run) -> list[str]:
    """Operators of either run, producers before consumers."""
    return list(dict.fromkeys(one.name for one in (*first.note.operators, *second.note.operators)))


def _first_epoch(first: Run, second: Run, name: str) -> int | None:
    """The first epoch in which an operator emitted something else, among those that both runs know whole."""
    one, other = first.ledger.epochs(name), second.ledger.epochs(name)
    ends = [end for end in (first.reached(name), second.reached(name)) if end is not None]
    known = [epoch for epoch in sorted({*one, *other}) if not ends or epoch < min(ends)]
    return next((epoch for epoch in known if one.get(epoch, NOTHING) != other.get(epoch, NOTHING)), None)


def _told(first: Run, second: Run, name: str, epoch: int) -> str:
    span = first.note.span
    lines = [f"operator {name}, epoch {epoch} (seqs {epoch * span} to {(epoch + 1) * span - 1}):"]
    for run in (first, second):
        total = run.ledger.epochs(name).get(epoch, NOTHING)
        count = f"{total.rows:,} tuple{'' if total.rows == 1 else 's'}"
        lines.append(f"  {run.name}: {count}, digest {total.digest:016x}" if total.rows else f"  {run.name}: no tuples")
    one, other = first.operator(name), second.operator(name)
    assert one is not None and other is not None
    ends = [run.reached(given) for run in (first, second) for given in one.inputs]
    if not one.inputs:
        lines.append("  it is a source: the runs did not read the same")
    elif one.inputs == other.inputs and all(end is None or end > epoch for end in ends):
        given = ", ".join(one.inputs)
        lines.append(f"  what it was given ({given}) is the same: {name} itself makes the difference")
    return "\n".join(lines)


# -- outputs -----------------------------------------------------------------------------------------------------


def _outputs(first: Run, second: Run, found: Findings, parted: list[str]) -> None:
    for one in first.note.outputs:
        other = second.output(one.sink)
        if other is None:
            continue
        if one.format != other.format:
            found.notes.append(f"{one.sink} wrote {one.format} and {other.format}: outputs not compared, digests were")
            continue
        if one.format == "spool":
            found.notes.append(f"{one.sink} is a spool, which rows leave once they are read: not compared")
            continue
        paths = first.path(one), second.path(other)
        missing = [path for path in paths if not os.path.exists(path)]
        if missing:
            found.notes.append(f"{missing[0]} is not there any more, not compared (--out1, --out2: where it is now)")
        elif os.path.realpath(paths[0]) == os.path.realpath(paths[1]):
            found.notes.append(
                f"both runs wrote {_short(paths[0])}, where only the later output is: not compared. Give each run an "
                "--out of its own, or tell with --out1 and --out2 where the outputs are"
            )
        else:
            _output(first, second, one, paths, found, one.sink in parted)


def _output(first: Run, second: Run, output: Output, paths: tuple[str, str], found: Findings, parted: bool) -> None:
    difference = compare(output.format, *paths)
    if difference is None:
        return
    texts = (difference.first, difference.second)
    unfinished = [not run.complete and text is None for run, text in ((first, texts[0]), (second, texts[1]))]
    if any(unfinished):
        return
    lines = [f"output {output.name}, {difference.place}:"]
    for path, text in zip(paths, texts, strict=True):
        lines.append(f"  {_short(path)}: {'it has ended' if text is None else text}")
    if not parted and first.complete and second.complete:
        lines.append("  the runs wrote the same: one of the files has been changed since")
    found.different.append("\n".join(lines))


def _short(path: str) -> str:
    """A path as it reads best from here."""
    near = os.path.relpath(path)
    return path if near.startswith(os.pardir) else near
