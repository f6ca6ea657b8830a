"""DADSTORM: a deterministic, exactly-once stream processor for Python."""

__version__ = "0.1.0"
