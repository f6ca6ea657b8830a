"""Where everybody in a cluster is, in words: the end of a story that went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dadstorm.simulator.cluster import Cluster


def standing(cluster: Cluster) -> str:
    """A line for each replica."""
    lines = []
    for peer in sorted(cluster.incarnations):
        process = cluster.processes.get(peer)
        if process is None:
            lines.append(f"{cluster.name(peer)} is dead")
            continue
        progress = process.machine.progress
        frozen = ", frozen" if process.frozen else ""
        waits = "" if process.machine.resumed else ", not resumed"
        idle = "" if process.started else ", not started"
        lines.append(
            f"{cluster.name(peer)} incarnation {process.machine.incarnation}: done {progress.frontier}, "
            f"safe {progress.safe}, queued {progress.queued}, inbox {len(process.inbox)}{frozen}{waits}{idle}"
        )
    return "\n  ".join(["", *lines])
