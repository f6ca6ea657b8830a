"""The workloads as Pathway tables.

    python pathway_program.py W1|W2|W3 DATA OUTPUT
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pathway as pw
from bench_functions import remade

SITE = "www.tecnico.ulisboa.pt"


def lines(path):
    return pw.io.plaintext.read(str(path), mode="static")


def counted(table):
    """How often each key comes."""
    return table.groupby(pw.this.key).reduce(pw.this.key, count=pw.reducers.count())


def split(line):
    return tuple(line.split())


def count_words(data, output):
    words = lines(data / "lines.txt").select(key=pw.apply_with_type(split, tuple[str, ...], pw.this.data))
    words = words.flatten(pw.this.key)
    pw.io.csv.write(counted(words), output)


def parsed(line):
    user, site, url, ts = line.split(",")
    return user, site, url, int(ts)


def count_visitors(data, output):
    visits = lines(data / "visits.csv").select(
        visit=pw.apply_with_type(parsed, tuple[str, str, str, int], pw.this.data)
    )
    kept = visits.select(
        user=pw.this.visit[0], site=pw.this.visit[1], first=pw.make_tuple(pw.this.visit[3], pw.this.visit[2])
    ).filter(pw.this.site == SITE)
    users = kept.groupby(pw.this.user).reduce(first=pw.reducers.min(pw.this.first))
    pw.io.csv.write(counted(users.select(key=pw.this.first[1])), output)


def made(line):
    number, _, text = line.partition(",")
    return int(number), remade(text)


def merge(data, output):
    both = lines(data / "left.csv").concat_reindex(lines(data / "right.csv"))
    results = both.select(made=pw.apply_with_type(made, tuple[int, str], pw.this.data))
    results = results.select(id_=pw.this.made[0], text=pw.this.made[1])
    pw.io.csv.write(results, output, sort_by=[results.id_])


WORKLOADS = {"W1": count_words, "W2": count_visitors, "W3": merge}

if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
