"""Status: what every replica is doing, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from dadstorm.core.line import END
from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from dadstorm.wire.control import Stats
from puppetmaster.replicas import Replica

HEADER = (
    "operator", "replica", "host", "pid", "state", "incarnation", "slices", "frontier", "in/s", "out/s", "queued",
    "snapshot", "suspected by",
)  # fmt: skip
_LEFT = {"operator", "host", "state", "suspected by"}


@dataclass(frozen=True, slots=True)
class Row:
    """One replica at a glance."""

    operator: str
    replica: int
    host: str
    pid: int | None
    state: str
    """waiting (for its Start), running, frozen, finished, recovering, dead, spread (its peers have its slices), standby
    (it has none)."""
    incarnation: int
    slices: int
    frontier: int | None
    """All tuples below are processed; None: all there are."""
    rows_in_per_s: float
    rows_out_per_s: float
    rows_in: int
    rows_out: int
    queued: int
    """Rows received and not processed."""
    snapshot_age_ms: int | None
    suspected_by: tuple[int, ...]
    """Replicas of its operator that have not heard of it for too long."""


def rows(
    plan: Plan, replicas: Mapping[Peer, Replica], operator: str | None, answers: Mapping[Peer, Stats]
) -> list[Row]:
    """What is known of the replicas of one operator or all; ``answers`` are newer than what they last reported."""
    found = []
    for peer in sorted(replicas):
        if operator in (None, plan.operators[peer.operator].name):
            stats = {other: answers.get(other, replicas[other].stats) for other in replicas if other[0] == peer[0]}
            found.append(_row(plan, peer, replicas[peer], stats))
    return found


def _row(plan: Plan, peer: Peer, replica: Replica, ring: Mapping[Peer, Stats | None]) -> Row:
    stats = ring[peer]
    per_second = replica.rates.per_second if replica.alive else (0.0, 0.0)
    suspecting = [other.replica for other, news in ring.items() if news is not None and peer.replica in news.suspects]
    return Row(
        operator=plan.operators[peer.operator].name,
        replica=peer.replica,
        host=replica.host or plan.operators[peer.operator].replicas[peer.replica].host,
        pid=replica.pid if replica.alive else None,
        state=_state(replica, stats),
        incarnation=replica.incarnation,
        slices=stats.slices if stats else 0,
        frontier=None if stats and stats.frontier == END else stats.frontier if stats else 0,
        rows_in_per_s=round(per_second[0], 1),
        rows_out_per_s=round(per_second[1], 1),
        rows_in=stats.rows_in if stats else 0,
        rows_out=stats.rows_out if stats else 0,
        queued=stats.queued if stats else 0,
        snapshot_age_ms=stats.snapshot_age_ms if stats else None,
        suspected_by=tuple(sorted(suspecting)),
    )


def _state(replica: Replica, stats: Stats | None) -> str:
    if replica.recovering:
        return "recovering"
    if not replica.alive:
        return "spread" if replica.spread else "dead"
    if stats is None:
        return "waiting"
    return "standby" if stats.state == "finished" and not stats.slices else stats.state


def table(found: Iterable[Row]) -> str:
    """The rows as text, numbers to the right."""
    lines = [HEADER, *(_cells(row) for row in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for name, cell, width in zip(HEADER, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.operator,
        str(row.replica),
        row.host,
        "-" if row.pid is None else str(row.pid),
        row.state,
        str(row.incarnation),
        str(row.slices),
        "-" if not row.slices else "end" if row.frontier is None else f"{row.frontier:,}",
        f"{row.rows_in_per_s:,.0f}",
        f"{row.rows_out_per_s:,.0f}",
        f"{row.queued:,}",
        "-" if row.snapshot_age_ms is None else f"{row.snapshot_age_ms / 1000:.1f} s",
        ", ".join(map(str, row.suspected_by)) or "-",
    )


def to_json(found: Iterable[Row]) -> str:
    """The rows as a JSON list on one line."""
    return json.dumps([asdict(row) for row in found])
