"""A plan as text: what ``dadstorm check`` shows."""

from __future__ import annotations

from collections import Counter

from dadstorm.chains import chained
from dadstorm.core.ports import DEAD_LETTERS
from dadstorm.plan import Operator, Plan
from dadstorm.topology.fields import show
from dadstorm.topology.values import show_size

_HEADER = ("operator", "kind", "input", "slices", "replicas", "hosts", "routing", "ID bits", "fields")


def describe(plan: Plan) -> str:
    """A table of the operators, then the settings and the warnings. ID bits: those it adds, of those there are then."""
    totals: dict[str, int] = {}
    table: list[tuple[str, ...]] = [_HEADER]
    for operator in plan.operators:
        entered = max((totals[link.operator] + link.align for link in operator.inputs), default=0)
        added = operator.input_bits + operator.output_bits
        totals[operator.name] = entered + added
        table.append(_row(plan, operator, added, entered + added))
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADER))]
    lines = [f"topology {plan.name}, {plan.semantics}", ""]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines += ["", *_settings(plan)]
    if plan.warnings:
        lines += ["", f"{len(plan.warnings)} warning{'s' if len(plan.warnings) > 1 else ''}:"]
        lines += [f"  {warning}" for warning in plan.warnings]
    return "\n".join(lines)


def _row(plan: Plan, operator: Operator, added: int, total: int) -> tuple[str, ...]:
    return (
        operator.name,
        _kind(operator),
        ", ".join(_input(link.operator, link.port) for link in operator.inputs) or "-",
        str(operator.slices),
        str(len(operator.replicas)),
        _hosts(operator),
        _routing(plan, operator),
        f"{added} of {total}",
        show(operator.fields),
    )


def _kind(operator: Operator) -> str:
    if operator.kind == "source":
        form = operator.params.get("format")
        what = operator.params["type"]
        if what == "file":
            seq = operator.params.get("seq")
            return f"source {form}" + ("" if seq is None else f", seq {operator.fields[seq].name}")
        return f"source {what}" + (f" {form}" if form else "")
    if operator.kind == "sink":
        path = operator.params["path"]
        return f"sink {operator.params['format']}" + (f" {path}" if path else "")
    return operator.kind


def _input(name: str, port: int) -> str:
    return f"{name} (dead letters)" if port == DEAD_LETTERS else name


def _hosts(operator: Operator) -> str:
    places = Counter(replica.address or replica.host for replica in operator.replicas)
    return ", ".join(place if count == 1 else f"{count} x {place}" for place, count in places.items())


def _routing(plan: Plan, operator: Operator) -> str:
    if not operator.inputs:
        return "-"
    if operator.routing.policy != "hashing":
        return operator.routing.policy
    names = plan.input_schema(operator).names
    return f"hashing({', '.join(names[index] for index in operator.routing.key)})"


def _settings(plan: Plan) -> list[str]:
    run = chained(plan)
    chains = [operator.name for operator in run.operators if operator.members]
    asked = {one.name: one.slices for one in plan.operators}
    lanes = [
        one.name
        for chain in run.operators
        for one in chain.members or (chain,)
        if chain.kind != "source" and chain.slices < asked[one.name]
    ]
    return [
        *([f"chained, where nobody looks at single operators: {', '.join(chains)}"] if chains else []),
        *([f"with one slice to a replica, where nobody looks: {', '.join(lanes)}"] if lanes else []),
        f"window {plan.window_rows} tuples, {show_size(plan.window_bytes)}; "
        f"snapshots every {_time(plan.snapshot_every_ms)}; "
        f"flush every {_time(plan.flush_every_ms)}; span {plan.span}; seed {plan.seed}; logging {plan.logging}",
        f"silent replicas are suspected after {_time(plan.suspect_after_ms)}; "
        f"copies of state at {plan.backups or 'all'} peers"
        + (f" and in {plan.durable.folder}" if plan.durable else "")
        + f"; recovery by {plan.recovery}",
        f"modules from {', '.join((plan.base, *plan.libs))}",
    ]


def _time(ms: int) -> str:
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
