"""The JSON Schema of topology files, for editors that complete and check YAML as one types."""

from __future__ import annotations


def json_schema() -> str:
    """The schema's text. The compiler is the judge: the schema knows shapes, not names, files or types of fields."""
    from importlib import resources  # Most of this package's users never ask.

    return resources.files("dadstorm.topology").joinpath("schema.json").read_text(encoding="utf-8")
