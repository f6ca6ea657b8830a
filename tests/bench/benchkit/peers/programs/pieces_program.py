"""Cuts the files of a folder into eight pieces each, for systems whose unit of work is a file.

    python pieces_program.py DATA OUTPUT

Pieces of files that are merged (``left.csv``, ``right.csv``) hold the same ranges of ids. File times ascend, as such
systems go by them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PIECES = 8


def pieces_of(path: Path) -> list[list[str]]:
    lines = path.read_text().splitlines(keepends=True)
    if path.stem not in ("left", "right"):
        return [lines[number * len(lines) // PIECES : (number + 1) * len(lines) // PIECES] for number in range(PIECES)]
    last = max(int((path.parent / name).read_text().rsplit("\n", 2)[-2].split(",")[0]) for name in STREAMS)
    found: list[list[str]] = [[] for _ in range(PIECES)]
    for line in lines:
        found[int(line.split(",", 1)[0]) * PIECES // (last + 1)].append(line)
    return found


STREAMS = ("left.csv", "right.csv")


def main(data: Path, output: Path) -> None:
    for path in sorted(data.iterdir()):
        if path.stem == "expected":
            continue
        folder = output / path.stem
        folder.mkdir(parents=True)
        for number, lines in enumerate(pieces_of(path)):
            piece = folder / f"piece-{number}{path.suffix}"
            piece.write_text("".join(lines))
            os.utime(piece, (1_700_000_000 + number, 1_700_000_000 + number))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
