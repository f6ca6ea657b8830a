"""The data of the three workloads: made from a seed, the same on every machine, made once and kept.

Real streams are skewed, so words follow Zipf's law: the most frequent of 50,000 is every eleventh word, and half of
them hardly ever come. The visits have many users and few pages, of which one site in particular is of interest. The
last workload's two files are one stream of consecutive ids, torn apart by the toss of a coin: to merge them by id is to
put it together again. What the plain loop makes of each lies beside it, in ``expected.csv``.

Files appear under their names once they are complete, in a folder whose name says what is in it, so a benchmark
that was interrupted leaves nothing that the next one would take for good.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchkit.peers.programs import loop_program

VERSION = 1
"""To be raised when anything below makes other bytes."""
SEED = 31
VOCABULARY = 50_000
WORDS_IN_A_LINE = 8
USERS = 1_000_000
PAGES = 1000
SHARE_OF_SITE = 0.3
OTHER_SITES = 9
CHUNK = 100_000
SIZES = {"W1": 500_000, "W2": 3_000_000, "W3": 2_000_000}
"""Records of each workload at scale 1: lines, visits, tuples of both streams together."""


def cache() -> Path:
    """Where data and the peers' environments are kept: not in the clone."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dadstorm-bench"


def size_of(workload: str, scale: float) -> int:
    return max(10, round(SIZES[workload] * scale))


def prepared(folder: Path, workload: str, records: int) -> Path:
    """The folder with the workload's files; makes them if they are not there."""
    place = folder / f"{workload}-{records}-v{VERSION}"
    if place.is_dir():
        return place
    print(f"making the data of {workload}: {records:,} records in {place}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        MAKERS[workload](unfinished, records)
        loop_program.WORKLOADS[workload](unfinished, unfinished / "expected.csv")
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return place


def vocabulary(chance: np.random.Generator) -> np.ndarray:
    """Distinct words of 3 to 10 letters, the most frequent first."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(letters[chance.integers(0, 26, chance.integers(3, 11))])] = None
    return np.array(list(words), dtype=object)


def zipf(chance: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Numbers of words, each as frequent as one over its rank."""
    reach = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    return np.searchsorted(reach, chance.random(shape) * reach[-1], side="right")


def chunks(records: int) -> list[tuple[int, int]]:
    return [(first, min(CHUNK, records - first)) for first in range(0, records, CHUNK)]


def make_lines(folder: Path, records: int) -> None:
    """W1, ``lines.txt``: words with a blank between."""
    chance = np.random.default_rng(SEED)
    words = vocabulary(chance)
    with open(folder / "lines.txt", "w", encoding="ascii") as file:
        for _, count in chunks(records):
            for line in words[zipf(chance, (count, WORDS_IN_A_LINE))]:
                file.write(" ".join(line) + "\n")


def make_visits(folder: Path, records: int) -> None:
    """W2, ``visits.csv``: user, site, url, ts."""
    chance = np.random.default_rng(SEED + 1)
    sites = np.array([loop_program.SITE, *(f"www.site{number}.pt" for number in range(OTHER_SITES))], dtype=object)
    with open(folder / "visits.csv", "w", encoding="ascii") as file:
        for first, count in chunks(records):
            users = chance.integers(0, USERS, count).tolist()
            kept = chance.random(count) < SHARE_OF_SITE
            where = sites[np.where(kept, 0, chance.integers(1, OTHER_SITES + 1, count))]
            pages = chance.integers(0, PAGES, count).tolist()
            for ts, (user, site, page) in enumerate(zip(users, where, pages, strict=True), first):
                file.write(f"user{user},{site},/p/{page},{ts}\n")


def make_streams(folder: Path, records: int) -> None:
    """W3, ``left.csv`` and ``right.csv``: id, three words. Each file's ids ascend; every id is in one of them."""
    chance = np.random.default_rng(SEED + 2)
    words = vocabulary(chance)
    with (
        open(folder / "left.csv", "w", encoding="ascii") as left,
        open(folder / "right.csv", "w", encoding="ascii") as right,
    ):
        files = (left, right)
        for first, count in chunks(records):
            sides = chance.integers(0, 2, count).tolist()
            texts = words[zipf(chance, (count, 3))]
            for number, (side, text) in enumerate(zip(sides, texts, strict=True), first):
                files[side].write(f"{number},{' '.join(text)}\n")


MAKERS: dict[str, Callable[[Path, int], None]] = {"W1": make_lines, "W2": make_visits, "W3": make_streams}
