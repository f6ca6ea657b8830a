"""From the bytes of an old file to its lines, and telling such a file from a topology in YAML.

The files were written on Windows, by hand, some copied out of a PDF: there are byte order marks, UTF-16, CRLF, tabs and
no-break spaces. Comment lines are dropped before they are decoded, because that is where the accents are that make a
file no UTF-8; anywhere else such a byte is a mistake.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dadstorm.topology.document import FILE_BYTES_MAX, file_bytes, nearest_file
from dadstorm.topology.report import Place, Report
from dadstorm.topology.shapes import TOPOLOGY

INPUT_OPS = r"input[-_\s]*ops?"
REP_FACT = r"rep[-_\s]*fact(?:or)?"
OPERATOR_SPEC = r"operator[-_\s]*spec"
LOGGING_LEVEL = r"logging[-_\s]*level"
"""Keywords of two words, written with an underscore, a blank or nothing between them."""

_LINE_END = re.compile(r"\r\n|\n|\r")
_BYTES_LINE_END = re.compile(rb"\r\n|\n|\r")
_BLANKS = str.maketrans({"\t": " ", "\u00a0": " ", "\v": " ", "\f": " ", "\u2007": " ", "\u202f": " "})
_STRAY = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff]")
_YAML = re.compile(rf"[\"']?({'|'.join(TOPOLOGY)})[\"']?\s*:(\s|$)")
_OLD = re.compile(
    rf"\S+\s+{INPUT_OPS}\b|.*\b({REP_FACT}|{OPERATOR_SPEC})\b|(semantics|{LOGGING_LEVEL})\s+[\w\"]"
    r"|(start|interval|crash|freeze|unfreeze|wait)\s+\S|status\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Line:
    """A line that is neither blank nor a comment, every blank in it a space, none at its end."""

    number: int
    text: str

    @property
    def indented(self) -> bool:
        return self.text.startswith(" ")

    @property
    def place(self) -> Place:
        return Place(self.number, len(self.text) - len(self.text.lstrip()) + 1)


def is_legacy(path: str) -> bool:
    """Whether a file is in the original language, whatever it is called. A topology in YAML never is."""
    try:
        text = _decoded(file_bytes(path)[:FILE_BYTES_MAX])
    except OSError:
        return False
    lines = [line for line in _LINE_END.split(text) if line.strip()]
    if not lines or "\0" in text or lines[0].startswith(("{", "---")) or any(map(_YAML.match, lines)):
        return False
    told = [line.strip() for line in lines if not line.lstrip().startswith("%")]
    return any(map(_OLD.match, told)) or not (told or lines[0].startswith("%YAML"))


def _decoded(raw: bytes) -> str:
    """The text, as far as it is one: what cannot be read does not decide over what the file is."""
    return raw.decode("utf-16" if _is_utf16(raw) else "utf-8-sig", "replace")


def _is_utf16(raw: bytes) -> bool:
    return raw.startswith((b"\xff\xfe", b"\xfe\xff"))


def lines_of(path: str, report: Report) -> list[Line]:
    """The lines of an old file that say something; [] after a mistake that leaves nothing to go on with."""
    try:
        raw = file_bytes(path)
    except FileNotFoundError:
        report.mistake(None, f"{path}: no such file{nearest_file(path)}")
        return []
    except OSError as error:
        report.mistake(None, f"{path}: cannot be read: {error.strerror}")
        return []
    if len(raw) > FILE_BYTES_MAX:
        message = f"the file is larger than {FILE_BYTES_MAX >> 10} KB; expected a configuration or a script, not data"
        report.mistake(Place(1, 1), message)
        return []
    if _is_utf16(raw):
        raw = raw.decode("utf-16", "replace").encode()
    lines = []
    for number, line in enumerate(_BYTES_LINE_END.split(raw.removeprefix(b"\xef\xbb\xbf")), start=1):
        text = _line(line, number, report)
        if text:
            lines.append(Line(number, text))
    return lines


def _line(raw: bytes, number: int, report: Report) -> str:
    """One line's text; nothing for a comment, a blank line, or one that is no text, which is a mistake."""
    if raw.lstrip().startswith(b"%"):
        return ""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        place = Place(number, len(raw[: error.start].decode("utf-8", "replace")) + 1)
        report.mistake(place, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8")
        return ""
    text = text.translate(_BLANKS).rstrip()
    stray = _STRAY.search(text)
    if stray:
        place = Place(number, stray.start() + 1)
        report.mistake(place, f"control character U+{ord(stray.group()):04X}; expected text: remove it")
        return ""
    return text
