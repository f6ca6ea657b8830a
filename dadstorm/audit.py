"""The record of an audit in a run's folder: what replicas write, and how it is read.

``run.json`` says what ran. Each replica of an audited run appends its slices' digests, as they become final, to
``<operator>.<replica>.audit.log``, a line of JSON each::

    {"slice":0,"number":3,"epoch":3,"rows":65536,"digest":"9b1f…","incarnation":0}
    {"slice":0,"ended":4,"incarnation":0}

A line is written before the snapshot that relies on it leaves: what a later incarnation does not record again is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Annotated

import msgspec

from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Operator, Plan

if TYPE_CHECKING:
    from dadstorm.core.audit import Audited
    from dadstorm.core.ledger import Ledger

RUN_FILE = "run.json"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a digest file: a digest, or how many there are now that the slice is at its end."""

    slice: int
    incarnation: int
    number: int | None = None
    epoch: int | None = None
    rows: int | None = None
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")] | None = None
    """64 bits as hexadecimal digits: not every reader of JSON has such integers."""
    ended: int | None = None


class Output(msgspec.Struct, frozen=True):
    """Where a sink wrote its result."""

    sink: str
    format: str
    path: str
    name: str
    """Its path from the output folder on: where to look for it when that folder has been moved."""


class OperatorNote(msgspec.Struct, frozen=True):
    """What the reader of a run has to know of an operator."""

    name: str
    kind: str
    slices: int
    replicas: int
    inputs: tuple[str, ...] = ()


class RunNote(msgspec.Struct, frozen=True):
    """What ran: the contents of ``run.json``. Operators are in topological order."""

    name: str
    semantics: str
    span: int
    audit: bool
    operators: tuple[OperatorNote, ...]
    outputs: tuple[Output, ...]


DIGESTS = ".audit.log"
"""How the names of digest files end. PCSs pass on whatever ends in ``.log``."""


class DigestFile:
    """A replica's digests, as it writes them. There is no file until there is a digest."""

    def __init__(self, folder: str, replica: str, incarnation: int) -> None:
        self._path = os.path.join(folder, f"{replica}{DIGESTS}")
        self._incarnation = incarnation
        self._file: IO[bytes] | None = None

    def write(self, action: Audited) -> None:
        lines = [
            Line(action.slice, self._incarnation, one.number, one.epoch, one.rows, f"{one.digest:016x}")
            for one in action.digests
        ]
        if action.ended is not None:
            lines.append(Line(action.slice, self._incarnation, ended=action.ended))
        try:
            if self._file is None:
                self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
                if self._incarnation:
                    self._file.write(b"\n")  # The one before may have been killed in the middle of a line.
            self._file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        except OSError as error:
            raise RunFailed(
                f"cannot write the digests of the audit to {self._path}: {error.strerror}. Make room, give another "
                "folder with --runs DIR, or run without --audit"
            ) from None


def audited(plan: Plan) -> Plan:
    """The plan, under audit. Raises UserError where work may be done twice with different results, by its semantics."""
    if plan.semantics != "exactly-once":
        raise UserError(
            f"--audit needs semantics exactly-once, found {plan.semantics}: only there must recovered work give the "
            "same tuples with the same IDs. Leave --audit out, or run it exactly-once"
        )
    return msgspec.structs.replace(plan, audit=True)


def note_run(folder: str, plan: Plan, out: str | None) -> None:
    """Write down what runs in this folder, and writes its results to the folder ``out``."""
    note = RunNote(
        plan.name,
        plan.semantics,
        plan.span,
        plan.audit,
        tuple(_operator_note(one) for one in plan.operators),
        tuple(
            _output(one, os.path.abspath(out or "out"))
            for one in plan.operators
            if one.kind == "sink" and one.params.get("path")
        ),
    )
    path = os.path.join(folder, RUN_FILE)
    try:
        with open(path, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(note)) + b"\n")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Give another folder with --runs DIR") from None


def _output(sink: Operator, out: str) -> Output:
    path = os.path.abspath(sink.params["path"])
    inside = os.path.commonpath([path, out]) == out
    return Output(
        sink.name, sink.params["format"], path, os.path.relpath(path, out) if inside else os.path.basename(path)
    )


def _operator_note(operator: Operator) -> OperatorNote:
    inputs = tuple(dict.fromkeys(link.operator for link in operator.inputs))
    return OperatorNote(operator.name, operator.kind, operator.slices, len(operator.replicas), inputs)


def read_run(folder: str) -> RunNote:
    """What ran in a folder. Raises UserError if it is not a run's."""
    path = os.path.join(folder, RUN_FILE)
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=RunNote)
    except FileNotFoundError:
        raise UserError(
            f"{folder} is not the folder of a run: expected {RUN_FILE} in it, found none. Name a folder such as "
            "runs/wordcount-1; dadstorm run tells it at its end"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is damaged: {error}") from None


def read_digests(folder: str, operators: Sequence[OperatorNote]) -> Ledger:
    """All digests that the replicas of a run recorded. Raises UserError if a file of them cannot be read."""
    from dadstorm.core.audit import Digest  # With Arrow, which takes long to load and is not needed to take notes.
    from dadstorm.core.ledger import Ledger

    ledger = Ledger()
    for operator in operators:
        for replica in range(operator.replicas):
            for line in _lines(os.path.join(folder, f"{operator.name}.{replica}{DIGESTS}")):
                if line.ended is not None:
                    ledger.end(operator.name, line.slice, line.ended)
                elif line.number is not None and line.epoch is not None and line.rows is not None and line.digest:
                    digest = Digest(line.number, line.epoch, line.rows, int(line.digest, 16))
                    ledger.add(operator.name, line.slice, digest)
    return ledger


def _lines(path: str) -> Iterator[Line]:
    """The lines of a digest file; none if there is no such file. A line whose writer was killed in the middle of it is
    none: its successor has recorded it again, or it is known to be missing."""
    try:
        with open(path, "rb") as file:
            for text in file:
                with contextlib.suppress(msgspec.DecodeError):
                    yield msgspec.json.decode(text, type=Line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def conclude(folder: str, plan: Plan) -> str:
    """At the end of a run: what was recorded, in words. Raises RunFailed if two incarnations recorded different
    digests of the same work."""
    ledger = read_digests(folder, [_operator_note(one) for one in plan.operators])
    if ledger.conflicts:
        from dadstorm.core.audit import blame  # As above.

        order = [one.name for one in plan.operators]
        worst = min(ledger.conflicts, key=lambda one: (order.index(one.operator), one.epoch))
        raise RunFailed(
            f"operator {worst.operator} did not reproduce what it had emitted before it was recovered: in epoch "
            f"{worst.epoch} (seqs {worst.epoch * plan.span} to {(worst.epoch + 1) * plan.span - 1}), slice "
            f"{worst.slice}, first {worst.first.rows} tuples with digest {worst.first.digest:016x}, then "
            f"{worst.again.rows} with {worst.again.digest:016x}.\n{blame(plan, plan[worst.operator])}"
        )
    epochs = {one.name: len(ledger.epochs(one.name)) for one in plan.operators}
    count, operators = sum(epochs.values()), sum(1 for found in epochs.values() if found)
    complete = all(ledger.reached(one.name, one.slices) is None for one in plan.operators)
    return (
        f"audit: {count:,} epoch{'' if count == 1 else 's'} of {operators} operator{'' if operators == 1 else 's'} "
        f"recorded in {os.path.relpath(folder)}, all work reproduced"
        f"{'' if complete else '; some are missing: it did not begin or end here, or a host was lost'}"
    )
