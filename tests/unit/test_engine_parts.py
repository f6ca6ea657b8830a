"""The parts of the Spark engine that need no Spark: how a plan is laid out, how the book is turned, what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dadstorm.cli import main
from dadstorm.core.line import END
from dadstorm.core.rows import Rows
from dadstorm.loading import load
from dadstorm.operators import make_kernel
from dadstorm.plan import Plan
from dadstorm.spark.engine.book import STEP_BYTES, Book, Outcome, audited, first, next_length, turned
from dadstorm.spark.engine.drive import spread
from dadstorm.spark.engine.parcels import TILE_BYTES_MAX, received, sent, tiles
from dadstorm.spark.engine.stages import lay_out
from dadstorm.spark.engine.states import StateFile, restore, save
from dadstorm.spark.engine.store import Store
from dadstorm.spark.engine.task import Told

DIAMOND = """\
sources:
  made: {generate: {n: counter, k: {int: [0, 9]}}, count: 100}
operators:
  few:   {input: made, filter: n > 3}
  firsts: {input: few, uniq: k, slices: 3}
  both:  {input: [few, firsts], dup: , slices: 2}
  times: {input: both, count: k, slices: 4}
  all:   {input: both, count: }
sinks:
  table: {input: times, csv: t.csv}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "t.yaml").write_text(DIAMOND)
    return load(str(tmp_path / "t.yaml"), out=str(tmp_path / "out"))


def test_operators_without_state_run_with_their_inputs_and_those_with_state_in_the_next_stage(plan: Plan) -> None:
    stages = lay_out(spread(plan, 2), width=2)
    of = {operator.name: stage for operator, stage in zip(plan.operators, stages.of, strict=True)}
    assert (of["made"], of["few"], of["firsts"], of["both"], of["times"], of["all"]) == (0, 0, 1, 1, 2, 2)
    assert of["table"] == stages.count == 3
    assert stages.readers == ((0, 0), (0, 1))
    assert stages.partitions == (2, 2, 2)


def test_every_slice_is_in_one_partition_and_they_are_shared_out_evenly(plan: Plan) -> None:
    stages = lay_out(plan, width=4)
    times = plan.index("times")
    assert sorted(stages.partition(times, index) for index in range(4)) == [0, 1, 2, 3]


def test_steps_grow_to_the_weight_that_is_wanted_and_are_powers_of_two() -> None:
    assert next_length(1024, 0) == 16 * 1024
    assert next_length(1024, STEP_BYTES) == 1024
    assert next_length(1024, 3 * STEP_BYTES) == 256
    assert next_length(1, 100 * STEP_BYTES) == 1


def test_a_step_ends_at_a_multiple_of_its_length_wherever_it_begins() -> None:
    assert Book(1, (), (), cut=0, length=64).next == 64
    assert Book(1, (), (), cut=64, length=1024).next == 1024
    assert Book(1, (), (), cut=1024, length=256).next == 1280
    assert Book(1, (), (), cut=END - 5, length=1024).next < END


def test_a_gap_in_the_seqs_is_passed_over_at_once_and_a_step_begins_at_its_usual_place(plan: Plan) -> None:
    stages = lay_out(spread(plan, 2), 2)
    before = first(stages, 2)
    places = stages.readers

    def after(*nexts: int) -> int:
        found = Outcome(nbytes=STEP_BYTES)
        found.marks = {place: Told(None, False, next_) for place, next_ in zip(places, nexts, strict=True)}
        return turned(before, stages, 1024, found).cut

    far = [10**18 + n for n in range(len(places))]
    assert after(*far) == 10**18 // 1024 * 1024
    assert after(*([1024 * 2] * len(places))) == 2048
    assert after(*([1024 * 2 - 1] * len(places))) == 1024
    assert after(1025, *far[1:]) == 1024


def test_digests_are_added_up_over_steps_and_close_when_their_epoch_is_over(plan: Plan) -> None:
    plan = msgspec.structs.replace(plan, span=64)
    book, closed = audited(Book(1, (), (), cut=96), plan, [(0, 0, 60, 5), (0, 0, 4, 2**64 - 1), (0, 1, 32, 9)])
    assert [(one.epoch, one.rows, one.digest) for one in closed[0][1].digests] == [(0, 64, 4)]
    assert book.open == {0: {1: (32, 9)}}
    book, closed = audited(msgspec.structs.replace(book, cut=END), plan, [(0, 1, 4, 1)])
    assert [(one.number, one.epoch, one.rows, one.digest) for one in closed[0][1].digests] == [(1, 1, 36, 10)]
    assert closed[0][1].ended == 2
    assert [one.ended for _, one in closed[1:]] == [0] * (len(plan.operators) - 1)


def rows_of(keys: list[int]) -> Rows:
    seq = np.arange(len(keys), dtype=np.int64)
    table = pa.record_batch([pa.array(seq), pa.array(keys, pa.int64())], ["n", "k"])
    return Rows(seq, np.zeros_like(seq), table)


def test_tiles_are_cut_to_handy_size_and_come_back_as_they_were() -> None:
    rows = rows_of(list(range(2_000_000)))
    parcels = list(received(sent(tiles(1, 2, 3, 0, 5, rows))))
    assert len(parcels) > 1
    assert all(len(one.payload) <= 2 * TILE_BYTES_MAX for one in parcels)
    assert {(one.part, one.stage, one.operator, one.input, one.slice) for one in parcels} == {(1, 2, 3, 0, 5)}
    back = Rows.concat([one.rows(rows.data.schema) for one in parcels])
    assert (back.seq == rows.seq).all() and back.data.equals(rows.data)


def test_state_that_is_saved_in_pieces_is_the_state_that_comes_back(plan: Plan, tmp_path: Path) -> None:
    operator = plan["times"]
    kernel, kept = make_kernel(operator, plan), ()
    for cut in range(1, 12):
        kernel.process(rows_of([cut, cut % 3, 7]))
        found = save(kernel, str(tmp_path), kept, cut, "times.0", sync=False)
        assert found is not None
        kept = found
    assert save(kernel, str(tmp_path), kept, 12, "times.0", sync=False) is None
    assert len(kept) <= 4
    again = make_kernel(operator, plan)
    restore(again, str(tmp_path), kept)
    probe = rows_of(list(range(12)))
    assert again.process(probe).data.equals(kernel.process(probe).data)


def test_what_no_book_names_is_removed_when_the_store_is_opened(tmp_path: Path) -> None:
    store = Store(str(tmp_path), sync=False, check=lambda: None)
    assert store.read() is None
    for name in ("a", "b", "c"):
        (tmp_path / "state" / name).write_text("")
    before = Book(1, (), (), states={1: {0: (StateFile("a", 1),)}})
    store.write(Book(1, (), ()), before)
    assert store.read() == before
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["a"]
    (tmp_path / "state" / "d").write_text("")
    store.write(before, Book(1, (), (), cut=5, states={1: {0: (StateFile("d", 1),)}}))
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["d"]


REFUSED = """\
logging: full
hosts: {far: "10.0.0.9:10000"}
sources:
  live: {tcp: 127.0.0.1:7001}
  slow: {generate: {n: counter}, count: 5, rate: 1}
operators:
  there: {input: slow, filter: n > 1, on: far}
sinks:
  table: {input: there, spark: parquet, master: "local[2]"}
  lines: {input: live, csv: }
script: |
  Start there
"""


def test_everything_that_the_engine_refuses_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(REFUSED)
    assert main(["run", "t.yaml", "--engine", "spark", "--shake-batch", "3"]) == 2
    told = capsys.readouterr().err
    for part in ("--shake-batch", "script", "logging", "live:", "slow: rate", "there:", "table: master"):
        assert part in told
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--engine", "spark", "--master", "mesos://x"], 'found "mesos://x"; expected local'),
        (["--engine", "spark", "--master", "spark://nowhere"], "expected spark://HOST:PORT"),
        (["--engine", "spark", "--master", "spark://127.0.0.1:1"], "no Spark master can be reached"),
        (["--engine", "spark", "--conf", "x=1"], "begins with spark."),
        (["--engine", "spark", "--checkpoint", "wasb://x/y"], "expected a folder"),
        (["--engine", "spark", "--checkpoint", "s3a://x/y", "--audit"], "expected a folder of a disk"),
        (["--engine", "spark", "--resume"], "durable"),
        (["--master", "local[2]"], "only with --engine spark"),
    ],
)
def test_wrong_arguments_are_told_before_anything_starts(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(DIAMOND)
    assert main(["run", "t.yaml", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert not Path("runs").exists()
