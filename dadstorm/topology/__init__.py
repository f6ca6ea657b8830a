"""From the YAML a user writes to the plan that runs.

``load`` compiles a file or raises UserError with every mistake in it; ``describe`` shows a plan. The language is in
``docs/topology.md``; ``schema.json`` describes it to editors.
"""

from dadstorm.topology.compile import load
from dadstorm.topology.describe import describe
from dadstorm.topology.schema import json_schema

__all__ = ["describe", "json_schema", "load"]
