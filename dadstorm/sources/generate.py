"""Generated records: a seeded source for demonstrations and load.

Every value is a pure function of (seed, field, seq), mixed by a counter-based generator: any slice can make any
record without those before it, at any cut, in batches of any size. The clock only decides when a record is given,
never what is in it. Slices own blocks of ``BLOCK_SEQS`` seqs in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dadstorm.core.line import END, START, Ints
from dadstorm.core.rows import Rows
from dadstorm.core.schemas import ARROW
from dadstorm.plan import Operator
from dadstorm.sources.base import Mark, Records

BLOCK_SEQS = 1024
BATCH_ROWS = 1 << 16
"""The most records that are made at once."""

Words64 = NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(values: Words64) -> Words64:
    """The finishing step of splitmix64: neighbouring inputs give unrelated outputs."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words64 = values ^ (values >> np.uint64(31))
    return mixed


def stream_key(*parts: int) -> int:
    """One number for a whole stream of random words, from whatever names it."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = mix(key ^ np.uint64(part & _MASK)) + np.uint64(_GOLDEN)
    return int(key[0])


def random_words(key: int, counters: Ints) -> Words64:
    """The random words of a stream at these counters."""
    return mix((counters.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) ^ np.uint64(key))


def vocabulary(seed: int, size: int) -> list[str]:
    """So many distinct pronounceable words, in an order and with syllables that the seed decides."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwxyz" for vowel in "aeiou"]
    order = np.argsort(random_words(stream_key(seed, 1), np.arange(len(syllables))), kind="stable")
    shuffled = [syllables[i] for i in order]
    words = []
    for i in range(size):
        digits = [i % 100, i // 100 % 100]
        rest = i // 10_000
        while rest:
            digits.append(rest % 100)
            rest //= 100
        words.append("".join(shuffled[digit] for digit in digits))
    return words


Make = Callable[[Ints], pa.Array]


def _maker(generator: dict[str, Any], field_type: str, seed: int, position: int) -> Make:
    """The function from seqs to one field's column."""
    key = stream_key(seed, 2, position)
    target = ARROW[field_type]
    kind = generator["kind"]
    if kind == "counter":
        return lambda seqs: pa.array(seqs).cast(target)
    if kind == "int":
        low, span = int(generator["low"]), int(generator["high"]) - int(generator["low"]) + 1

        def integers(seqs: Ints) -> pa.Array:
            words = random_words(key, seqs)
            # Wrapping unsigned arithmetic, so that any low and high within 64 bits will do.
            picked = words if span > _MASK else words % np.uint64(span)
            return pa.array((picked + np.uint64(low & _MASK)).view(np.int64)).cast(target)

        return integers
    if kind == "float":
        start, width = float(generator["low"]), float(generator["high"]) - float(generator["low"])
        return lambda seqs: pa.array((random_words(key, seqs) >> np.uint64(11)) * 2.0**-53 * width + start).cast(target)
    if kind == "bool":
        return lambda seqs: pa.array((random_words(key, seqs) >> np.uint64(63)).astype(bool)).cast(target)
    if kind == "timestamp":
        first, step = int(generator["start"]), int(generator["step"])
        return lambda seqs: pa.array(first + seqs * step, pa.timestamp("us")).cast(target)
    if kind == "choice":
        values = pa.array(generator["values"], target)
        return lambda seqs: values.take(pa.array(random_words(key, seqs) % np.uint64(len(values))))
    if kind == "words":
        count, known = int(generator["count"]), pa.array(vocabulary(seed, int(generator["vocabulary"])))

        def texts(seqs: Ints) -> pa.Array:
            columns = [
                known.take(pa.array(random_words(key, seqs * count + i) % np.uint64(len(known)))) for i in range(count)
            ]
            return pc.binary_join_element_wise(*columns, " ") if columns else pa.array([""] * len(seqs))

        return texts
    raise ValueError(f"no such generator: {kind!r}")


class GenerateReader:
    """One slice of a generated source."""

    def __init__(
        self,
        operator: Operator,
        slice_index: int,
        *,
        mark: Mark | None = None,
        cut: int = START,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        params = operator.params
        self._schema = operator.schema
        self._no_rows = Rows.empty(self._schema)
        self._slice = slice_index
        self._slices = operator.slices
        self._count: int | None = params.get("count")
        self._rate: float | None = params.get("rate")
        self._clock = clock
        self._began: float | None = None
        self._first = self._hi = cut
        self._drained = False
        self._row_bytes = 0.0
        self._makers = [
            _maker(generator, field.type, int(params.get("seed", 0)), i)
            for i, (generator, field) in enumerate(zip(params["generators"], operator.fields, strict=True))
        ]

    def read(self, max_rows: int, max_bytes: int) -> Records:
        last = self._due()
        if self._drained or (self._count is not None and self._hi >= self._count):
            self._hi = END
        if self._hi == END or max_rows <= 0:
            return Records(self._no_rows, self._hi)
        if not self._row_bytes:
            sample = self._make(np.arange(self._hi, self._hi + 64, dtype=np.int64))
            self._row_bytes = max(1.0, sample.nbytes / 64)
        seqs, hi = self._own(last, max(1, min(max_rows, BATCH_ROWS, int(max_bytes / self._row_bytes))))
        self._hi = END if hi == self._count else hi
        return Records(self._make(seqs) if len(seqs) else self._no_rows, self._hi)

    def mark(self, cut: int) -> Mark:
        return {}

    def wake_fds(self) -> list[int]:
        return []

    def drain(self) -> None:
        self._drained = True

    def close(self) -> None:
        pass

    def _due(self) -> int:
        """The seq below which records may be given by now."""
        end = END if self._count is None else self._count
        if not self._rate:
            return end
        now = self._clock()
        if self._began is None:
            self._began = now
        return max(self._hi, min(end, self._first + int((now - self._began) * self._rate)))

    def _own(self, last: int, rows: int) -> tuple[Ints, int]:
        """This slice's next seqs below ``last``, so many at most, and up to where there are no others."""
        parts: list[Ints] = []
        seq, left = self._hi, rows
        while seq < last and left:
            block = seq // BLOCK_SEQS
            away = (self._slice - block) % self._slices
            if away:
                seq = min(last, (block + away) * BLOCK_SEQS)
                continue
            stop = min(last, (block + 1) * BLOCK_SEQS if self._slices > 1 else END, seq + left)
            parts.append(np.arange(seq, stop, dtype=np.int64))
            left -= stop - seq
            seq = stop
        return (np.concatenate(parts) if parts else np.empty(0, np.int64)), seq

    def _make(self, seqs: Ints) -> Rows:
        columns = [make(seqs) for make in self._makers]
        return Rows(seqs, np.zeros(len(seqs), np.int64), pa.RecordBatch.from_arrays(columns, schema=self._schema))
