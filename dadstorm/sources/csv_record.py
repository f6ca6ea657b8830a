"""One record of a CSV file and its fields, without Arrow: for headers, and for records that Arrow refuses."""

from __future__ import annotations


def fields_of(record: str, delimiter: str) -> list[str]:
    """The fields of one record; ``ValueError`` says what is wrong with it."""
    if '"' not in record:
        if "\r" in record or "\n" in record:
            raise ValueError("a carriage return outside quotes; put the field in double quotes or remove it")
        return record.split(delimiter)
    values = []
    at = 0
    while True:
        quoted = ""
        if record.startswith('"', at):
            quoted, at = _quoted(record, at + 1)
        end = record.find(delimiter, at)
        rest = record[at:] if end < 0 else record[at:end]
        if "\r" in rest or "\n" in rest:
            raise ValueError("a carriage return outside quotes; put the field in double quotes or remove it")
        values.append(quoted + rest)
        if end < 0:
            return values
        at = end + 1


def _quoted(record: str, at: int) -> tuple[str, int]:
    """What is between quotes from ``at`` on, and where the closing quote ends."""
    opened = at
    parts = []
    while True:
        quote = record.find('"', at)
        if quote < 0:
            raise ValueError(f"the double quote opened at character {opened} of the record is not closed")
        parts.append(record[at:quote])
        if not record.startswith('"', quote + 1):
            return "".join(parts), quote + 1
        parts.append('"')
        at = quote + 2
