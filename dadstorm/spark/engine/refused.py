"""What the Spark engine does not do, found before anything starts and told all at once."""

from __future__ import annotations

from collections.abc import Iterator

from dadstorm.errors import UserError
from dadstorm.plan import LOCAL, Plan

SOURCES = ("file", "generate")
"""Sources that give the same records with the same seqs whoever reads them, and as often as they are read."""

SINKS = ("csv", "jsonl", "parquet", "console", "spark")


def check(plan: Plan, given: dict[str, bool]) -> None:
    """Raises UserError with everything of a plan that the engine refuses; ``given``: per option whether it was."""
    found = [*_options(given), *_refused(plan)]
    if found:
        raise UserError(
            f"{plan.name} cannot run with --engine spark, for {len(found)} reason{'s' * (len(found) > 1)}:",
            *(f"  {one}" for one in found),
            "The native engine (without --engine spark) does all of that",
        )


def _options(given: dict[str, bool]) -> Iterator[str]:
    for option, was in given.items():
        if was:
            yield f"{option}: an option of the native engine"


def _refused(plan: Plan) -> Iterator[str]:
    if plan.script:
        yield "script: commands (Start, Interval, Freeze, Crash …) act on replicas, and there are none"
    if plan.logging == "full":
        yield "logging: full: tuples are not logged one by one; expected light"
    for name in sorted(plan.hosts):
        yield f"hosts: {name}: Spark decides what runs where"
    for operator in plan.operators:
        for replica in operator.replicas:
            if replica.host != LOCAL or replica.address is not None:
                where = replica.address or replica.host
                yield f"{operator.name}: placed at {where}: Spark decides what runs where"
                break
        params = operator.params
        if operator.kind == "source":
            if params["type"] not in SOURCES:
                what = "a live source" if params["type"] in ("tcp", "stdin") else "a source of another kind"
                yield f"{operator.name}: {what} ({params['type']}); expected files or generated tuples"
            elif params.get("rate"):
                yield f"{operator.name}: rate: steps are taken as fast as they can be; leave it out"
        elif operator.kind == "sink" and params["format"] not in SINKS:
            yield f"{operator.name}: a sink of format {params['format']}; expected {', '.join(SINKS)}"
        elif operator.kind == "sink" and params["format"] == "spark":
            for key in ("master", "conf"):
                if key in params:
                    yield f"{operator.name}: {key}: it is written by the engine's own Spark; say it with --{key}"
