"""The console sink, and how a sink is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from dadstorm.core.line import END
from dadstorm.errors import RunFailed
from tests.unit.sink_kit import open_sink, rows_of, sink_operator


def test_lines_name_the_operator_and_come_whole() -> None:
    said: list[str] = []
    sink = open_sink(sink_operator("console", None), say=said.append)
    sink.write(rows_of([("a, b", 1), ("", None)]))
    sink.write(rows_of([]))
    sink.write(rows_of([("c", 2)], seq=2))
    sink.commit(END)
    sink.close()
    assert said == ["out: a, b, 1\nout: , \n", "out: c, 2\n"]
    assert (sink.committed, sink.mark()) == (END, {})


def test_control_characters_never_reach_the_terminal() -> None:
    said: list[str] = []
    open_sink(sink_operator("console", None), say=said.append).write(rows_of([("\x1b[2J\x7f\nx", 1), ("é", 2)]))
    assert said == ["out: \\u001b[2J\\u007f\\nx, 1\nout: é, 2\n"]


def test_without_anyone_to_say_it_to_lines_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    open_sink(sink_operator("console", None)).write(rows_of([("a", 1)]))
    assert capsys.readouterr().out == "out: a, 1\n"


def test_many_rows_are_said_in_bounded_pieces() -> None:
    said: list[str] = []
    open_sink(sink_operator("console", None), say=said.append).write(rows_of([("a", i) for i in range(100_000)]))
    assert len(said) > 1
    assert all(text.endswith("\n") for text in said)
    assert "".join(said) == "".join(f"out: a, {i}\n" for i in range(100_000))


def test_an_unknown_format_or_no_path(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"expected a format out of csv, .*spark, spool, found 'xml'"):
        open_sink(sink_operator("xml", tmp_path / "o"))
    with pytest.raises(RunFailed, match="expected a path to write csv to, found none"):
        open_sink(sink_operator("csv", None))
