"""Bytewax with a source that merges W3's two streams by id itself, which its own ``merge`` does not: W3 as it is asked
for, resumable like any of its sources."""

from __future__ import annotations

from dataclasses import replace

from benchkit.peers import bytewax, program

PEER = replace(
    bytewax.PEER,
    name="bytewax_merge",
    command=lambda python, workload, data, out: [
        argument.replace(program("bytewax"), program("bytewax_merge"))
        for argument in bytewax.PEER.command(python, workload, data, out)
    ],
    workloads=("W3",),
)
