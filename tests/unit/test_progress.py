"""What the summary shows of an output is data: it may not play with the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from dadstorm.errors import printable
from puppetmaster.progress import SHOWN_WIDTH, show_output


def test_control_characters_are_shown_as_escapes() -> None:
    assert printable("a\x1b[31m\r\0\x9b\tb\nç") == "a\\x1b[31m\\r\\x00\\x9b\tb\nç"


def test_the_summary_shows_no_control_characters_and_no_endless_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"\x1b]0;mine\x07\n" + b"y" * 1000 + b"\n\xff\n")
    show_output("x.csv", str(file), 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["x.csv: 3 rows", "  \\x1b]0;mine\\x07"]
    assert lines[2] == "  " + "y" * (SHOWN_WIDTH - 1) + "…"
    assert lines[3] == "  \ufffd"
