"""The three workloads as a Python programmer writes them first: one process, one loop, nothing survives a crash.

    python loop_program.py W1|W2|W3 DATA OUTPUT
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_functions import remade

SITE = "www.tecnico.ulisboa.pt"


def count_words(data: Path, output: Path) -> None:
    counts: dict[str, int] = {}
    with open(data / "lines.txt") as lines, open(output, "w") as out:
        for line in lines:
            for word in line.split():
                count = counts[word] = counts.get(word, 0) + 1
                out.write(f"{word},{count}\n")


def count_visitors(data: Path, output: Path) -> None:
    seen: set[str] = set()
    counts: dict[str, int] = {}
    with open(data / "visits.csv") as lines, open(output, "w") as out:
        for line in lines:
            user, site, url, _ = line.split(",")
            if site == SITE and user not in seen:
                seen.add(user)
                count = counts[url] = counts.get(url, 0) + 1
                out.write(f"{url},{count}\n")


def merge(data: Path, output: Path) -> None:
    with open(output, "w") as out:
        for number, text in heapq.merge(stream(data / "left.csv"), stream(data / "right.csv")):
            out.write(f"{number},{remade(text)}\n")


def stream(path: Path) -> Iterator[tuple[int, str]]:
    with open(path) as lines:
        for line in lines:
            number, _, text = line.rstrip("\n").partition(",")
            yield int(number), text


WORKLOADS = {"W1": count_words, "W2": count_visitors, "W3": merge}

if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
