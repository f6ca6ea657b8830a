"""Broken topologies: every mistake in them is told at once, with its line and column, quickly and without a traceback.

``tests/broken/expected.txt`` holds what is expected of each file in that folder.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm import loading, topology
from dadstorm.errors import Mistake, UserError

BROKEN = Path(__file__).parents[1] / "broken"
SECONDS_MAX = 2.0


def expectations() -> dict[str, list[str]]:
    """File name -> the mistakes expected in it."""
    expected: dict[str, list[str]] = {}
    name = ""
    for line in (BROKEN / "expected.txt").read_text().splitlines():
        if line.startswith("  "):
            expected[name].append(line.strip().replace("FOLDER", str(BROKEN)))
        elif line and not line.startswith("#"):
            name = line
            expected[name] = []
    return expected


EXPECTED = expectations()


def mistakes_in(path: Path | str, **arguments: object) -> list[str]:
    """What is wrong with a file, each as LINE:COLUMN: message (no place: the message alone)."""
    with pytest.raises(UserError) as caught:
        topology.load(str(path), **arguments)  # type: ignore[arg-type]
    return [told(mistake, str(path)) for mistake in caught.value.mistakes]


def told(mistake: Mistake, file: str) -> str:
    if mistake.line is None:
        return mistake.message
    assert mistake.file == file
    return f"{mistake.line}:{mistake.column}: {mistake.message}"


def test_there_is_an_expectation_for_every_broken_topology() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in BROKEN.glob("*.yaml"))
    assert len(EXPECTED) >= 60


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_broken_topology_is_refused_with_all_its_mistakes(name: str) -> None:
    started = time.monotonic()
    found = mistakes_in(BROKEN / name, out=str(BROKEN / "out"))
    assert time.monotonic() - started < SECONDS_MAX
    expected = EXPECTED[name]
    assert len(found) == len(expected), "\n".join(found)
    for one, beginning in zip(found, expected, strict=True):
        assert one.startswith(beginning)


def test_a_message_names_file_line_and_column() -> None:
    path = str(BROKEN / "unknown-kind.yaml")
    with pytest.raises(UserError) as caught:
        topology.load(path)
    assert str(caught.value) == f'{path}:4:17: operator "a": unknown key "fliter"; did you mean "filter"?'
    assert caught.value.exit_code == 2


def write(folder: Path, text: str) -> Path:
    path = folder / "t.yaml"
    path.write_text(text)
    return path


def test_a_topology_that_does_not_exist(tmp_path: Path) -> None:
    write(tmp_path, "")
    assert mistakes_in(tmp_path / "tt.yaml") == [f'{tmp_path}/tt.yaml: no such file; did you mean "t.yaml"?']
    assert mistakes_in(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]
    assert mistakes_in(tmp_path / "no" / "t.yaml") == [
        f'{tmp_path}/no/t.yaml: no such file: there is no folder "{tmp_path}/no"'
    ]


def test_a_file_that_is_too_large_to_be_a_topology(tmp_path: Path) -> None:
    path = write(tmp_path, "x: y\n" * 100_000)
    assert mistakes_in(path) == ["1:1: the file is larger than 256 KB; expected a topology, not data"]


def test_more_mistakes_than_anybody_reads_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "sources: {g: {generate: {n: counter}}}\n" + "".join(f"x{i}: 1\n" for i in range(130)))
    found = mistakes_in(path)
    assert len(found) == 101
    assert found[-1] == "and 30 more mistakes"


def test_wrong_arguments_are_told_with_the_mistakes_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "sources: {g: {generate: {n: counter}}}\noperators: {a: {input: f, dup: }}\n")
    (tmp_path / "libs").mkdir()
    assert mistakes_in(file, sink="cvs", libs=[str(tmp_path / "lib")], out=str(file)) == [
        '--sink: found "cvs"; expected csv, jsonl, parquet, console, spark or spool; did you mean "csv"?',
        f'--lib: no such folder: {tmp_path}/lib; did you mean "libs"?',
        f"--out: {file} is not a folder; expected where outputs can be written",
        '2:24: operator "a": no source or operator "f"; there are g',
    ]


def test_a_sink_does_not_overwrite_what_a_source_reads(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x\n")
    text = "sources: {t: {text: data.csv}}\nsinks:\n  x: {input: t, csv: ../data.csv}\n"
    assert mistakes_in(write(tmp_path, text), out=str(tmp_path / "out")) == [
        f'3:3: sink "x" would overwrite {tmp_path}/data.csv, which source "t" reads'
    ]


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_nor_does_it_by_another_name(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    (tmp_path / "data.csv").write_text("x\n")
    (tmp_path / "out").mkdir()
    link(tmp_path / "data.csv", tmp_path / "out" / "x.csv")
    text = "sources: {t: {text: data.csv}}\nsinks:\n  x: {input: t, csv: }\n"
    assert mistakes_in(write(tmp_path, text), out=str(tmp_path / "out")) == [
        f'3:3: sink "x" would overwrite {tmp_path}/out/x.csv, which source "t" reads'
    ]


def test_a_sink_does_not_overwrite_its_topology(tmp_path: Path) -> None:
    text = "sources: {t: {generate: {n: counter}, count: 1}}\nsinks:\n  x: {input: t, csv: ../t.yaml}\n"
    path = write(tmp_path, text)
    assert mistakes_in(path, out=str(tmp_path / "out")) == [
        f'3:3: sink "x" would overwrite {path}, which is this topology'
    ]


def test_sinks_do_not_write_into_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "real").mkdir(parents=True)
    (out / "link").symlink_to("real")
    text = """\
sources: {t: {generate: {n: counter}, count: 1}}
sinks:
  a: {input: t, parquet: folder}
  b: {input: t, csv: folder/b.csv}
  c: {input: t, csv: real/c.csv}
  d: {input: t, csv: link/c.csv}
"""
    assert mistakes_in(write(tmp_path, text), out=str(out)) == [
        f'4:3: sink "b": {out}/folder/b.csv is in what sink "a" writes; expected another',
        f'6:3: sink "d": {out}/link/c.csv is what sink "c" writes; expected another',
    ]


def test_a_topology_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert mistakes_in(tmp_path / "pipe") == [f"{tmp_path}/pipe: cannot be read: it is a pipe; expected a file"]
    with pytest.raises(UserError, match="it is a pipe"):
        loading.load(str(tmp_path / "pipe"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("x\n")
    (tmp_path / "data.txt").chmod(0)
    path = write(tmp_path, "sources: {t: {text: data.txt}}\noperators: {a: {input: t, dup: }}\n")
    assert mistakes_in(path) == [f'1:21: source "t": text: no permission to read {tmp_path}/data.txt']


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = write(tmp_path, "sources: {t: {text: pipe}}\noperators: {a: {input: t, dup: }}\n")
    (found,) = mistakes_in(path)
    assert found.startswith(f'1:21: source "t": text: {tmp_path}/pipe is not a regular file')


def test_a_sink_does_not_write_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = write(tmp_path, "sources: {t: {generate: {n: counter}}}\nsinks: {s: {input: t, csv: pipe}}\n")
    (found,) = mistakes_in(path, out=str(tmp_path))
    assert found.startswith(f'2:28: sink "s": {tmp_path}/pipe is a pipe')


def test_parquet_columns_that_do_not_fit(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1]), "tags": pa.array([["a"]]), "raw": pa.array([b"x"])})
    pq.write_table(table, tmp_path / "a.parquet")
    text = "sources:\n  t: {parquet: a.parquet, fields: [idd, id:string, tags, raw]}\nsinks: {s: {input: t, csv: }}\n"
    file = tmp_path / "a.parquet"
    anything = "text, numbers, booleans or times"
    assert mistakes_in(write(tmp_path, text)) == [
        f'2:36: source "t": {file} has no column "idd"; did you mean "id"?',
        f'2:41: source "t": column "id" of {file} is int64; expected string',
        f'2:52: source "t": column "tags" of {file} is list<element: string>; expected {anything}',
        f'2:58: source "t": column "raw" of {file} is binary; expected {anything}',
    ]


def test_what_depends_on_a_mistake_is_not_a_mistake_too(tmp_path: Path) -> None:
    text = """\
sources: {t: {text: missing.txt, fields: [line, more]}}
operators:
  a: {input: t, uniq: nothing}
  b: {input: [a, t], count: 7}
  c: {input: b, split: x, routing: hashing(y)}
sinks: {s: {input: c, csv: }}
"""
    first, second = mistakes_in(write(tmp_path, text))
    assert first.startswith(f'1:21: source "t": text: no such file: {tmp_path}/missing.txt')
    assert second.startswith('1:43: source "t": fields: text has exactly one field')


@given(st.binary(max_size=300))
def test_any_bytes_are_a_topology_or_mistakes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    try:
        topology.load(str(path))
    except UserError as error:
        assert error.mistakes


WORDS = (
    "~", "a", "b", "t", "7", "-1", "1.5", "true", "1s", "4KB", "hashing(a)", "a = 1", "tcp://x:1", "helpers.each", "",
)  # fmt: skip
KEYS = (
    "t", "a", "b", "sources", "operators", "sinks", "csv", "text", "generate", "tcp", "stdin", "input", "filter",
    "uniq", "count", "split", "custom", "dup", "fields", "key", "by", "as", "field", "op", "value", "replicas",
    "slices", "on", "address", "routing", "max_outputs", "int", "words", "choice", "rows", "bytes", "args",
)  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        )
    ),
    max_leaves=25,
)


@given(sources=VALUES, operators=VALUES, sinks=VALUES, window=VALUES, hosts=VALUES)
def test_any_shape_is_a_topology_or_mistakes(
    tmp_path_factory: pytest.TempPathFactory, sources: str, operators: str, sinks: str, window: str, hosts: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "shape.yaml"
    sections = {"sources": sources, "operators": operators, "sinks": sinks, "window": window, "hosts": hosts}
    path.write_text("".join(f"{key}: {value}\n" for key, value in sections.items()))
    try:
        topology.load(str(path))
    except UserError as error:
        assert all(mistake.line is not None for mistake in error.mistakes)


ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "topology.md").read_text(encoding="utf-8"), re.DOTALL)
SLIPS = (
    *WORDS, *KEYS, "[]", "{}", "[a, [b]]", "{a: {b: c}}", "'", '"', ":", "{", "]", "&x", "*x", "!!int", "9" * 30,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the examples of the documentation compile."""
    made = tmp_path_factory.mktemp("slips")
    for name in ("reach", "wordcount", "reach.py"):
        (made / name).symlink_to(ROOT / "configs" / name)
    return made


@given(data=st.data(), example=st.sampled_from(EXAMPLES))
def test_a_right_topology_with_a_few_slips_is_a_topology_or_mistakes(
    folder: Path, data: st.DataObject, example: str
) -> None:
    tokens = re.split(r"([\w./-]+)", example)
    for _ in range(data.draw(st.integers(1, 4))):
        tokens[data.draw(st.integers(0, len(tokens) - 1))] = data.draw(st.sampled_from(SLIPS))
    path = folder / "slips.yaml"
    path.write_text("".join(tokens), encoding="utf-8")
    try:
        assert topology.describe(topology.load(str(path)))
    except UserError as error:
        assert all(mistake.line is not None for mistake in error.mistakes)
