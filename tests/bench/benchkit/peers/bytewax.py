"""Bytewax: dataflows in Python on a Rust engine. One worker, which is its fastest here, and a snapshot every second.

Its ``merge`` takes what comes first, so W3 comes out in another order.
"""

from __future__ import annotations

from benchkit.peers import Peer, program

SNAPSHOT_S = "1"

PEER = Peer(
    name="bytewax",
    promise="restarted by hand; snapshots every second",
    packages=("bytewax==0.21.*",),
    before=lambda python, workload, data, out: [python, "-m", "bytewax.recovery", str(out), "1"],
    command=lambda python, workload, data, out: [
        python, "-m", "bytewax.run", f"{program('bytewax')}:flow('{workload}', '{data}', '{out / 'out.csv'}')",
        "-r", str(out), "-s", SNAPSHOT_S, "-b", "0",
    ],
)  # fmt: skip
