"""Sinks: where a topology's output goes.

``make_sink`` turns a sink operator of a plan into the object that writes: one module per kind, all behind
``sinks.base.Sink``. ``docs/sinks.md`` says what each writes, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable

from dadstorm.core.line import START
from dadstorm.errors import RunFailed
from dadstorm.options import FORMATS
from dadstorm.plan import Operator, Plan
from dadstorm.sinks.base import Mark, Sink


def make_sink(
    operator: Operator,
    plan: Plan,
    *,
    mark: Mark | None = None,
    cut: int = START,
    say: Callable[[str], None] | None = None,
    run: str = "",
    folder: str = ".",
    stride: Callable[[], int] | None = None,
    alone: bool = True,
) -> Sink:
    """The sink that writes an operator's rows: from the beginning, or on from the ``cut`` that ``mark`` is of.

    ``say`` is where the console sink's text goes, whole lines at a time. ``run`` is the same for all incarnations of
    one run and for no others; ``folder`` is the run's, for logs. ``stride`` tells how far apart commits may be.
    ``alone``: whoever had the output before is dead, so nobody else may have it open.
    """
    params = operator.params
    form = params["format"]
    if form == "console":
        from dadstorm.sinks.console import ConsoleSink

        return ConsoleSink(operator, cut=cut, say=say)
    if not params.get("path"):
        raise RunFailed(f"sink {operator.name}: expected a path to write {form} to, found none; give the sink a path")
    if form in ("csv", "jsonl"):
        from dadstorm.sinks.lines import LineSink

        return LineSink(operator, mark=mark, cut=cut, alone=alone)
    if form == "parquet":
        # Imported only when asked for: pyarrow.parquet takes longer to load than all other sinks together.
        from dadstorm.sinks.parquet import ParquetSink

        return ParquetSink(operator, mark=mark, cut=cut, alone=alone)
    if form == "spark":
        from dadstorm.sinks.spark import SparkSink

        return SparkSink(operator, plan, mark=mark, cut=cut, run=run, folder=folder, stride=stride)
    if form == "spool":
        from dadstorm.sinks.spool import SpoolSink

        return SpoolSink(operator, plan, mark=mark, cut=cut, run=run)
    raise RunFailed(f"sink {operator.name}: expected a format out of {', '.join(FORMATS)}, found {form!r}")
