"""Spark Structured Streaming, local, two cores, with a checkpoint of every micro-batch.

It needs its input in pieces: one file of each source is a micro-batch. Eight of them; more would only cost it. Counts
are written once for each key and micro-batch, so it writes far less on W1.
"""

from __future__ import annotations

from benchkit.peers import Peer, program

PEER = Peer(
    name="spark",
    promise="restarted by hand; a checkpoint for each of 8 micro-batches",
    packages=("pyspark==4.3.*", "pyarrow>=19", "pandas", "numpy"),
    before=lambda python, workload, data, out: [python, program("pieces"), str(data), str(out / "pieces")],
    command=lambda python, workload, data, out: [python, program("spark"), workload, str(out)],
    outputs="batches/*/part-*.txt",
)
