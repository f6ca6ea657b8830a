"""What each part of a topology may hold: the keys, and nothing else about them.

The tables here are the one place that knows which keys there are; the JSON Schema for editors is tested against them.
``Section`` is a mapping read through such a table: keys that are not in it are mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence

from dadstorm.topology.document import Mapping, Node, Text, found
from dadstorm.topology.report import Place, Report, closest, listed, nearest

TOPOLOGY = (
    "name", "semantics", "sources", "operators", "sinks", "window", "snapshot_every", "flush_every", "span", "seed",
    "logging", "hosts", "ragged", "suspect_after", "backups", "recovery", "script", "durable",
    "chain",
)  # fmt: skip
WINDOW = ("rows", "bytes")

_PLACED = ("on", "address")
_REPLICATED = ("replicas", "slices", *_PLACED)

SOURCES: dict[str, tuple[str, ...]] = {
    "csv": ("fields", "seq", "header", "delimiter", "comment", "record_max", "on_error", *_REPLICATED),
    "jsonl": ("fields", "seq", "record_max", "on_error", *_REPLICATED),
    "text": ("fields", "record_max", "on_error", *_REPLICATED),
    "parquet": ("fields", "seq", "on_error", *_REPLICATED),
    "generate": ("count", "rate", "seed", *_REPLICATED),
    "tcp": ("format", "fields", "delimiter", "record_max", "journal", "fsync", "on_error", *_PLACED),
    "stdin": ("fields", "delimiter", "record_max", "journal", "fsync", "on_error"),
    "spark": (
        "path", "table", "sql", "stream", "fields", "schema", "order_by", "options", "master", "conf", "journal",
        "fsync", "on_error", *_REPLICATED,
    ),
}
"""Per kind of source, the keys beside the kind's own."""

GENERATORS: dict[str, tuple[str, ...]] = {
    "counter": (),
    "int": (),
    "float": (),
    "bool": (),
    "choice": (),
    "words": ("count", "vocabulary"),
    "timestamp": ("start", "step"),
}
"""Per kind of generated field, the keys of its long form."""

_OPERATOR = ("input", "routing", "on_error", *_REPLICATED)

OPERATORS: dict[str, tuple[str, ...]] = {
    "filter": _OPERATOR,
    "uniq": _OPERATOR,
    "count": (*_OPERATOR, "fields"),
    "dup": _OPERATOR,
    "split": (*_OPERATOR, "max_outputs"),
    "custom": (*_OPERATOR, "fields", "key", "mode", "with_id", "args", "max_outputs"),
}
"""Per kind of operator, the keys beside the kind's own."""

LONG_FORMS: dict[str, tuple[str, ...]] = {
    "filter": ("field", "op", "value", "compare"),
    "count": ("by", "as"),
    "split": ("field", "separator", "as"),
}
"""Keys of the mapping that may stand as the value of these kinds."""

SINKS: dict[str, tuple[str, ...]] = {
    **{kind: ("input", *_PLACED, "with_id", "fsync") for kind in ("csv", "jsonl", "parquet")},
    "console": ("input", *_PLACED, "with_id"),
    "spark": (
        "input", *_PLACED, "path", "table", "with_id", "fsync", "partition_by", "mode", "master", "conf", "options",
        "commit_every",
    ),
    "spool": ("input", *_PLACED, "fsync", "keep", "commit_every"),
}
"""Per kind of sink, the keys beside the kind's own."""


class Section:
    """A mapping whose keys have been checked; ``what`` names it in messages."""

    def __init__(self, report: Report, node: Mapping, what: str, keys: Sequence[str]) -> None:
        self.report = report
        self.node = node
        self.what = what
        self._meant: set[str] = set()
        for name, entry in node.entries.items():
            if name not in keys:
                near = closest(name, keys)
                hint = f'did you mean "{near}"?' if near else f"expected {listed(keys)}"
                report.mistake(entry.key.place, f"{what}: unknown key {found(entry.key)}; {hint}")
                if near:
                    self._meant.add(near)

    @property
    def place(self) -> Place:
        return self.node.place

    def get(self, key: str) -> Node | None:
        entry = self.node.entries.get(key)
        return entry.value if entry else None

    def missing(self, key: str) -> bool:
        """Whether a key is not there, nor one that was probably meant to be it (and is a mistake already)."""
        return key not in self.node.entries and key not in self._meant

    def key_place(self, key: str) -> Place:
        return self.node.entries[key].key.place


def kind_of(
    report: Report, name: Text, node: Node, what: str, kinds: AnyMapping[str, Sequence[str]]
) -> tuple[str, Section] | None:
    """Which kind a source, operator or sink is, by the one key that names it; None after a mistake."""
    if not isinstance(node, Mapping):
        report.mistake(name.place, f"{what}: found {found(node)}; expected a mapping with one of {listed(kinds)}")
        return None
    named = [key for key in node.entries if key in kinds]
    if len(named) == 1:
        kind = named[0]
        return kind, Section(report, node, what, (kind, *kinds[kind]))
    every = sorted({*kinds, *(key for keys in kinds.values() for key in keys)})
    expected = f"; expected one of {listed(kinds)}"
    unknown = [entry.key for key, entry in node.entries.items() if key not in every]
    for key in unknown:
        report.mistake(key.place, f"{what}: unknown key {found(key)}{nearest(key.text, every) or expected}")
    if named:
        place = node.entries[named[1]].key.place
        report.mistake(place, f"{what} is both {' and '.join(named)}; expected exactly one of these")
    elif not unknown:
        report.mistake(name.place, f"{what} does not say what it is{expected}")
    return None
