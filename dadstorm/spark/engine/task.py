"""A partition of a stage in a worker process of Spark's: parcels in, parcels out.

Spark keeps its Python workers from task to task. A worker keeps the kernels and readers of its last tasks, each with
the position on the line where it stands: who needs a slice from there on need not read its state from files. Whether
one is found changes the speed, nothing else.

What is meant for the user (a tuple that no function could handle, a module that is not there) is no failure of the
task, which Spark would try again: it goes to the driver as a parcel.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from dadstorm.core.kernel import NO_LETTERS, Kernel
from dadstorm.core.line import END, START
from dadstorm.core.rows import Rows
from dadstorm.errors import DadstormError, UserError
from dadstorm.operators import make_kernel
from dadstorm.plan import Plan
from dadstorm.sources import Mark, Reader, make_reader
from dadstorm.spark.engine.parcels import Kind, Parcel, Sent, received, sent, to_driver
from dadstorm.spark.engine.stages import Stages, lay_out
from dadstorm.spark.engine.states import StateFile, restore, save
from dadstorm.spark.engine.work import Work, part_of

READ_ROWS = 1 << 17
READ_BYTES = 64 << 20
"""What a reader is asked for at a time."""


class Step(msgspec.Struct, frozen=True):
    """A step as its tasks know it."""

    plan: bytes
    width: int
    run: str
    lo: int
    hi: int
    home: str
    """The driver's folder: paths in the plan begin there."""
    folder: str
    """Where state is."""
    sync: bool
    """Whether state has to survive the machine."""
    marks: tuple[Mark | None, ...]
    """Where each reader was at ``lo``."""
    ended: tuple[bool, ...]
    """Readers that have nothing more."""
    states: dict[int, dict[int, tuple[StateFile, ...]]]
    """Per operator and slice the files of its state."""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """Where a reader is at the end of a step."""

    mark: Mark | None
    ended: bool
    next: int = START
    """It has nothing below this."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    stage: int
    user: bool
    """A mistake of the user's, not of the run's."""
    text: str


@dataclass(slots=True)
class _Reading:
    """A reader, and what it has given beyond the end of the last step."""

    reader: Reader
    at: int
    ahead: list[tuple[Rows, Rows]]
    reached: int

    @property
    def next(self) -> int:
        """Below this the reader has nothing that it has not given."""
        return min((int(part.seq[0]) for both in self.ahead for part in both if len(part)), default=self.reached)


_kernels: dict[tuple[str, int, int], tuple[int, Kernel]] = {}
_readings: dict[tuple[str, int, int], _Reading] = {}


def read_sources(step: bytes, numbers: Iterator[int]) -> Iterator[Sent]:
    """What Spark calls for each partition of stage 0, with the numbers of its readers."""
    return sent(_Task(0, step).read(numbers))


def run_stage(stage: int, step: bytes, given: Iterator[Sent]) -> Iterator[Sent]:
    """What Spark calls for each partition of a further stage."""
    return sent(_Task(stage, step).work(received(given)))


def partition(part: int) -> int:
    """Parcels say themselves where they go."""
    return part


@lru_cache(4)
def _planned(plan: bytes, width: int) -> tuple[Plan, Stages]:
    found = msgspec.msgpack.decode(plan, type=Plan)
    return found, lay_out(found, width)


class _Task:
    def __init__(self, stage: int, told: bytes) -> None:
        step = msgspec.msgpack.decode(told, type=Step)
        self._stage = stage
        self._step = step
        self._plan, self._stages = _planned(step.plan, step.width)
        self._used: dict[tuple[int, int], Kernel] = {}
        self._taken = 0
        """Bytes that came in."""

        self._work = Work(self._plan, self._stages, stage, self._kernel)

    def read(self, numbers: Iterator[int]) -> Iterator[Parcel]:
        for number in numbers:
            yield from self._told(self._read(number))
        yield self._weight()

    def work(self, given: Iterator[Parcel]) -> Iterator[Parcel]:
        arrived: dict[tuple[int, int, int], list[Rows]] = defaultdict(list)
        for parcel in given:
            self._taken += len(parcel.payload)
            if parcel.stage > self._stage:
                part = part_of(self._stages, self._stage, parcel.stage, parcel.operator, parcel.slice)
                yield replace(parcel, part=part)
                continue
            schema = self._plan.input_schema(self._plan.operators[parcel.operator])
            arrived[parcel.operator, parcel.slice, parcel.input].append(parcel.rows(schema))
        yield from self._told(self._work.run(arrived, {}))
        yield self._weight()

    def _weight(self) -> Parcel:
        """What the length of further steps is decided by."""
        return to_driver(self._stages.count, Kind.WEIGHT, 0, 0, None, self._taken)

    def _told(self, made: Iterator[Parcel]) -> Iterator[Parcel]:
        """What is made, and the state that it leaves; or why it could not be."""
        try:
            _go_to(self._step.home)
            yield from made
            yield from self._keep()
        except DadstormError as error:
            failure = Failure(self._stage, isinstance(error, UserError), str(error))
            yield to_driver(self._stages.count, Kind.FAILED, 0, 0, failure)

    # -- state ---------------------------------------------------------------------------------------------------

    def _kernel(self, operator: int, slice_index: int) -> Kernel:
        """A slice's kernel as it was at the beginning of the step."""
        kernel = self._used.get((operator, slice_index))
        if kernel is None:
            step = self._step
            at, kernel = _kernels.pop((step.run, operator, slice_index), (-1, None))
            one = self._plan.operators[operator]
            if kernel is None or (one.has_state and at != step.lo):
                kernel = make_kernel(one, self._plan)
                restore(kernel, step.folder, step.states.get(operator, {}).get(slice_index, ()))
            self._used[operator, slice_index] = kernel
        return kernel

    def _keep(self) -> Iterator[Parcel]:
        step = self._step
        for (operator, slice_index), kernel in self._used.items():
            one = self._plan.operators[operator]
            if one.has_state:
                before = step.states.get(operator, {}).get(slice_index, ())
                name = f"{one.name}.{slice_index}"
                kept = save(kernel, step.folder, before, step.hi, name, step.sync)
                if kept is not None:
                    yield to_driver(self._stages.count, Kind.STATE, operator, slice_index, kept)
            _kernels[step.run, operator, slice_index] = step.hi, kernel
        self._used.clear()

    # -- sources -------------------------------------------------------------------------------------------------

    def _read(self, number: int) -> Iterator[Parcel]:
        """All records of one reader in the step, and what the operators of the stage make of them."""
        operator, slice_index = self._stages.readers[number]
        if self._step.ended[number]:
            return
        reading = self._reading(number)
        hi = self._step.hi
        while reading.reached < hi:
            records = reading.reader.read(READ_ROWS, READ_BYTES)
            reading.ahead.append((records.rows, NO_LETTERS if records.dead is None else records.dead))
            reading.reached = records.hi
        empty = Rows.empty(self._plan.operators[operator].schema), NO_LETTERS
        rows, letters = (_joined(empty[port], [part[port].below(hi) for part in reading.ahead]) for port in (0, 1))
        rest = [(part[0].since(hi), part[1].since(hi)) for part in reading.ahead]
        reading.ahead = [part for part in rest if len(part[0]) or len(part[1])]
        reading.at = hi
        self._taken += rows.nbytes + letters.nbytes
        yield from self._work.run({}, {operator: (rows, letters)})
        ended = reading.reached == END and not reading.ahead
        told = Told(None if ended else reading.reader.mark(hi), ended, reading.next)
        if ended:
            reading.reader.close()
        else:
            _readings[self._step.run, operator, slice_index] = reading
        yield to_driver(self._stages.count, Kind.READ, operator, slice_index, told, len(rows))

    def _reading(self, number: int) -> _Reading:
        operator, slice_index = self._stages.readers[number]
        step = self._step
        found = _readings.pop((step.run, operator, slice_index), None)
        if found is not None:
            if found.at <= step.lo <= found.next:
                return found
            found.reader.close()
        mark = step.marks[number]
        one = self._plan.operators[operator]
        given: dict[str, Any] = {} if mark is None else {"mark": mark}
        reader = make_reader(one, self._plan, slice_index, run_dir=step.folder, cut=step.lo, **given)
        return _Reading(reader, step.lo, [], step.lo)


def _go_to(home: str) -> None:
    try:
        if os.getcwd() != home:
            os.chdir(home)
    except OSError as error:
        raise UserError(
            f"an executor on {socket.gethostname()} cannot use {home}: {error.strerror}. Run from a folder that all "
            "executors see: paths in the topology begin there"
        ) from None


def _joined(empty: Rows, parts: list[Rows]) -> Rows:
    return Rows.concat([part for part in parts if len(part)] or [empty])
