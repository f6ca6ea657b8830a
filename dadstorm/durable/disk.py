"""The disk as a holder: takes what a keeper sends to its holders, and answers as they do.

Writing and syncing happen in a thread of their own, so that a slow disk never stalls processing; what the thread has to
say comes back to the machine as messages, in the replica's loop, which ``wake_fd`` wakes. What waits to be written
for a slice is written together: a disk that cannot keep up gets fewer and larger pieces.

Every process holds a lock of its *life* of the run as long as it exists. In a later life nothing is read, and no output
file opened, before the locks of earlier lives can be had: before all their processes on this host are gone, that is.

A disk that cannot be written ends the run. Nothing is lost by that: what was acknowledged is on it. A shelf that cannot
be read ends the run if nobody else was asked for the state; otherwise it counts as empty, and another copy is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import pyarrow as pa

from dadstorm import logs
from dadstorm.core.line import START
from dadstorm.core.messages import DISK, Copy, Found, Held, Peer, Seek, Settle
from dadstorm.core.vault import DRAINED, Delta, Mark
from dadstorm.durable.files import Damaged, make_folder, told
from dadstorm.durable.shelf import Rank, Shelf
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator, Plan
from dadstorm.sinks.disk import sync_folder

Answer = tuple[Held | Found, "pa.RecordBatch | None"]

ANCESTORS_PATIENCE_S = 20.0
"""How long processes of an earlier life may still be there: a PCS lets a run go on for a while without PuppetMaster."""
_LIFE = re.compile(r"life-(\d+)\.lock")

log = logs.get_logger()


def journals(plan: Plan, folder: str) -> str:
    """Where live sources keep their journals: with the state of a durable run, else in ``folder``."""
    return folder if plan.durable is None else os.path.join(plan.durable.place, "journal")


@dataclass(slots=True)
class _Slice:
    """What was taken in of a slice and not handed to the thread yet."""

    incarnation: int
    """Of the slice."""
    newest: int | None = None
    waiting: list[Delta] = field(default_factory=list)
    whole: bool = False
    """The first that waits is a state, not a change of one."""
    settled: int = START
    """What is on the disk; the thread sets it."""
    mark: Mark | None = None
    """That of what was handed to the thread last."""
    noting: bool = False
    """The thread is to write down that the stream is drained."""
    superseded: bool = False
    """Somebody of higher rank has claimed it: the thread writes nothing more of it."""


@dataclass(slots=True)
class _Put:
    deltas: list[Delta]
    whole: bool
    drained: Delta | None = None
    """The end of a drained stream, which waits until what is settled tells of it."""


class Disk:
    def __init__(self, plan: Plan, me: Peer) -> None:
        assert plan.durable is not None
        self._durable = plan.durable
        self._me = me
        self._operator = plan.operators[me.operator]
        self._slices: dict[int, _Slice] = {}
        self._shelves: dict[int, Shelf] = {}
        self._sought: set[int] = set()
        """Slices that the thread is looking for."""
        self._jobs: SimpleQueue[tuple[int, _Put | None] | None] = SimpleQueue()
        self._answers: deque[Answer] = deque()
        self._failure: RunFailed | None = None
        self.lock_fd = -1
        """Open, and so ours, until this process ends."""
        self.wake_fd, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    # -- the replica's side --------------------------------------------------------------------------------------

    def take(self, message: object, table: pa.RecordBatch | None = None) -> None:
        """What the machine has for this holder."""
        if isinstance(message, Copy):
            self._copy(message, table)
        elif isinstance(message, Settle):
            self._settle(message)
        elif isinstance(message, Seek):
            for index in message.slices:
                if index not in self._sought:
                    self._sought.add(index)
                    self._slice(index, message.incarnation)
                    self._jobs.put((index, None))

    def answers(self) -> Iterator[Answer]:
        """What the machine has to hear; raises RunFailed if the disk cannot be relied on any more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)
        while self._answers:
            yield self._answers.popleft()
        if self._failure is not None:
            raise self._failure

    def clear(self) -> None:
        """The run is over and complete: its files are of no more use."""
        self._jobs.put(None)
        self._thread.join()
        for index in self._slices:
            shutil.rmtree(self._shelf(index).folder, ignore_errors=True)
        shutil.rmtree(os.path.join(self._durable.place, "journal"), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self._durable.place, self._operator.name))
            for name in filter(_LIFE.fullmatch, os.listdir(self._durable.place)):
                os.remove(os.path.join(self._durable.place, name))
            os.rmdir(self._durable.place)

    def _slice(self, index: int, incarnation: int) -> _Slice:
        """A slice of ours. A process has each slice in one incarnation: whoever has it back has it in another."""
        return self._slices.setdefault(index, _Slice(incarnation))

    def _copy(self, message: Copy, table: pa.RecordBatch | None) -> None:
        one = self._slice(message.slice, message.incarnation)
        delta = Delta(message.cut, table, message.mark)
        if message.after is None and (one.newest is None or delta.cut > one.newest):
            one.newest, one.waiting, one.whole = delta.cut, [delta], True
            if delta.cut > START:
                self._hand_over(message.slice, one, delta.cut)
        elif message.after is not None and one.newest == message.after < delta.cut:
            if DRAINED in (delta.mark or {}):
                self._note(message.slice, one, delta)
            else:
                one.newest = delta.cut
                one.waiting.append(delta)
        self._answer(message.slice, one)

    def _settle(self, message: Settle) -> None:
        one = self._slice(message.slice, message.incarnation)
        if one.newest is not None and one.newest >= message.cut:
            self._hand_over(message.slice, one, message.cut)
        self._answer(message.slice, one)

    def _note(self, index: int, one: _Slice, end: Delta) -> None:
        """A stream is to end where it is settled. Nobody is told that we know before the disk tells it, too."""
        if not one.noting:
            one.noting = True
            note = Delta(one.settled, None, {**(one.mark or {}), DRAINED: True})
            self._jobs.put((index, _Put([note], one.settled == START, end)))

    def _hand_over(self, index: int, one: _Slice, cut: int) -> None:
        """Have everything up to a cut written."""
        ready = [delta for delta in one.waiting if delta.cut <= cut]
        if ready:
            self._jobs.put((index, _Put(ready, one.whole)))
            one.waiting, one.whole, one.mark = one.waiting[len(ready) :], False, ready[-1].mark

    def _answer(self, index: int, one: _Slice) -> None:
        newest = -1 if one.newest is None else one.newest
        self._say(Held(self._me.operator, index, one.incarnation, DISK, 0, newest, one.settled))

    def _say(self, message: Held | Found, table: pa.RecordBatch | None = None) -> None:
        self._answers.append((message, table))
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"!")

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._enter()
            over = False
            while not over:
                seeks, puts, over = self._all_that_wait()
                for index in seeks:
                    self._seek(index)
                for index, put in puts.items():
                    self._put(index, put)
            return
        except RunFailed as failure:
            self._failure = failure
        except Exception as error:  # A thread that ended without a word would stop the run for ever.
            self._failure = RunFailed(f"operator {self._operator.name}: the disk's thread ended: {error!r}")
            log.error("defect", exc_info=True)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"!")

    def _enter(self) -> None:
        """Take part in this life of the run, once those of earlier ones have ended."""
        place = self._durable.place
        with told(f"operator {self._operator.name}", place):
            make_folder(place)
            self.lock_fd = self._open_lock(f"life-{self._durable.life}.lock")
            fcntl.flock(self.lock_fd, fcntl.LOCK_SH)
            for name in sorted(os.listdir(place)):
                match = _LIFE.fullmatch(name)
                if match and int(match[1]) < self._durable.life:
                    self._outlive(name)

    def _open_lock(self, name: str) -> int:
        return os.open(os.path.join(self._durable.place, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _outlive(self, name: str) -> None:
        file = self._open_lock(name)
        deadline = time.monotonic() + ANCESTORS_PATIENCE_S
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                if time.monotonic() > deadline:
                    raise RunFailed(
                        f"operator {self._operator.name}: processes of the run are still alive on this host, from "
                        "before it was resumed. Wait until they have ended, or end them, and resume it again"
                    )
                time.sleep(0.01)
        finally:
            os.close(file)

    def _all_that_wait(self) -> tuple[list[int], dict[int, _Put], bool]:
        """All jobs there are, at least one: which slices to look for, what to write of each, whether that is all."""
        seeks: list[int] = []
        puts: dict[int, _Put] = {}
        job = self._jobs.get()
        while job is not None:
            index, put = job
            before = puts.get(index)
            if put is None:
                seeks.append(index)
            elif before is not None and not put.whole:
                puts[index] = _Put([*before.deltas, *put.deltas], before.whole, put.drained or before.drained)
            else:
                puts[index] = put
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return seeks, puts, False
        return seeks, puts, True

    def _seek(self, index: int) -> None:
        """Claim a slice, and tell what there is of it."""
        shelf = self._shelf(index)
        operator, sought = self._me.operator, self._slices[index].incarnation
        try:
            with told(self._who(index), shelf.folder):
                shelf.claim()
            settled = shelf.load()
        except (Damaged, OSError) as damage:
            why = str(damage) if isinstance(damage, Damaged) else f"{shelf.folder} cannot be read: {damage.strerror}"
            if sought == 0:
                raise RunFailed(
                    f"{self._who(index)}: {why}. It held the only copy of the slice's state: restore it from a "
                    f"copy of your own, or remove {self._durable.folder} and run from the beginning"
                ) from None
            log.warning("a copy cannot be used", slice=index, why=why)
            settled = None
        self._sought.discard(index)
        if settled is None:
            self._say(Found(operator, index, sought, 0, DISK, -1))
            return
        # What an earlier life has written is older than anything that this one has.
        incarnation = settled.rank.incarnation if settled.rank.life == self._durable.life else -1
        mark = None if settled.delta.mark is None else dict(settled.delta.mark)
        self._say(Found(operator, index, sought, incarnation, DISK, settled.delta.cut, mark), settled.delta.table)

    def _put(self, index: int, put: _Put) -> None:
        shelf, one, cut = self._shelf(index), self._slices[index], put.deltas[-1].cut
        if one.superseded:
            return
        failure: RunFailed | None = None
        try:
            with told(self._who(index), shelf.folder):
                sync_output(self._operator)
                shelf.put(put.deltas, whole=put.whole)
        except Damaged as damage:
            failure = RunFailed(f"{self._who(index)}: {damage}. Look after that disk")
        except RunFailed as error:
            failure = error
        with told(self._who(index), shelf.folder):
            higher = shelf.superseded_by()
        if higher is None and failure is not None:
            raise failure
        if higher is None:
            one.settled = cut
            if put.drained is not None:  # Until it hears of this, the replica's side has nothing to do with these two.
                one.waiting, one.newest = [put.drained], put.drained.cut
            newest = cut if put.drained is None else put.drained.cut
            self._say(Held(self._me.operator, index, one.incarnation, DISK, 0, newest, cut))
        else:
            # Then it is no wonder if files are gone: a successor removes those of its predecessors. What failed is not
            # tried again, so nothing that builds on it may be written either.
            one.superseded = True
            known = higher.incarnation if higher.life == self._durable.life else one.incarnation + 1
            self._say(Held(self._me.operator, index, known, DISK, 0, -1, -1))

    def _shelf(self, index: int) -> Shelf:
        if index not in self._shelves:
            rank = Rank(self._durable.life, self._slices[index].incarnation)
            place, run = self._durable.place, self._durable.run
            self._shelves[index] = Shelf(place, run, self._operator.name, index, rank)
        return self._shelves[index]

    def _who(self, index: int) -> str:
        return f"operator {self._operator.name}, slice {index}"


def sync_output(operator: Operator) -> None:
    """What a sink has written is on the disk, before anybody is told where it stands: a mark must not outlive what it
    points to. (It has been flushed by then; pipes and devices have no disk.)"""
    path = operator.params.get("path") if operator.kind == "sink" else None
    if path is None:
        return
    unfinished = [path]
    if os.path.isdir(path):
        unfinished = [os.path.join(path, name) for name in os.listdir(path) if name.endswith(".spool")]
    for name in unfinished:
        # A part that is complete has been synced and has another name.
        with contextlib.suppress(FileNotFoundError):
            if os.path.isfile(name):
                file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
    sync_folder(path if os.path.isdir(path) else os.path.dirname(path))
