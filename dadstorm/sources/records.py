"""From a block's bytes to rows, and what becomes of broken records.

A broken record keeps its seq whatever happens to it, so that the others' seqs do not depend on ``on_error``. (Where a
column holds the seqs, a broken record may have none. Then it can be dropped, but has no place for a letter.)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dadstorm.core.kernel import DEAD, RecordError
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator
from dadstorm.sources.formats import Declined, Format
from dadstorm.sources.seqs import NO_SEQ, Place, Seqs
from dadstorm.sources.split import Split

SHOWN_CHARS = 200
"""How much of a broken record a message shows."""


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
        if NO_SEQ < seq < self._cut or self._operator.on_error == "skip":
            return
        if self._operator.on_error == "fail":
            raise record_error(self._operator.name, place, error, record)
        if seq == NO_SEQ:
            raise RecordError(
                f"{place}: {error}\n  the record: {shown(record)}\n"
                "  a dead letter has its record's seq, and this record tells none: correct it, or let source "
                f"{self._operator.name!r} drop such records, on_error: skip"
            )
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
    return RecordError(
        f"{place}: {error}\n  the record: {shown(record)}\n"
        f"  correct it, or let source {operator!r} go on without such records: on_error: skip, or dead-letter"
    )


def shown(record: str) -> str:
    return repr(record if len(record) <= SHOWN_CHARS else record[:SHOWN_CHARS] + "…")


def parse(
    form: Format, operator: Operator, data: bytes, split: Split, numbers: Seqs, place: Place, cut: int
) -> tuple[Rows, Rows | None]:
    """A block's records at or above the cut as rows, and the dead letters among them."""
    count = len(split.starts)
    if not count:
        return Rows.empty(operator.schema), None
    if not split.broken and not split.by_record and b"\0" not in data and _is_utf8(data):
        try:
            batch = form.batch(data, split)
            return Rows(numbers.all(batch), np.zeros(count, np.int64), batch).since(cut), None
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
    sound = np.setdiff1d(np.arange(count), np.array(list(broken), np.int64), assume_unique=True)
    batch, wrong = form.rows(texts)
    seqs, unplaced = numbers.each(batch, sound, count)
    where = {int(position): i for i, position in enumerate(sound)} if unplaced else {}
    wrong = {where[position]: why for position, why in unplaced.items()} | wrong
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
