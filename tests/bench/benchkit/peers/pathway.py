"""Pathway: tables that follow their inputs, in Python on a Rust engine. One process, the whole input as one batch.

That is its fastest, and leaves nothing after a crash. With persistence it reads in streaming mode, never ends by
itself, and takes longer.
"""

from __future__ import annotations

import csv
import io

from benchkit.peers import Peer, program


def reading(found: bytes) -> bytes:
    """Without the names of the columns, and without the last two, which are its own: time, and whether a row came or
    went. A batch that is the only one takes nothing back."""
    rows = list(csv.reader(io.StringIO(found.decode())))[1:]
    assert all(row[-1] == "1" for row in rows), "pathway has taken rows back"
    return "".join(",".join(row[:-2]) + "\n" for row in rows).encode()


PEER = Peer(
    name="pathway",
    promise="everything is lost: without persistence",
    packages=("pathway==0.33.*",),
    command=lambda python, workload, data, out: [
        python, program("pathway"), workload, str(data), str(out / "out.csv"),
    ],
    reading=reading,
    environment={"PATHWAY_DISABLE_TELEMETRY": "1"},
)  # fmt: skip
