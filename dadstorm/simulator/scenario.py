"""A scenario: a small topology, its data and a storm of faults, all from one number; and whether the run is right.

First comes a phase of faults, then everything heals, and then the run must finish (liveness) with the right output
(safety). In some runs the user stops the sources early, in the middle of it all. What is right depends on the
semantics:

- exactly-once: what the oracle says of the records that were read, tuple for tuple, and every incarnation of a sink
  writes the same at each place (but for what a stop takes back);
- at-least-once: nothing that the oracle says is missing, and nothing counts less: state is not lost either;
- at-most-once: no tuple twice, all in order, and none that there could not be; where there is no state to lose, each as
  the oracle says.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from dadstorm.chains import chained
from dadstorm.core.kernel import Kernel
from dadstorm.core.rows import Rows
from dadstorm.operators import make_kernel
from dadstorm.operators.count import CountBy
from dadstorm.plan import Operator, Plan
from dadstorm.simulator import oracle
from dadstorm.simulator.cluster import Cluster, StateLost, Stuck, Wrong
from dadstorm.simulator.disk import Row
from dadstorm.simulator.faults import SUSPECT_AFTER_MS, Storm
from dadstorm.simulator.process import NEVER
from dadstorm.simulator.standing import standing
from dadstorm.simulator.topologies import STATEFUL, alike, draw_plan, draw_records

PATIENCE_MS = 60_000.0
"""When everything works, a run of these takes a few seconds of simulated time at most."""

CHAINED = 8
"""Of so many seeds one has its operators chained, where they can be."""
AUDITED = 4
"""Of so many seeds one runs under audit, if its semantics has one, so that both ways are tried."""
STOPPED = 8
"""Of so many seeds one is stopped by the user, if its semantics is exactly-once, and without an audit (which may have
digests of what nobody got by the end)."""
MASTERED = 5
"""Of so many seeds one has a PuppetMaster; in the others everybody begins by itself."""
FOLDED = 3
"""Of so many seeds one does not number the keys of COUNT: its tables are then folded, as those of keyed CUSTOM are."""
SPANS = (1, 4, 16, 64)


@dataclass(slots=True)
class Outcome:
    """How a scenario went."""

    seed: int
    problem: str | None
    """What went wrong; None: nothing did."""
    events: int
    milliseconds: float
    recoveries: int
    repeats: int
    """How many rows were written that had been written before."""
    about: str
    history: list[str] = field(repr=False)
    standing: str = field(repr=False)

    def report(self) -> str:
        """All there is to say about it."""
        lines = [
            f"seed {self.seed}: {self.problem or 'as it should be'}",
            self.about,
            *self.history,
            f"in the end, after {self.events} events and {self.milliseconds:.0f} ms of simulated time:{self.standing}",
            f"again: dadstorm simulate --seeds {self.seed}..{self.seed} --verbose",
        ]
        return "\n".join(lines)


class Scenario:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = random.Random(seed)
        self.plan = draw_plan(chance, SUSPECT_AFTER_MS)
        self.records = draw_records(chance, self.plan)
        if self.plan.semantics == "exactly-once" and seed % AUDITED == 0:
            self.plan = msgspec.structs.replace(self.plan, audit=True, span=SPANS[seed // AUDITED % len(SPANS)])
        chains = seed % CHAINED == CHAINED - 1
        self.plan = alike(self.plan) if chains else msgspec.structs.replace(self.plan, chain=False)
        slices = sum(operator.slices for operator in self.plan.operators if operator.kind == "source")
        records = sum(len(rows) for rows in self.records.values()) // slices
        mastered = seed % MASTERED == MASTERED - 2
        self.storm = Storm(chance, records, random.Random(f"aside {seed}"), mastered=mastered)
        self.stop_ms = NEVER
        if self.plan.semantics == "exactly-once" and seed // CHAINED % STOPPED == 0:
            self.plan = msgspec.structs.replace(self.plan, audit=False)
            self.stop_ms = self.storm.heal_ms * chance.uniform(0.0, 1.1)
        self.expected = oracle.expected(self.plan, self.records)

    def _kernel(self, operator: Operator, plan: Plan) -> Kernel:
        kernel = make_kernel(operator, plan)
        if isinstance(kernel, CountBy):
            kernel.numbered = self.seed % FOLDED > 0
        return kernel

    def run(self) -> Outcome:
        plan = chained(self.plan) if self.plan.chain else self.plan
        cluster = Cluster(
            plan, self.records, lambda one: self._kernel(one, plan), self.seed, faults=self.storm, stop_ms=self.stop_ms
        )
        problem: str | None
        try:
            written = cluster.run(until_ms=PATIENCE_MS)
            self.expected = oracle.expected(self.plan, cluster.stop.read(self.plan, self.records))
            problem = self._problem(written) or self._audit_problem(cluster)
        except (Stuck, Wrong, StateLost) as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception:
            problem = traceback.format_exc()
        return Outcome(
            self.seed,
            problem,
            cluster.agenda.events,
            cluster.agenda.now_ms,
            cluster.recoveries + sum(cluster.incarnations.values()),
            sum(len(rows) - len({row[:2] for row in rows}) for rows in cluster.written().values()),
            self.about(),
            cluster.history,
            standing(cluster),
        )

    def about(self) -> str:
        plan = self.plan
        promise = f"{plan.semantics}, {'durable, ' if plan.durable else ''}{plan.recovery}"
        lines = [f"{promise}, window {plan.window_rows} ({plan.window_bytes} bytes), backups {plan.backups or 'all'}"]
        for operator in self.plan.operators:
            inputs = " and ".join(link.operator for link in operator.inputs)
            records = f", {len(self.records[operator.name])} records" if operator.kind == "source" else ""
            lines.append(
                f"  {operator.name}: {operator.kind}{' of ' if inputs else ''}{inputs}, {operator.slices} slices on "
                f"{len(operator.replicas)} replicas, {operator.routing.policy}{records}"
            )
        stopped = f", stopped at {self.stop_ms:.0f} ms" if self.stop_ms < NEVER else ""
        return "\n".join([*lines, f"  {self.storm.describe()}{stopped}"])

    def _problem(self, written: Mapping[str, list[Row]]) -> str | None:
        for name, wanted in self.expected.items():
            problem = self._sink_problem(name, written[name], wanted)
            if problem:
                return f"sink {name}: {problem}"
        return None

    def _audit_problem(self, cluster: Cluster) -> str | None:
        """Under audit every digest is there in the end, every incarnation has recorded the same ones, and those of
        sinks count the tuples that they wrote."""
        if cluster.ledger.conflicts:
            return f"two incarnations recorded different digests: {cluster.ledger.conflicts[0]}"
        for operator in self.plan.operators if self.plan.audit else ():
            if cluster.ledger.reached(operator.name, operator.slices) is not None:
                return f"{operator.name}: digests are missing"
            rows = sum(total.rows for total in cluster.ledger.epochs(operator.name).values())
            if operator.kind == "sink" and rows != len(self.expected[operator.name]):
                return f"{operator.name}: digests of {rows} tuples, expected {len(self.expected[operator.name])}"
        return None

    def _sink_problem(self, name: str, got: list[Row], wanted: list[Row]) -> str | None:
        if self.plan.semantics == "exactly-once":
            return difference(got, wanted)
        if self.plan.semantics == "at-least-once":
            most: dict[Row, Row] = {}
            for row in got:
                most[row[:2]] = max(most.get(row[:2], ()), row[3:])
            missing = [row for row in wanted if row[:2] not in most]
            if missing:
                return f"{missing[0]} is missing"
            low = [row for row in wanted if most[row[:2]] < row[3:]]
            return f"{low[0]} counts {most[low[0][:2]]} only" if low else None
        ids = [row[:2] for row in got]
        if sorted(set(ids)) != ids:
            return f"tuples come twice or out of order: {ids}"
        if any(operator.kind in STATEFUL for operator in self.plan.operators):
            got, wanted = [row[:2] for row in got], [row[:2] for row in self._possible()[name]]
        strange = [row for row in got if row not in set(wanted)]
        return f"{strange[0]} cannot have come from anywhere" if strange else None

    def _possible(self) -> Mapping[str, list[Row]]:
        """Where state may be lost, any tuple may count as the first of its kind."""
        forgetful = [
            msgspec.structs.replace(operator, kind="dup") if operator.kind == "uniq" else operator
            for operator in self.plan.operators
        ]
        plan: Plan = msgspec.structs.replace(self.plan, operators=tuple(forgetful))
        records: Mapping[str, Rows] = self.records
        return oracle.expected(plan, records)


def difference(got: list[Row], wanted: list[Row]) -> str | None:
    """The first difference between what came and what should have, in words."""
    for place, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if one != other:
            return f"at place {place} {one}, expected {other}"
    if len(got) == len(wanted):
        return None
    return f"{len(got)} tuples, expected {len(wanted)}"
