"""Sinks: where a topology's output goes."""
