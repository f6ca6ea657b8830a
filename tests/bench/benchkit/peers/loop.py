"""The plain Python loop: the floor. Whoever is slower has to have a good reason."""

from __future__ import annotations

from benchkit.peers import Peer, program

PEER = Peer(
    name="loop",
    promise="everything lost",
    command=lambda python, workload, data, out: [python, program("loop"), workload, str(data), str(out / "out.csv")],
)
