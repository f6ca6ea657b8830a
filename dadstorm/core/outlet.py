"""The sending end: one producer slice towards all slices of one consumer.

What a slice emits for a range of the line is partitioned once over the consumer's slices and kept as one ``Emission``;
the tiles of the single channels are slices of it, without copying. Emissions are kept until every slice of the consumer
is safe of them (retention), so that any channel can be sent again from any cut at or above its ``safe``.

Tiles that go to one replica travel in one message: channels whose slices live together and that stand at the same
position share it. A slice that has not attached yet gets nothing: its tiles wait here. Once attached, a slice gets
every emission that reaches beyond what it asked for; what it has already got, it drops.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from dadstorm.core.line import END, START, Ints
from dadstorm.core.messages import Done, Peer, Reach, Reached, Tiles
from dadstorm.core.routing import Router
from dadstorm.core.rows import Rows

TOGETHER_ROWS_MAX = 1 << 15
TOGETHER_BYTES_MAX = 16 << 20
"""What is sent again goes in messages of about this size at most."""


@dataclass(frozen=True, slots=True)
class Send:
    """An action: give this message, with these rows as its body, to a replica."""

    to: Peer
    message: Tiles
    rows: Rows


@dataclass(frozen=True, slots=True)
class Emission:
    """Everything one slice emits towards one consumer for ``[lo, hi)``, grouped by consumer slice."""

    lo: int
    hi: int
    rows: Rows
    offsets: Ints


def together(emissions: Sequence[Emission]) -> Iterator[Emission]:
    """Neighbouring emissions as one, as far as that is of handy size: a source that trickles makes a thousand in a
    second, and who has lost its place is not to read them one by one."""
    run: list[Emission] = []
    count = 0
    for emission in emissions:
        if count + len(emission.rows) > TOGETHER_ROWS_MAX:
            yield from _joined(run)
            run, count = [], 0
        run.append(emission)
        count += len(emission.rows)
    yield from _joined(run)


def _joined(run: list[Emission]) -> Iterator[Emission]:
    rows = Rows.concat([emission.rows for emission in run]) if len(run) > 1 else None
    if rows is None or rows.nbytes > TOGETHER_BYTES_MAX:
        yield from run
        return
    numbers = np.arange(len(run[0].offsets) - 1)
    slices = np.concatenate([np.repeat(numbers, np.diff(emission.offsets)) for emission in run])
    offsets = np.sum([emission.offsets for emission in run], axis=0)
    yield Emission(run[0].lo, run[-1].hi, rows.take(np.argsort(slices, kind="stable")), offsets)


class Outlet:
    def __init__(
        self,
        producer: Peer,
        producer_slice: int,
        incarnation: int,
        consumer: int,
        input_index: int,
        port: int,
        router: Router,
        retain: bool,
        cut: int = START,
        repeat: bool = False,
        anew: bool = True,
    ) -> None:
        """``anew``: no earlier incarnation of the slice has emitted anything."""
        self._producer = producer
        self._producer_slice = producer_slice
        self._incarnation = incarnation
        self.consumer = consumer
        self.input = input_index
        self.port = port
        self._router = router
        self._retain = retain
        self._repeat = repeat
        """Consumers also get what they have from an earlier incarnation: to compare it, or to take it again."""
        self.repeats_from = START
        """With an audit: the slice's safe cut. No incarnation will emit anything below it."""
        self.stride = END
        """How far apart cuts may be downstream."""
        self._kept: deque[Emission] = deque()
        self._homes: list[int | None] = [None] * router.slices
        self._incarnations = [-1] * router.slices
        self._done = cut
        self.floor = cut
        """Nothing below can be sent again: it has been forgotten, or was before this incarnation's time."""
        self._wanted = [START] * router.slices
        self._reached: list[int | None] = [START if anew else None] * router.slices
        """How far each slice of the consumer, and all behind it, have got of what earlier incarnations emitted."""
        self._safe = [START] * router.slices
        self.safe = START
        """The cut that all slices of the consumer are safe of."""

    @property
    def owed(self) -> int:
        """How far the consumer that has got the most has got: an earlier incarnation has sent that much."""
        return max(self._wanted)

    @property
    def attached(self) -> bool:
        """Whether every slice of the consumer has told where it is."""
        return None not in self._homes

    @property
    def reached(self) -> int | None:
        """How far anybody downstream has got of what earlier incarnations have emitted; None: not known yet."""
        places = [place for place in self._reached if place is not None]
        return max(places) if len(places) == len(self._reached) else None

    def reach(self) -> Reach:
        return Reach(*self._producer, self._producer_slice, self._incarnation, self.consumer, self.input)

    def answered(self, message: Reached) -> None:
        if message.incarnation == self._incarnation:
            self._reached[message.slice] = max(message.hi, self._reached[message.slice] or START)

    def outdone(self, slice_index: int, incarnation: int) -> bool:
        """Whether a higher incarnation of a slice of the consumer has attached."""
        return incarnation < self._incarnations[slice_index]

    @property
    def kept_rows(self) -> int:
        return sum(len(emission.rows) for emission in self._kept)

    def emit(self, lo: int, hi: int, rows: Rows) -> Iterator[Send]:
        """Route the rows of ``[lo, hi)``, keep them, and send each attached slice its tile."""
        grouped, offsets = self._router.partition(rows)
        emission = Emission(lo, hi, grouped, offsets)
        self._done = hi
        if self._retain or None in self._homes:
            self._kept.append(emission)
        yield from self._send(emission, [s for s, wanted in enumerate(self._wanted) if wanted < hi or self._repeat])

    def again(self, rows: Rows) -> Iterator[Send]:
        """At-least-once: pass repeats on. They are not kept: who loses them has had them once."""
        grouped, offsets = self._router.partition(rows)
        emission = Emission(int(rows.seq.min()), int(rows.seq.max()) + 1, grouped, offsets)
        for send in self._send(emission, [s for s in range(len(self._homes)) if offsets[s] < offsets[s + 1]]):
            yield Send(send.to, msgspec.structs.replace(send.message, again=True), send.rows)

    def attach(self, replica: int, incarnation: int, wants: Iterable[tuple[int, int]]) -> Iterator[Send]:
        """These slices live at ``replica`` now and want their tiles from these seqs on: resend what is kept. A lower
        incarnation than is known has been superseded and gets nothing."""
        since: dict[int, list[int]] = defaultdict(list)
        for slice_index, lo in wants:
            if self.outdone(slice_index, incarnation):
                continue
            everything = self._repeat and self._homes[slice_index] is None
            self._incarnations[slice_index] = incarnation
            self._homes[slice_index] = replica
            self._wanted[slice_index] = lo
            since[START if everything else lo].append(slice_index)
        for lo, slices in since.items():
            for emission in together([emission for emission in self._kept if emission.hi > lo]):
                yield from self._send(emission, sorted(slices))
        if not self._retain and None not in self._homes:
            self._kept.clear()

    def standing(self, still: bool) -> Iterator[tuple[Peer, Done]]:
        """Tell every replica that slices of the consumer live at how far this producer slice has come."""
        done = Done(
            *self._producer, self._producer_slice, self._incarnation, self.consumer, self.input, self._done, still
        )
        for home in sorted({home for home in self._homes if home is not None}):
            yield Peer(self.consumer, home), done

    def advance(self, cuts: Iterable[tuple[int, int]]) -> None:
        """Consumers' safe cuts: forget what nobody will ask for again."""
        for slice_index, cut in cuts:
            self._safe[slice_index] = max(self._safe[slice_index], cut)
        self.safe = min(self._safe)
        while self._kept and self._kept[0].hi <= self.safe:
            self.floor = self._kept.popleft().hi

    def _send(self, emission: Emission, slices: list[int]) -> Iterator[Send]:
        """One message for every run of neighbouring slices that live at the same replica."""
        start = 0
        while start < len(slices):
            home = self._homes[slices[start]]
            stop = start + 1
            while stop < len(slices) and slices[stop] == slices[stop - 1] + 1 and self._homes[slices[stop]] == home:
                stop += 1
            if home is not None:
                yield self._message(emission, slices[start:stop], home)
            start = stop

    def _message(self, emission: Emission, slices: list[int], home: int) -> Send:
        first, last = slices[0], slices[-1]
        offsets = emission.offsets[first : last + 2].tolist()
        counts = tuple(stop - start for start, stop in pairwise(offsets))
        rows = emission.rows.slice(offsets[0], offsets[-1])
        message = Tiles(
            producer=self._producer.operator,
            replica=self._producer.replica,
            producer_slice=self._producer_slice,
            incarnation=self._incarnation,
            consumer=self.consumer,
            input=self.input,
            lo=emission.lo,
            hi=emission.hi,
            slices=tuple(slices),
            counts=counts,
            safe=self.repeats_from,
            stride=self.stride,
        )
        return Send(Peer(self.consumer, home), message, rows)
