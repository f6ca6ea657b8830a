"""A disk that fails: a clear stop, nothing is told to be there that is not, and who comes back finds what was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from select import select

import pytest

from dadstorm.core.line import END, START
from dadstorm.core.messages import DISK, Copy, Found, Held, Peer, Seek, Settle
from dadstorm.durable import files
from dadstorm.durable.disk import Disk
from dadstorm.durable.kept import kept
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator, Plan
from dadstorm.sinks import make_sink, parquet
from dadstorm.sinks.base import Mark, Sink
from dadstorm.sources.journal import LEASE, RECORDS, Journal
from tests.unit.durable_kit import heard, plan_in, table
from tests.unit.failing_kit import Platters, Syncs, small_files
from tests.unit.sink_kit import rows_of, sink_operator

# -- state on disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_that_could_not_be_synced_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    syncs = Syncs(monkeypatch)
    path = tmp_path / "f"
    files.write(str(path), b"old")
    assert syncs.count == 2, "the file and its folder"
    syncs.fails = 2 + number
    with pytest.raises(OSError, match="Input/output error"):
        files.write(str(path), b"new")
    assert files.read(str(path))[0] == (b"old", b"new")[number]
    assert os.listdir(tmp_path) == ["f"]
    files.write(str(path), b"new")
    assert files.read(str(path))[0] == b"new"


COUNT, SINK = Peer(1, 0), Peer(2, 0)


def settling(disk: Disk, me: Peer, cut: int, keys: int = 1) -> None:
    """Have a copy that follows the one at 6 settled."""
    disk.take(Copy(me.operator, 0, 0, 0, 6, cut), table({f"k{n}": n for n in range(keys)}))
    disk.take(Settle(me.operator, 0, 0, 0, cut))


def begun(folder: Path, me: Peer) -> Disk:
    """A disk on which the state at 6 is settled."""
    plan = plan_in(folder)
    if plan.operators[me.operator].kind == "sink":
        output = Path(plan.operators[me.operator].params["path"])
        output.parent.mkdir()
        output.write_text("")
    disk = Disk(plan, me)
    disk.take(Copy(me.operator, 0, 0, 0, None, 6), table({"a": 1}))
    assert heard(disk, 2)[-1] == Held(me.operator, 0, 0, DISK, 0, 6, 6)
    return disk


def fails(disk: Disk, why: str) -> list[Held | Found]:
    """What the machine hears up to the failure; who asks again hears of it again, and of nothing else."""
    told: list[Held | Found] = []
    with pytest.raises(RunFailed, match=why):
        while select([disk.wake_fd], [], [], 20)[0]:
            for message, _ in disk.answers():
                told.append(message)
    with pytest.raises(RunFailed, match=why):
        list(disk.answers())
    return told


def resumed(folder: Path, me: Peer, disk: Disk) -> Found:
    """What the next life finds."""
    os.close(disk.lock_fd)  # The lock of a process that has ended.
    after = Disk(plan_in(folder, life=2), me)
    after.take(Seek(me.operator, 0, 0, (0,), 0))
    (found,) = heard(after, 1)
    assert isinstance(found, Found)
    return found


@pytest.mark.parametrize(("me", "number"), [*((COUNT, n) for n in range(2)), *((SINK, n) for n in range(4))])
def test_what_could_not_be_synced_is_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, me: Peer, number: int
) -> None:
    """A piece and its folder; of a sink, before that, its output and the folder of that."""
    disk = begun(tmp_path, me)
    syncs = Syncs(monkeypatch)
    syncs.fails = number
    settling(disk, me, 9)
    why = r", slice 0: cannot write .*: Input/output error\. Nothing that was kept .*look after that disk.*--resume"
    told = fails(disk, why)
    assert told and all(isinstance(one, Held) and one.settled == 6 for one in told)
    settling(disk, me, 11)
    assert all(isinstance(one, Held) and one.settled == 6 for one in fails(disk, why))
    assert syncs.count == number + 1, "nothing is tried again"
    last = number == {COUNT: 1, SINK: 3}[me]
    assert resumed(tmp_path, me, disk).cut == (9 if last else 6), "one whose name alone was not synced may be there"


@pytest.mark.parametrize("number", range(6))
def test_of_the_first_sync_that_fails_it_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Those of the folders, of which each is new, and of the first piece."""
    syncs = Syncs(monkeypatch)
    syncs.fails = number
    disk = Disk(plan_in(tmp_path), COUNT)
    disk.take(Copy(1, 0, 0, 0, None, 6), table({"a": 1}))
    told = fails(disk, r"operator count.*: cannot write .*state.*: Input/output error\. Nothing that was kept")
    assert all(isinstance(one, Held) and one.settled == START for one in told)


def test_a_full_disk_settles_nothing_more_and_loses_nothing(tmp_path: Path) -> None:
    disk = begun(tmp_path, COUNT)
    with small_files(20_000):
        settling(disk, COUNT, 9, keys=9000)
        told = fails(disk, r"operator count, slice 0: cannot write .*: File too large.*raise the limit")
    assert told and all(isinstance(one, Held) and one.settled == 6 for one in told)
    found = resumed(tmp_path, COUNT, disk)
    assert found == Found(1, 0, 0, -1, DISK, 6)
    assert not list((tmp_path / "state").rglob("*.tmp"))


def test_a_run_whose_manifest_cannot_be_synced_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept(plan_in(tmp_path), resume=False) as run:
        syncs = Syncs(monkeypatch)
        syncs.fails = 0
        with pytest.raises(RunFailed, match=r"durable: cannot write .*run\.state: Input/output error"):
            run.started()
    with kept(plan_in(tmp_path), resume=False) as run:
        run.started()


# -- the journal ------------------------------------------------------------------------------------------------------

FIRST, SECOND, THIRD = (RECORDS, 10, b"one\ntwo\n"), (RECORDS, 12, b"three\n"), (LEASE, 50, b"")


def journal(path: Path) -> Journal:
    return Journal(str(path), "live", {"format": "text"}, fsync=True)


def frames(one: Journal) -> Iterator[tuple[int, int, bytes]]:
    for frame in one.frames(one.start):
        yield frame.kind, frame.seq, frame.lines


def test_a_frame_that_could_not_be_synced_is_on_the_disk_before_anybody_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has it, and after the error the system takes it for written. A power cut would take it away again, with
    all that was emitted of it."""
    one = journal(tmp_path / "j")
    one.append(*FIRST)
    platters, offset = Platters(monkeypatch, (tmp_path / "j").read_bytes()), one.offset
    platters.failing = True
    with pytest.raises(RunFailed, match=r"journal .*j: cannot be written: Input/output error; nothing that was not"):
        one.append(*SECOND)
    assert one.offset == offset
    one.close()
    again = journal(tmp_path / "j")
    found = frames(again)
    assert next(found) == FIRST
    with pytest.raises(RunFailed, match="cannot be written: Input/output error"):
        next(found)
    again.close()
    platters.failing = False
    again = journal(tmp_path / "j")
    assert list(frames(again)) == [FIRST, SECOND]
    assert frames_in(platters.image, tmp_path) == [FIRST, SECOND]
    again.append(*THIRD)
    assert frames_in(platters.image, tmp_path) == [FIRST, SECOND, THIRD]
    again.close()


def frames_in(image: bytearray, folder: Path) -> list[tuple[int, int, bytes]]:
    """What a journal has after a power cut."""
    (folder / "after").write_bytes(image)
    one = Journal(str(folder / "after"), "live", {"format": "text"})
    try:
        return list(frames(one))
    finally:
        one.close()


@pytest.mark.parametrize("number", range(3))
def test_a_journal_that_cannot_be_made_to_last_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The folder above its own, its header, and its folder; the last is also synced for one that was there."""
    path = tmp_path / "journal" / "j"
    syncs = Syncs(monkeypatch)
    for attempt in range(2 if number == 2 else 1):
        syncs.count, syncs.fails = 0, (number, 0)[attempt]
        with pytest.raises(RunFailed, match=r"journal .*j: cannot be opened: Input/output error"):
            journal(path)
    one = journal(path)
    one.append(*FIRST)
    one.close()
    assert [name.name for name in path.parent.iterdir()] == ["j"]


# -- sinks ------------------------------------------------------------------------------------------------------------

FORMS = ["csv", "jsonl", "parquet", "spool"]
ROWS = rows_of([(f"word {n}", n) for n in range(9)])
STEPS = ((0, 3), (3, 6), (6, 9))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a Parquet sink is complete in the middle of the second step."""
    monkeypatch.setattr(parquet, "PART_ROWS", 5)


def operator(form: str, folder: Path) -> Operator:
    return sink_operator(form, folder / "out", fsync=True, **({"commit_every_ms": 0} if form == "spool" else {}))


def opened(form: str, folder: Path, mark: Mark | None = None, cut: int = START) -> Sink:
    one = operator(form, folder)
    return make_sink(one, Plan("t", (one,)), mark=mark, cut=cut, run="ab")


def step(sink: Sink, start: int, end: int) -> None:
    """Write the rows of a step and have them committed; with the last the line ends."""
    sink.write(ROWS.slice(start, end))
    cut = END if end == len(ROWS) else end
    sink.commit(cut)
    assert sink.committed == cut


def output(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def calm(form: str, folder: Path, syncs: Syncs) -> list[int]:
    """What a sink writes when nothing happens; how many syncs each step takes."""
    sink, counts = opened(form, folder), []
    for start, end in STEPS:
        before = syncs.count
        step(sink, start, end)
        counts.append(syncs.count - before)
    sink.close()
    return counts


@pytest.mark.parametrize("form", FORMS)
def test_a_sink_that_cannot_sync_commits_nothing_and_who_resumes_leaves_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    syncs = Syncs(monkeypatch)
    counts = calm(form, tmp_path / "calm", syncs)
    assert all(counts)
    for number, count in enumerate(counts):
        for which in range(count):
            folder = tmp_path / f"{number}.{which}"
            sink = opened(form, folder)
            for done in STEPS[:number]:
                step(sink, *done)
            mark, cut = sink.mark(), STEPS[number][0]
            syncs.fails = syncs.count + which
            with pytest.raises(RunFailed, match=r"sink out: cannot write .*out: Input/output error; look after that"):
                step(sink, *STEPS[number])
            assert sink.mark() == mark
            sink.close()
            again = opened(form, folder, mark, cut) if number else opened(form, folder)
            assert again.committed == cut
            for more in STEPS[number:]:
                step(again, *more)
            again.close()
            assert output(folder) == output(tmp_path / "calm")


def test_a_spool_is_synced_before_it_is_taken_for_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes it may die between the rename of a range and the sync of the folder: its name is not on the disk yet,
    and who comes next finds that there is nothing to do for those rows."""
    syncs = Syncs(monkeypatch)
    sink = opened("spool", tmp_path)
    step(sink, *STEPS[0])
    syncs.fails = syncs.count
    with pytest.raises(RunFailed, match=r"sink out: cannot write .*: Input/output error"):
        opened("spool", tmp_path, sink.mark(), 3)


@pytest.mark.parametrize("form", FORMS)
def test_a_sink_on_a_full_disk_commits_nothing_and_with_more_room_it_goes_on(tmp_path: Path, form: str) -> None:
    sink = opened(form, tmp_path / "calm")
    for one in STEPS:
        step(sink, *one)
    sink.close()
    sink = opened(form, tmp_path / "full")
    step(sink, *STEPS[0])
    mark = sink.mark()
    largest = max(path.stat().st_size for path in (tmp_path / "full").rglob("*") if path.is_file())
    with (
        small_files(min(largest, 600) + 3),
        pytest.raises(RunFailed, match=r"sink out: cannot write .*out: File too large; raise the limit on file sizes"),
    ):
        step(sink, *STEPS[1])
    assert sink.mark() == mark
    sink.close()
    again = opened(form, tmp_path / "full", mark, 3)
    for one in STEPS[1:]:
        step(again, *one)
    again.close()
    assert output(tmp_path / "full") == output(tmp_path / "calm")


# -- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_folders_that_a_sink_makes_will_be_there_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    syncs = Syncs(monkeypatch)
    syncs.fails = 0
    with pytest.raises(RunFailed, match=r"sink out: cannot write .*: Input/output error"):
        opened(form, tmp_path / "new" / "deep")
    assert (tmp_path / "new").is_dir() and not (tmp_path / "new" / "deep").exists()
