"""From the bytes of a topology file to a tree whose every node knows its line and column.

Three kinds of node: ``Text`` (a scalar, as written), ``Items`` (a list), ``Mapping``. Scalars are not interpreted here:
who reads a value knows which type it should have, so ``no`` stays a word, ``12:30`` is no base-60 number, and no tag
can construct anything. Anchors and aliases work and are written out here; tags and merge keys do not.

Whatever the bytes are, the outcome is a tree or mistakes with their place, in bounded time and memory.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass

import yaml

from dadstorm.topology.report import Place, Report, nearest

FILE_BYTES_MAX = 256 << 10
"""A topology is written by hand; the largest sensible one is a few dozen KB. Parsing this much takes about 2 s."""

DEPTH_MAX = 24
"""The language nests 6 deep; ``args`` may hold more. The parser recurses, so there has to be a limit."""

NODES_MAX = 50_000
"""With aliases, a few lines can stand for billions of nodes."""

_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN_TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "seq", "map")
}


@dataclass(frozen=True)
class Text:
    place: Place
    text: str
    plain: bool = True
    """Written without quotes: may stand for a number, a boolean or nothing."""

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in ("", "~", "null")


@dataclass(frozen=True)
class Items:
    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Entry:
    key: Text
    value: Node


@dataclass(frozen=True)
class Mapping:
    place: Place
    entries: dict[str, Entry]


Node = Text | Items | Mapping


def is_null(node: Node) -> bool:
    return isinstance(node, Text) and node.is_null


def found(node: Node) -> str:
    """A node as a message names it."""
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.is_null:
        return "nothing"
    text = node.text if len(node.text) <= 60 else node.text[:57] + "..."
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'


def read(path: str, report: Report, text: str | None = None) -> Mapping | None:
    """The document in a file, or in a text that stands for it; None, with mistakes in the report, if there is none."""
    content = _content(path, report) if text is None else text
    if content is None:
        return None
    root = _parse(content, report)
    if root is None or isinstance(root, Mapping):
        return root
    if is_null(root):
        report.mistake(root.place, "the file is empty; expected a topology: sources: and operators:")
    else:
        report.mistake(root.place, f"found {found(root)}; expected a topology: a mapping with sources: and operators:")
    return None


def file_bytes(path: str) -> bytes:
    """What is in a file, up to one byte more than there may be. OSError also for a pipe, which might never say
    anything, and could not be read twice."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe; expected a file")
        return file.read(FILE_BYTES_MAX + 1)


def _content(path: str, report: Report) -> str | None:
    top = Place(1, 1)
    try:
        raw = file_bytes(path)
    except FileNotFoundError:
        report.mistake(None, f"{path}: no such file{nearest_file(path)}")
        return None
    except OSError as error:
        report.mistake(None, f"{path}: cannot be read: {error.strerror}")
        return None
    if len(raw) > FILE_BYTES_MAX:
        report.mistake(top, f"the file is larger than {FILE_BYTES_MAX >> 10} KB; expected a topology, not data")
        return None
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", "replace")
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        report.mistake(place, f"not text: byte 0x{raw[error.start]:02x} is not UTF-8; expected a YAML file in UTF-8")
        return None
    stray = _NOT_TEXT.search(content)
    if stray:
        before = content[: stray.start()]
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        report.mistake(place, f"not text: control character U+{ord(stray.group()):04X}; expected a YAML file in UTF-8")
        return None
    return content


class _TooDeep(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """SafeLoader that does not descend for ever. Only its composer is used: it never constructs."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _TooDeep(problem=f"nested more than {DEPTH_MAX} deep", problem_mark=mark)
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        return node


def _parse(content: str, report: Report) -> Node | None:
    try:
        root = yaml.compose(content, _Loader)
        if root is None:
            return Text(Place(1, 1), "")
        return _Builder(report).node(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        tab = mark is not None and content[mark.index : mark.index + 1] == "\t"
        hint = "; indent with blanks, not with tabs" if tab else ""
        report.mistake(place, f"not YAML: {problem}{hint}")
    except _TooMany as limit:
        report.mistake(
            limit.place, f"aliases make this more than {NODES_MAX} values; expected a topology written out by hand"
        )
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        report.mistake(Place(1, 1), f"not YAML: {error}")
    return None


class _TooMany(Exception):
    def __init__(self, place: Place) -> None:
        self.place = place


class _Builder:
    """Writes out a composed document as our nodes, aliases included."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._count = 0
        self._open: set[int] = set()

    def node(self, node: yaml.Node) -> Node:
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self._count += 1
        if self._count > NODES_MAX:
            raise _TooMany(place)
        if node.tag not in _PLAIN_TAGS:
            self._report.mistake(place, f'tag "{node.tag}" means nothing here; expected a plain value')
        if isinstance(node, yaml.ScalarNode):
            return Text(place, node.value, node.style is None)
        if id(node) in self._open:
            self._report.mistake(place, "an alias that contains itself; expected values that end")
            return Text(place, "")
        self._open.add(id(node))
        built = self._mapping(node, place) if isinstance(node, yaml.MappingNode) else self._items(node, place)
        self._open.discard(id(node))
        return built

    def _items(self, node: yaml.Node, place: Place) -> Items:
        return Items(place, tuple(self.node(item) for item in node.value))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> Mapping:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key, value = self.node(key_node), self.node(value_node)
            if not isinstance(key, Text) or key.is_null:
                self._report.mistake(key.place, f"found {found(key)} as a key; expected a word")
            elif key.text in entries:
                first = entries[key.text].key.place
                self._report.mistake(key.place, f'duplicate key "{key.text}"; it is already in line {first.line}')
            else:
                entries[key.text] = Entry(key, value)
        return Mapping(place, entries)


def nearest_file(path: str) -> str:
    """``; did you mean "x"?`` for the file in the same folder that is spelt most alike, or that it has no folder."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return f': there is no folder "{folder}"'
    return nearest(name, sorted(names))
