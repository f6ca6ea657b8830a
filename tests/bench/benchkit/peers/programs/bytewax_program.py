"""The workloads as Bytewax dataflows, with its operators as its documentation uses them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bytewax.operators as op
from bench_functions import remade
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow

SITE = "www.tecnico.ulisboa.pt"


def one_more(count, _):
    count = (count or 0) + 1
    return count, count


def counted(stream):
    """A stream of (key, None) → lines with their running counts."""
    counts = op.stateful_map("count", stream, one_more)
    return op.map("line", counts, lambda pair: (pair[0], f"{pair[0]},{pair[1]}"))


def count_words(flow, data):
    lines = op.input("lines", flow, FileSource(data / "lines.txt"))
    return counted(op.flat_map("split", lines, lambda line: [(word, None) for word in line.split()]))


def first_of(seen, url):
    return True, None if seen else url


def count_visitors(flow, data):
    lines = op.input("lines", flow, FileSource(data / "visits.csv"))
    visits = op.map("parse", lines, lambda line: line.split(","))
    kept = op.filter("site", visits, lambda visit: visit[1] == SITE)
    users = op.map("by user", kept, lambda visit: (visit[0], visit[2]))
    first = op.stateful_map("uniq", users, first_of)
    return counted(op.filter_map("url", first, lambda pair: (pair[1], None) if pair[1] else None))


def made(line):
    number, _, text = line.partition(",")
    return number, f"{number},{remade(text)}"


def merge(flow, data):
    left = op.input("left", flow, FileSource(data / "left.csv"))
    right = op.input("right", flow, FileSource(data / "right.csv"))
    return op.map("made", op.merge("both", left, right), made)


WORKLOADS = {"W1": count_words, "W2": count_visitors, "W3": merge}


def flow(workload, data, output):
    dataflow = Dataflow(workload)
    op.output("out", WORKLOADS[workload](dataflow, Path(data)), FileSink(Path(output)))
    return dataflow
