"""W3 as a Bytewax dataflow in the order of the ids: one source reads both files, and snapshots where it stands in each.

It knows how far it has come by the lengths of lines: to ask the files would cost more than the rest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bytewax.operators as op
from bench_functions import remade
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition

BATCH = 1000
"""As many lines at once as its own source of files reads."""


class Both(StatefulSourcePartition):
    def __init__(self, paths, offsets):
        self._files = [os.fdopen(os.open(path, os.O_RDONLY), "rb") for path in paths]
        self._offsets = list(offsets)
        for file, offset in zip(self._files, self._offsets, strict=True):
            file.seek(offset)
        self._ahead = [self._line(file) for file in self._files]

    def _line(self, file):
        line = file.readline()
        if not line:
            return None
        number, _, text = line.rstrip(b"\n").decode().partition(",")
        return int(number), text, len(line)

    def next_batch(self):
        (left, right), (left_file, right_file) = self._ahead, self._files
        left_offset, right_offset = self._offsets
        batch = []
        while len(batch) < BATCH and (left or right):
            if right is None or (left is not None and left[0] < right[0]):
                batch.append(left)
                left_offset += left[2]
                left = self._line(left_file)
            else:
                batch.append(right)
                right_offset += right[2]
                right = self._line(right_file)
        self._ahead, self._offsets = [left, right], [left_offset, right_offset]
        if not batch:
            raise StopIteration
        return batch

    def snapshot(self):
        return tuple(self._offsets)

    def close(self):
        for file in self._files:
            file.close()


class Merged(FixedPartitionedSource):
    def __init__(self, paths):
        self._paths = paths

    def list_parts(self):
        return ["both"]

    def build_part(self, step_id, for_part, resume_state):
        return Both(self._paths, resume_state or (0, 0))


def made(item):
    number, text, _ = item
    return str(number), f"{number},{remade(text)}"


def flow(workload, data, output):
    dataflow = Dataflow(workload)
    both = op.input("both", dataflow, Merged([Path(data) / "left.csv", Path(data) / "right.csv"]))
    op.output("out", op.map("made", both, made), FileSink(Path(output)))
    return dataflow
