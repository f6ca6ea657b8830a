"""The output ports of an operator: its stream, and the records that it refused."""

MAIN, DEAD_LETTERS = 0, 1

DEAD_FIELDS = ("place", "error", "record")
"""Of a dead letter, all texts: where the record was met (operator and ID, or file and line), why it was refused, the
record."""
