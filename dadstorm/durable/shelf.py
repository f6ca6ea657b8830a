"""The shelf: the files of one slice, which together are its settled snapshot.

Each file is a *piece*: what happened to the state between two cuts (or, the first of them, from the start of the line),
and the mark at the later one. A settled cut adds one piece. So that there are few pieces and their size is that
of the state, a new one swallows those before it that are not at least twice as large, as the vault's tables do: a few
operations per changed key in all, and at most about twice the state on the disk. What was swallowed is removed after
the new piece is durable; if that does not happen, the new piece covers it and it is left aside.

Every writer has a *rank*: in which life of the run, and in which incarnation, it writes; the files' names tell it. A
writer begins with a whole snapshot and looks only after pieces of its own; the pieces of lower rank go when it is
there. Who is about to resume the slice *claims* it first. A writer looks for claims after each piece, before anybody
hears of it: one that has been superseded then says so instead. So a zombie, here or on another host that shares the
folder, cannot settle a cut after its successor has read the shelf.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dadstorm.core.vault import Delta, fold
from dadstorm.durable import files
from dadstorm.durable.files import Damaged
from dadstorm.sinks.disk import sync_folder
from dadstorm.wire.bodies import decode_table, encode_table
from dadstorm.wire.codec import Rubbish

_PIECE = re.compile(r"(\d+)\.(\d+)-(whole|\d+)-(\d+)\.state")
_CLAIM = re.compile(r"(\d+)\.(\d+)\.claim")
SMALL_BYTES = 1 << 14
"""Pieces smaller than this are always swallowed: to write them again costs no more than the sync."""
READ_AGAIN = 5
"""How often to look again when a file is gone that was there: its writer, not yet dead, has swallowed it."""


class Rank(NamedTuple):
    life: int
    incarnation: int


class Piece(NamedTuple):
    rank: Rank
    after: int | None
    """None: from the start of the line."""
    cut: int
    name: str


class Header(msgspec.Struct, frozen=True):
    """What a piece says about itself."""

    run: str
    operator: str
    slice: int
    life: int
    incarnation: int
    after: int | None
    cut: int
    mark: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What a shelf holds: a settled snapshot, whole, and who wrote it."""

    rank: Rank
    delta: Delta


class Shelf:
    def __init__(self, place: str, run: str, operator: str, slice_index: int, rank: Rank) -> None:
        self.folder = os.path.join(place, operator, str(slice_index))
        self._run = run
        self._operator = operator
        self._slice = slice_index
        self._rank = rank
        self._pieces: list[tuple[Piece, int]] = []
        """Our own, oldest first, with their sizes."""

    def claim(self) -> None:
        """From now on nobody of lower rank settles anything here."""
        files.make_folder(self.folder)
        path = os.path.join(self.folder, f"{self._rank.life}.{self._rank.incarnation}.claim")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        sync_folder(self.folder)

    def superseded_by(self) -> Rank | None:
        """The highest rank that has claimed or written anything here, if it is above ours."""
        matches = [_CLAIM.fullmatch(name) or _PIECE.fullmatch(name) for name in self._names()]
        highest = max((Rank(int(m[1]), int(m[2])) for m in matches if m), default=self._rank)
        return highest if highest > self._rank else None

    # -- reading -------------------------------------------------------------------------------------------------

    def load(self) -> Settled | None:
        """The newest settled snapshot, or None if nothing was ever settled. Damaged if it is not what was written."""
        for _ in range(READ_AGAIN):
            with contextlib.suppress(FileNotFoundError):
                return self._load()
        raise Damaged(self.folder, "its files go while they are read")

    def _load(self) -> Settled | None:
        chain = self._chain(self._found())
        if not chain:
            return None
        read = [self._read(piece) for piece in chain]
        tables = [table for _, table in read if table is not None]
        newest = read[-1][0]
        table = fold(tables, forget=True) if tables else None
        return Settled(chain[-1].rank, Delta(newest.cut, table, newest.mark))

    def _found(self) -> list[Piece]:
        return [
            Piece(Rank(int(m[1]), int(m[2])), None if m[3] == "whole" else int(m[3]), int(m[4]), m[0])
            for m in map(_PIECE.fullmatch, sorted(self._names()))
            if m
        ]

    def _names(self) -> list[str]:
        return os.listdir(self.folder) if os.path.isdir(self.folder) else []

    def _chain(self, found: Sequence[Piece]) -> list[Piece]:
        """The pieces of the highest rank that lead from the start of the line to its newest cut, as few as possible."""
        rank = max((piece.rank for piece in found), default=None)
        ours = [piece for piece in found if piece.rank == rank]
        chain: list[Piece] = []
        cut: int | None = max((piece.cut for piece in ours), default=None)
        while cut is not None:
            ending = [piece for piece in ours if piece.cut == cut and (piece.after is None or piece.after < cut)]
            if not ending:
                raise Damaged(self.folder, f"the file with the state at {cut} is missing")
            piece = min(ending, key=lambda piece: -1 if piece.after is None else piece.after)
            chain.insert(0, piece)
            cut = piece.after
        return chain

    def _read(self, piece: Piece) -> tuple[Header, pa.RecordBatch | None]:
        path = os.path.join(self.folder, piece.name)
        header_bytes, body = files.read(path)
        try:
            header = msgspec.msgpack.decode(header_bytes, type=Header)
            table = decode_table(body) if len(body) else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Rubbish) as error:
            raise Damaged(path, str(error)) from None
        expected = self._header(piece, header.mark)
        if header != expected:
            raise Damaged(path, "it is another file, under this one's name")
        return header, table

    def _header(self, piece: Piece, mark: dict[str, Any] | None) -> Header:
        return Header(self._run, self._operator, self._slice, *piece.rank, piece.after, piece.cut, mark)

    # -- writing -------------------------------------------------------------------------------------------------

    def put(self, deltas: Sequence[Delta], *, whole: bool) -> None:
        """Settle these, one after the other, as one piece; ``whole``: the first is a state, not a change of one."""
        files.make_folder(self.folder)
        over = [piece.name for piece, _ in self._pieces] if whole else []
        if whole:
            self._pieces = []
        tables = [delta.table for delta in deltas if delta.table is not None and delta.table.num_rows]
        size = sum(table.nbytes for table in tables)
        while self._pieces and self._pieces[-1][1] < 2 * size + SMALL_BYTES:
            piece, weight = self._pieces.pop()
            before = self._read(piece)[1]
            tables[:0] = [] if before is None else [before]
            size += weight
            over.append(piece.name)
        after = self._pieces[-1][0].cut if self._pieces else None
        cut = deltas[-1].cut
        start = "whole" if after is None else str(after)
        name = f"{self._rank.life}.{self._rank.incarnation}-{start}-{cut}.state"
        written = Piece(self._rank, after, cut, name)
        table = fold(tables, forget=after is None) if tables else None
        mark = None if deltas[-1].mark is None else dict(deltas[-1].mark)
        body = b"" if table is None else memoryview(encode_table(table))
        weight = files.write(
            os.path.join(self.folder, name), msgspec.msgpack.encode(self._header(written, mark)), body
        )
        self._pieces.append((written, weight))
        self._remove([old for old in over if old != name])
        if whole:
            self._remove_lower()

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.folder, name))

    def _remove_lower(self) -> None:
        """What those before us have left."""
        for name in os.listdir(self.folder):
            match = _CLAIM.fullmatch(name) or _PIECE.fullmatch(name.removesuffix(files.SCRATCH))
            if match and Rank(int(match[1]), int(match[2])) < self._rank:
                self._remove([name])

