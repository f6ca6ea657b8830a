"""A plan from a file, whichever language it is in: a topology in YAML, or a configuration in the original language."""

from __future__ import annotations

from collections.abc import Sequence

from dadstorm import topology
from dadstorm.legacy.reading import is_legacy
from dadstorm.plan import Plan


def load(path: str, *, libs: Sequence[str] = (), sink: str | None = None, out: str | None = None) -> Plan:
    """Compile a file; what is in it decides, not its name. Raises UserError with every mistake found."""
    if is_legacy(path):
        from dadstorm.legacy import language as legacy  # With all its grammar, which topologies in YAML do not need.

        plan, _ = legacy.load(path, libs=libs, sink=sink, out=out)
        return plan
    return topology.load(path, libs=libs, sink=sink, out=out)
