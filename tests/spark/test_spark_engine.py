"""The same topology on both engines: the same digests, epoch by epoch, and the same bytes.

What the native engine makes of each topology is the measure. One session of Spark serves all runs of this file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from dadstorm.errors import RunFailed
from dadstorm.spark.engine import book
from dadstorm.spark.engine.sessions import Sessions
from puppetmaster.engine import EngineOptions
from puppetmaster.engine import run as run_on_spark
from tests.cluster.kit import ROOT, run

pytestmark = [pytest.mark.spark]

DIAMOND = """\
span: 1024
sources:
  orders:
    generate:
      n: counter
      user: {{int: [0, 99]}}
      item: {{choice: [apple, pear, plum, fig]}}
      price: {{float: [0.5, 20]}}
    count: 9000
  more: {{csv: more.csv, fields: [n:int, user:int, item, price:float], on_error: dead-letter}}
operators:
  cheap:   {{input: orders, filter: price < 8, replicas: 2}}
  fruit:   {{input: [orders, more], filter: 'item in [apple, fig]'}}
  either:  {{input: [cheap, fruit], dup: , slices: {slices}}}
  sales:   {{input: either, count: item, slices: {slices}}}
  buyers:  {{input: either, uniq: user, slices: {slices}}}
  again:   {{input: [buyers, cheap], count: user, slices: {slices}}}
  total:   {{input: again, count: }}
sinks:
  sold:    {{input: sales, csv: sales.csv, with_id: true}}
  bought:  {{input: buyers, jsonl: buyers.jsonl}}
  back:    {{input: again, parquet: again}}
  sum:     {{input: total, csv: total.csv}}
{spark}"""
TABLE = "  table:   {input: buyers, spark: parquet, with_id: true}\n"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    sessions = Sessions("local[2]", {}, str(tmp_path_factory.mktemp("spark")))
    yield sessions
    sessions.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the topologies of this file are, with what the native engine makes of them."""
    folder = tmp_path_factory.mktemp("engines")
    lines = [f"{n},{n % 70},{'apple' if n % 3 else 'kiwi'},{n / 7}" for n in range(2500)]
    lines[1200] = "broken"
    (folder / "more.csv").write_text("\n".join(lines) + "\n")
    (folder / "diamond.yaml").write_text(DIAMOND.format(slices=3, spark=""))
    for name in ("reach.yaml", "reach.py"):
        shutil.copy(ROOT / "configs" / name, folder)
    shutil.copytree(ROOT / "configs" / "reach", folder / "reach")
    for name in ("reach", "diamond"):
        run("run", f"{name}.yaml", "--audit", "--runs", "native", "--out", f"native-{name}", cwd=folder).ok()
    return folder


def on_spark(spark: Sessions, folder: Path, file: str, out: str, **options: object) -> str:
    """Run a topology of the folder; where it keeps its record."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        given = {"audit": True, "quiet": True, "runs": f"spark-{out}", "out": out, **options}
        assert run_on_spark(EngineOptions(file, **given), spark) == 0  # type: ignore[arg-type]
    finally:
        os.chdir(before)
    (record,) = sorted((folder / f"spark-{out}").iterdir())[-1:]
    return str(record.relative_to(folder))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def test_reach(spark: Sessions, folder: Path) -> None:
    record = on_spark(spark, folder, "reach.yaml", "out-reach", sink="csv")
    assert "the same" in run("diff", "native/reach-1", record, cwd=folder).ok().out
    assert files(folder / "out-reach") == files(folder / "native-reach")


@pytest.mark.parametrize("slices", [1, 4, 16])
def test_a_diamond_with_keyed_counts_dead_letters_and_every_kind_of_output(
    spark: Sessions, folder: Path, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "GROWTH_MAX", 4)  # Some more steps.
    (folder / f"diamond{slices}.yaml").write_text(DIAMOND.format(slices=slices, spark=TABLE if slices == 4 else ""))
    out = f"out{slices}"
    record = on_spark(spark, folder, f"diamond{slices}.yaml", out)
    told = run("diff", "native/diamond-1", record, "--out2", out, cwd=folder)
    got, wanted = files(folder / out), files(folder / "native-diamond")
    assert {name: got[name] for name in wanted} == wanted
    assert told.code == 0 or slices == 4, told.out
    if slices == 4:
        run("verify", f"{out}/table", cwd=folder).ok()


def test_a_tuple_that_no_function_can_handle_ends_the_run_in_words(spark: Sessions, folder: Path) -> None:
    (folder / "odd.py").write_text("def odd(n):\n    return (1 // (n - 700),)\n")
    (folder / "odd.yaml").write_text(
        "sources: {made: {generate: {n: counter}, count: 2000}}\n"
        "operators: {odd: {input: made, custom: odd.odd, fields: [n:int]}}\n"
    )
    with pytest.raises(RunFailed, match=r"operator odd could not handle the tuple with ID \(700, 0\)"):
        on_spark(spark, folder, "odd.yaml", "odd", sink="csv")


def test_when_java_dies_the_step_is_done_again_by_another(spark: Sessions, folder: Path) -> None:
    """Also leaves a session for whoever comes next."""
    first = spark.now().pid
    os.kill(first, 9)
    record = on_spark(spark, folder, "diamond.yaml", "revived")
    assert spark.now().pid != first
    assert run("diff", "native/diamond-1", record, cwd=folder).code == 0


SEQS = """\
sources:
  left:  {csv: left.csv, fields: [id:int, name], seq: id}
  right: {csv: right.csv, fields: [id:int, name], seq: id, on_error: skip}
operators:
  all:  {input: [left, right], dup: }
  seen: {input: all, count: name}
sinks:
  both: {input: all, csv: all.csv, with_id: true}
  sums: {input: seen, csv: seen.csv}
"""


def test_seqs_that_the_records_bring_along_however_far_apart(spark: Sessions, folder: Path) -> None:
    ids = [n * 999_983 + (10**18 if n > 600 else 0) for n in range(1200)]
    (folder / "left.csv").write_text("".join(f"{one},l{one % 3}\n" for one in ids if one % 2))
    (folder / "right.csv").write_text("".join(f"{one},r{one % 3}\n" for one in ids if one % 3) + "none,x\n")
    (folder / "seqs.yaml").write_text(SEQS)
    run("run", "seqs.yaml", "--audit", "--runs", "native", "--out", "native-seqs", cwd=folder).ok()
    record = on_spark(spark, folder, "seqs.yaml", "out-seqs")
    assert "the same" in run("diff", "native/seqs-1", record, cwd=folder).ok().out
    assert files(folder / "out-seqs") == files(folder / "native-seqs")
