"""Flink SQL through PyFlink, one slot, exactly-once checkpoints every second.

SQL is its fastest way from Python: W1 and W2 never leave the JVM, W3 calls the function in a Python worker. Its
output is a changelog (``+I[word, 1]``, ``-U[word, 1]``, ``+U[word, 2]``), of which the new values are taken for the
check.
"""

from __future__ import annotations

import re

from benchkit.peers import Peer, program

NEW = re.compile(rb"^\+[IU]\[(.*), (\d+)\]$", re.MULTILINE)


def new_values(text: bytes) -> bytes:
    if not text.startswith((b"+", b"-")):
        return text
    return b"".join(b"%s,%s\n" % found for found in NEW.findall(text))


PEER = Peer(
    name="flink",
    promise="restarts by itself if a worker dies; by hand if its JVM does",
    packages=("apache-flink==2.3.*",),
    command=lambda python, workload, data, out: [python, program("flink"), workload, str(data), str(out)],
    outputs="output/**/part-*",
    reading=new_values,
)
