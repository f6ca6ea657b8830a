"""The three workloads, as our topologies.

Every operator of W1 and W2 has one replica. Two cores need no more: the processes of a run are a pipeline already, none
of which does half of the work, and a replica more costs CPU for routing, merging and flush tuples that nobody has to
spare. In W3 the function is most of the work, and has two.

W3 merges two streams by an id that they bring along: it is their seq.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchkit.checks import Kind
from benchkit.measure import Cost, measured
from benchkit.peers.programs.loop_program import SITE

ROOT = Path(__file__).resolve().parents[3]
FUNCTIONS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    topology: str
    output: str
    kind: Kind
    """What its output is, for the check."""


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "W1",
            "lines of 8 words, running count of each word",
            """
name: w1
sources:
  lines: {{text: "{data}/lines.txt"}}
operators:
  words:  {{input: lines, split: {{field: line, as: word}}}}
  counts: {{input: words, count: word}}
""",
            "counts.csv",
            "counts",
        ),
        Workload(
            "W2",
            "visits, filter site → uniq user → running count by url",
            """
name: w2
sources:
  visits: {{csv: "{data}/visits.csv", fields: [user, site, url, ts:int]}}
operators:
  kept:   {{input: visits, filter: site = "{site}"}}
  users:  {{input: kept, uniq: user}}
  counts: {{input: users, count: url}}
""",
            "counts.csv",
            "first counts",
        ),
        Workload(
            "W3",
            "tuples of two streams, merged, a Python function of each",
            """
name: w3
sources:
  left:  {{csv: "{data}/left.csv", fields: [id:int, text], seq: id}}
  right: {{csv: "{data}/right.csv", fields: [id:int, text], seq: id}}
operators:
  made: {{input: [left, right], custom: bench_functions.tagged, fields: [id:int, text], max_outputs: 1, replicas: 2}}
""",
            "made.csv",
            "lines",
        ),
    )
}


def topology(workload: Workload, data: Path) -> str:
    return workload.topology.format(data=data, site=SITE)


def dadstorm(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "dadstorm", *map(str, arguments)]


def run_topology(
    text: str,
    folder: Path,
    *,
    output: str | None = None,
    within_s: float = 900.0,
) -> Cost:
    """Run a topology as a user would, quietly; its results go as CSV (unless it has sinks of its own) to
    ``folder/out``, its logs to ``folder/runs``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "topology.yaml"
    path.write_text(text)
    sink = () if "\nsinks:" in text else ("--sink", "csv")
    command = dadstorm("run", path, *sink, "--out", folder / "out", "--runs", folder / "runs", "--lib", FUNCTIONS,
                       "--quiet")  # fmt: skip
    return measured(
        command,
        cwd=folder,
        # Compiled once, as for a user, whatever the surroundings say.
        environment={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""},
        output=None if output is None else folder / "out" / output,
        within_s=within_s,
    )
