"""What an operator reads: other operators, and files, found as their authors would have found them.

Paths start in the configuration's folder. The files come from Windows, where case does not matter and backslashes
separate folders, and from other people's folders; so when the path itself leads nowhere, the one file that can be
meant is taken, with a warning: the same name in another case, the same name in the configuration's folder, the same
name with another ending. With several candidates, or none, it is a mistake.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from dadstorm.legacy.clauses import OldOperator
from dadstorm.legacy.statements import Piece
from dadstorm.topology.report import Place, Report, nearest

NO_DATA = (".py", ".pyc", ".dll", ".config", ".conf", ".cfg", ".yaml", ".yml", ".script", ".md", ".cs", ".exe")
"""Endings of files that hold no tuples: never taken for a data file of the same name."""

_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


@dataclass(frozen=True)
class Reads:
    """An operator's inputs in the order of its file: names of operators, and None where its files come in."""

    inputs: tuple[str | None, ...]
    files: tuple[str, ...]
    """As a topology in the same folder would write them."""
    place: Place


class Inputs:
    """Finds the inputs of one configuration's operators."""

    def __init__(self, folder: str, operators: list[OldOperator], report: Report) -> None:
        self._folder = folder
        self._operators = list(dict.fromkeys(operator.name for operator in operators))
        self._report = report

    def of(self, operator: OldOperator) -> Reads | None:
        """What an operator reads; None after a mistake."""
        what = f'operator "{operator.name}"'
        inputs: list[str | None] = []
        files: list[str] = []
        right = True
        for piece in self._separated(operator, what):
            name = self._operator(piece, what)
            if name is None:
                path = self._file(piece, what)
                right = right and path is not None
                again = path in files
                if path is not None and not again:
                    files.append(path)
                if None not in inputs:
                    inputs.append(None)
            else:
                again = name in inputs
                if not again:
                    inputs.append(name)
            if again:
                self._report.warn(piece.place, f"{what}: input_ops names {piece.text} twice; it is read once")
        return Reads(tuple(inputs), tuple(files), operator.input_place) if right else None

    def _separated(self, operator: OldOperator, what: str) -> list[Piece]:
        """The sources one by one, also where blanks separate them and not commas."""
        pieces: list[Piece] = []
        for piece in operator.sources:
            words = [Piece(word[0], piece.place) for word in re.finditer(r"\S+", piece.text)]
            known = [word for word in words if word.text in self._operators or self._exists(word.text)]
            if len(words) > 1 and len(known) == len(words) and not self._exists(piece.text):
                self._report.warn(piece.place, f'{what}: input_ops "{piece.text}" is taken as {len(words)} sources')
                pieces += words
            else:
                pieces.append(piece)
        return pieces

    def _operator(self, piece: Piece, what: str) -> str | None:
        if piece.text in self._operators:
            return piece.text
        same = [name for name in self._operators if name.lower() == piece.text.lower()]
        if same and not self._exists(piece.text):
            self._report.warn(piece.place, f'{what}: input_ops "{piece.text}" is taken as the operator {same[0]}')
            return same[0]
        return None

    def _exists(self, path: str) -> bool:
        return os.path.isfile(os.path.join(self._folder, path))

    def _file(self, piece: Piece, what: str) -> str | None:
        """The path of a file as it is on this machine; None after a mistake."""
        text = piece.text
        if self._exists(text):
            return os.path.normpath(text)
        path = os.path.normpath(text.replace("\\", "/"))
        if _DRIVE.match(text):
            path = os.path.basename(path)
        elif self._exists(path):
            return path
        candidates = self._candidates(path)
        if len(candidates) == 1:
            self._report.warn(piece.place, f'{what}: there is no file "{text}"; {candidates[0]} is read in its place')
            return candidates[0]
        if len(candidates) > 1:
            options = " or ".join(candidates)
            self._report.mistake(piece.place, f'{what}: there is no file "{text}"; write {options}')
            return None
        if os.path.isdir(os.path.join(self._folder, path)):
            self._report.mistake(piece.place, f'{what}: "{text}" is a folder; expected an operator or a file')
            return None
        hint = nearest(text, [*self._operators, *self._data_files("")]) or "; correct the name, or put the file there"
        looked = f"no operator and no file of this name (looked for {os.path.join(self._folder, path)})"
        self._report.mistake(piece.place, f'{what}: input_ops: found "{text}": {looked}{hint}')
        return None

    def _candidates(self, path: str) -> list[str]:
        """The files that can be meant: the first rule that finds any decides."""
        folder, name = os.path.split(path)
        if os.path.isabs(path) or not os.path.isdir(os.path.join(self._folder, folder)):
            folder = ""
            if self._exists(name):
                return [name]
        data = self._data_files(folder)
        stem, ending = os.path.splitext(name.lower())
        same = [file for file in data if file.lower() == name.lower()]
        like = [file for file in data if ending and os.path.splitext(file.lower())[0] == stem]
        return [os.path.normpath(os.path.join(folder, file)) for file in same or like]

    def _data_files(self, folder: str) -> list[str]:
        try:
            names = sorted(os.listdir(os.path.join(self._folder, folder)))
        except OSError:
            return []
        data = [name for name in names if not name.lower().endswith(NO_DATA)]
        return [name for name in data if self._exists(os.path.join(folder, name))]
