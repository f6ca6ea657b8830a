"""From a block's bytes to rows, and what becomes of broken records.

A broken record keeps its seq whatever happens to it, so that the others' seqs do not depend on ``on_error``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import DEAD, RecordError
from dadstorm.core.line import Ints
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator
from dadstorm.sources.formats import Declined, Format
from dadstorm.sources.split import Split

SHOWN_CHARS = 200
"""How much of a broken record a message shows."""

Place = Callable[[int], str]
"""Where a block's i-th record stands, for messages: "FILE:LINE"."""


class Refusals:
    """Broken records of one block, handled as ``on_error`` says."""

    def __init__(self, operator: Operator, cut: int) -> None:
        self._operator = operator
        self._cut = cut
        self._seqs: list[int] = []
        self._letters: list[tuple[str, str, str]] = []

    def add(self, seq: int, place: str, error: str, record: str) -> None:
        """A broken record, in order of seq; ``RecordError`` if it stops the run. Below the cut it was dealt with
        before."""
        if seq < self._cut or self._operator.on_error == "skip":
            return
        if self._operator.on_error == "fail":
            raise record_error(self._operator.name, place, error, record)
        self._seqs.append(seq)
        self._letters.append((place, error, record))

    def rows(self) -> Rows | None:
        """The dead letters, None if there are none."""
        if not self._seqs:
            return None
        columns = [pa.array(column, pa.string()) for column in zip(*self._letters, strict=True)]
        seqs = np.array(self._seqs, np.int64)
        return Rows(seqs, np.zeros(len(seqs), np.int64), pa.RecordBatch.from_arrays(columns, schema=DEAD))


def record_error(operator: str, place: str, error: str, record: str) -> RecordError:
    shown = record if len(record) <= SHOWN_CHARS else record[:SHOWN_CHARS] + "…"
    return RecordError(
        f"{place}: {error}\n  the record: {shown!r}\n"
        f"  correct it, or let source {operator!r} go on without such records: on_error: skip, or dead-letter"
    )


def parse(
    form: Format, operator: Operator, data: bytes, split: Split, seqs: Ints, place: Place, cut: int
) -> tuple[Rows, Rows | None]:
    """A block's records at or above the cut as rows, and the dead letters among them."""
    if not len(seqs):
        return Rows.empty(operator.schema), None
    if not split.broken and not split.by_record and b"\0" not in data and _is_utf8(data):
        try:
            rows = Rows(seqs, np.zeros(len(seqs), np.int64), form.batch(data, split))
            return rows.since(cut), None
        except Declined:
            pass
    texts: list[str] = []
    broken = dict(split.broken)
    for i, (start, stop) in enumerate(zip(split.starts.tolist(), split.stops.tolist(), strict=True)):
        raw = data[start:stop]
        if i not in broken:
            if b"\0" in raw:
                broken[i] = f"a NUL byte at byte {raw.index(0) + 1} of the record: not text"
            else:
                try:
                    texts.append(raw.decode())
                    continue
                except UnicodeDecodeError as error:
                    broken[i] = f"invalid UTF-8 at byte {error.start + 1} of the record (0x{raw[error.start]:02x})"
    sound = np.setdiff1d(np.arange(len(seqs)), np.array(list(broken), np.int64), assume_unique=True)
    batch, wrong = form.rows(texts)
    broken.update((int(sound[i]), why) for i, why in wrong.items())
    refusals = Refusals(operator, cut)
    for i in sorted(broken):
        raw = data[split.starts[i] : split.stops[i]]
        overlong = len(raw) > form.rules.limit
        text = (
            raw[: 4 * SHOWN_CHARS].decode(errors="replace")[:SHOWN_CHARS] + "…"
            if overlong
            else raw.decode(errors="replace")
        )
        refusals.add(int(seqs[i]), place(i), broken[i], text)
    if wrong:
        kept = np.setdiff1d(np.arange(len(texts)), np.array(list(wrong), np.int64), assume_unique=True)
        batch = batch.take(pa.array(kept))
        sound = sound[kept]
    rows = Rows(seqs[sound], np.zeros(len(sound), np.int64), batch)
    return rows.since(cut), refusals.rows()


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
