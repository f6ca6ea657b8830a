"""Where records begin and end in a run of bytes.

Bytes fall into *units*: records, blank lines and comment lines. A unit ends at a newline (or at the end of the file);
in CSV a newline inside a double-quoted field does not end a record, and only a quote at the start of a field opens
one. A carriage return before the newline belongs to the line end. The rules are a pure function of the bytes from a
unit's start on, so every reader of a file finds the same records, whatever it holds in memory.

A record that does not end within ``limit`` bytes (or whose quote is still open when the file ends) is broken and ends
at its first newline: a stray quote costs one line, not the rest of the file, and never more memory than the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dadstorm.core.line import Ints

NEWLINE, RETURN, QUOTE = 10, 13, 34


@dataclass(slots=True)
class Split:
    """The units that begin in the first ``want`` bytes of some data."""

    starts: Ints
    """Of each record."""
    stops: Ints
    """End of each record, without its line end."""
    end: int
    """How many bytes the units take."""
    broken: dict[int, str] = field(default_factory=dict)
    """Records that are known to be broken, by index, and why."""
    commented: bool = False
    """Comment lines lie between the records."""
    overlong: bool = False
    """The last unit goes on up to the next newline, after ``end``."""
    by_record: bool = False
    """A reader of the whole block would see other records: go record by record."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What tells a format's units apart."""

    limit: int
    """The most bytes a record may have."""
    blank: bytes | None
    """Lines of nothing but these bytes are not records; None: every line is a record."""
    comment: bytes | None = None
    """Lines that begin with this are not records."""
    delimiter: int | None = None
    """CSV: the byte between fields; None: no quoting, every newline ends a record."""

    def split(self, data: bytes, want: int, final: bool) -> Split | None:
        """The units that begin in ``data[:want]``; None when more data is needed to tell. ``final``: the file ends
        after data."""
        newline = data.find(b"\n", want - 1)
        end = newline + 1 if newline >= 0 else (len(data) if final else -1)
        if self.delimiter is not None:
            quote = data.find(b'"')
            if quote >= 0 and (end < 0 or quote < end):
                return self._split_quoted(data, want, final)
        if end < 0:
            last = data.rfind(b"\n", 0, want - 1) + 1
            end = last + self.limit + 2
            if len(data) < end:
                return None
            return self._lines(data[:end], overlong=True)
        return self._lines(data[:end])

    def lines(self, data: bytes) -> Split:
        """Every line a record of its own, quotes or not, as live sources take them."""
        split = self._lines(data)
        if self.delimiter is not None and b'"' in data:
            quoted = self.split(data, len(data), True)
            split.by_record = quoted is None or bool(quoted.broken) or not np.array_equal(quoted.starts, split.starts)
        return split

    def _lines(self, data: bytes, overlong: bool = False) -> Split:
        octets = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(octets == NEWLINE)
        if len(newlines) and newlines[-1] == len(data) - 1:
            starts, stops = np.concatenate([[0], newlines[:-1] + 1]), newlines
        else:
            starts, stops = np.concatenate([[0], newlines + 1]), np.append(newlines, len(data))
            if not data:
                starts = stops = newlines
        return self._records(data, octets, starts, stops, overlong)

    def _records(self, data: bytes, octets: np.ndarray, starts: Ints, stops: Ints, overlong: bool = False) -> Split:
        """Units, given with their newline positions, without line ends, blank lines and comments."""
        if b"\r" in data:
            stops = stops - ((stops > starts) & (octets[np.maximum(stops - 1, 0)] == RETURN))
        commented = False
        if self.blank is not None and len(starts):
            kept = stops > starts
            first = octets[starts] if len(data) else octets
            for i in np.flatnonzero(kept & np.isin(first, list(self.blank))) if self.blank else ():
                kept[i] = bool(data[starts[i] : stops[i]].strip(self.blank))
            if self.comment:
                for i in np.flatnonzero(kept & (first == self.comment[0])):
                    if data.startswith(self.comment, starts[i]):
                        kept[i] = False
                        commented = True
            if not kept.all():
                starts, stops = starts[kept], stops[kept]
        split = Split(starts, stops, len(data), commented=commented, overlong=overlong)
        for i in np.flatnonzero(stops - starts > self.limit):
            split.broken[int(i)] = self._too_long()
        return split

    def _too_long(self) -> str:
        return f"the record is longer than {self.limit:,} bytes (record_max)"

    def _split_quoted(self, data: bytes, want: int, final: bool) -> Split | None:
        """Quotes are there: by their parity where they are where they should be, else unit by unit."""
        octets = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(octets == QUOTE)
        newlines = np.flatnonzero(octets == NEWLINE)
        ends = newlines[np.searchsorted(quotes, newlines) & 1 == 0]
        last = int(np.searchsorted(ends, want - 1))
        if last < len(ends):
            ends = ends[: last + 1]
            end = int(ends[-1]) + 1
        elif final and len(quotes) % 2 == 0:
            end = len(data)
            ends = ends if len(ends) and ends[-1] == end - 1 else np.append(ends, end)
        else:
            end = int(ends[-1]) + 1 if len(ends) else 0
            if not final and len(data) - end < self.limit + 2 and self._regular(data, octets, quotes, end):
                return None
            return self._walk(data, want, final)
        if self._regular(data, octets, quotes, end):
            starts = np.concatenate([[0], ends[:-1] + 1])
            if not np.any(ends - starts > self.limit):
                return self._records(data[:end], octets, starts, ends)
        return self._walk(data, want, final)

    def _regular(self, data: bytes, octets: np.ndarray, quotes: Ints, end: int) -> bool:
        """Whether every quote that opens by parity stands at a field's start (or doubles the one before it): then
        parity and the rules agree."""
        opening = quotes[: np.searchsorted(quotes, end)][::2]
        if not len(opening):
            return True
        before = octets[np.maximum(opening - 1, 0)]
        regular = (opening == 0) | (before == self.delimiter) | (before == NEWLINE) | (before == QUOTE)
        if not regular.all():
            return False
        return not self.comment or not (data.startswith(self.comment) or b"\n" + self.comment in data[:end])

    def _walk(self, data: bytes, want: int, final: bool) -> Split | None:
        """Unit by unit, for data whose quotes are not all in their place."""
        starts: list[int] = []
        stops: list[int] = []
        split = Split(np.empty(0, np.int64), np.empty(0, np.int64), 0)
        at = 0
        while at < min(want, len(data)) and not split.overlong:
            newline, why = self._unit_end(data, at, final)
            if newline is None:
                return None
            stop = newline
            if newline == at + self.limit + 2:
                split.overlong = True
                split.end = newline
            else:
                split.end = min(newline + 1, len(data))
                if stop > at and data[stop - 1] == RETURN:
                    stop -= 1
            if self.comment and data.startswith(self.comment, at):
                split.commented = True
            elif data[at:stop].strip(self.blank or b""):
                if why:
                    split.broken[len(starts)] = why
                starts.append(at)
                stops.append(stop)
            at = split.end
        split.starts, split.stops = np.array(starts, np.int64), np.array(stops, np.int64)
        return split

    def _unit_end(self, data: bytes, start: int, final: bool) -> tuple[int | None, str | None]:
        """Where the unit's newline is, and what is wrong with it. The place ``limit + 2`` bytes after its start
        stands for a first line that is longer than the limit; None asks for more data."""
        enough = start + self.limit + 2
        hard = min(len(data), enough)
        known = final or hard == enough
        first = data.find(b"\n", start, hard)
        if first < 0 and hard < enough and final:
            first = hard
        if self.comment and data.startswith(self.comment, start):
            return (first, None) if first >= 0 else (enough if known else None, None)
        newline, opened = self._record_newline(data, start, hard, final and hard < enough)
        if newline is not None:
            stop = newline - (newline > start and data[newline - 1] == RETURN)
            if stop - start <= self.limit:
                return newline, None
        elif not known:
            return None, None
        if newline is None and opened >= 0:
            within = (
                f"within {self.limit:,} bytes (record_max)" if hard == enough else "before the end of the file"
            )
            lines = data.count(b"\n", start, opened)
            place = f" on line {lines + 1} of the record" if lines else ""
            why = f"the double quote opened at byte {opened - start + 1}{place} is not closed {within}"
        else:
            why = self._too_long()
        return (first if first >= 0 else enough), why

    def _record_newline(self, data: bytes, start: int, hard: int, final: bool) -> tuple[int | None, int]:
        """The newline that ends a record, looked for below ``hard`` (or ``hard`` itself where the file ends); else
        None, and where a quote is open (-1: none)."""
        at = start
        while True:
            newline = data.find(b"\n", at, hard)
            quote = data.find(b'"', at, newline if newline >= 0 else hard)
            while quote >= 0 and quote != start and data[quote - 1] != self.delimiter:
                quote = data.find(b'"', quote + 1, newline if newline >= 0 else hard)
            if quote < 0:
                if newline >= 0:
                    return newline, -1
                return (hard if final else None), -1
            closing = quote + 1
            while True:
                closing = data.find(b'"', closing, hard)
                if closing < 0 or (closing + 1 == hard and not final):
                    return None, quote
                if closing + 1 < hard and data[closing + 1] == QUOTE:
                    closing += 2
                else:
                    break
            at = closing + 1
