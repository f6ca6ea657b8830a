"""State on disk: what is read is what was settled, to the bit, or a clear stop that names the file."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dadstorm import topology
from dadstorm.core.keeper import Keeper
from dadstorm.core.line import END, START
from dadstorm.core.messages import DISK, Copy, Found, Held, Peer, Seek, Settle
from dadstorm.core.vault import DRAINED, Delta, Vault
from dadstorm.durable import files
from dadstorm.durable.disk import Disk
from dadstorm.durable.files import Damaged
from dadstorm.durable.kept import Kept, ended, kept, matters
from dadstorm.durable.shelf import Rank, Settled, Shelf
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Durable, Plan
from dadstorm.wire.codec import Rubbish, decode, encode
from pcs.policy import Policy
from tests.unit.durable_kit import ME, Changes, heard, held, plan_in, table


def state(delta: Delta) -> tuple[int, dict[str, int], object]:
    """A snapshot as plain data."""
    rows = [] if delta.table is None else delta.table.to_pylist()
    assert not any(row["gone"] for row in rows)
    return delta.cut, {row["key_0"]: row["value"] for row in rows}, delta.mark


def shelf(place: Path, life: int = 1, incarnation: int = 0) -> Shelf:
    return Shelf(str(place), "cafe", "count", 3, Rank(life, incarnation))


def loaded(place: Path) -> Settled | None:
    return shelf(place, 99).load()


CHANGES = st.dictionaries(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.integers(-9, 9)), max_size=8)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_the_disk_has_what_a_vault_has(
    tmp_path: Path, steps: list[tuple[Changes, bool]], successions: set[int]
) -> None:
    """Whatever is settled together, and however often another incarnation takes over."""
    shutil.rmtree(tmp_path / "count", ignore_errors=True)
    vault, ours, waiting, incarnation = Vault(), shelf(tmp_path), [], 0
    whole = True
    for number, (changes, settles) in enumerate(steps):
        delta = Delta(number + 1, table(changes) if changes else None, {"at": number})
        vault.add(delta)
        waiting.append(delta)
        if settles:
            vault.settle(delta.cut)
            ours.put(waiting, whole=whole)
            waiting, whole = [], False
            found = loaded(tmp_path)
            assert found is not None and state(found.delta) == state(vault.base())
            assert found.rank == (1, incarnation)
        if number in successions and vault.settled:
            incarnation += 1
            ours = shelf(tmp_path, 1, incarnation)
            ours.put([vault.base()], whole=True)
            whole = False
            assert [name.split("-")[0] for name in os.listdir(ours.folder)] == [f"1.{incarnation}"]


def test_a_shelf_where_nothing_was_settled_is_empty(tmp_path: Path) -> None:
    assert loaded(tmp_path) is None
    shelf(tmp_path).claim()
    assert loaded(tmp_path) is None


def test_disk_use_is_that_of_the_state(tmp_path: Path) -> None:
    """Many settled cuts that change the same keys over and over."""
    ours = shelf(tmp_path)
    keys = [f"key {n:05d}" for n in range(20_000)]
    ours.put([Delta(1, table(dict.fromkeys(keys, 1)))], whole=True)
    whole_bytes = sum(path.stat().st_size for path in Path(ours.folder).iterdir())
    most_bytes = most_files = 0
    for step in range(100):
        ours.put([Delta(2 + step, table({key: step for key in keys[step % 10 :: 20]}))], whole=False)
        sizes = [path.stat().st_size for path in Path(ours.folder).iterdir()]
        most_bytes, most_files = max(most_bytes, sum(sizes)), max(most_files, len(sizes))
    assert most_bytes < 2.1 * whole_bytes
    assert most_files <= 8


@contextmanager
def small_shelf(place: Path) -> Iterator[Path]:
    """A shelf with a large and a small piece; all of its files are needed."""
    ours = shelf(place)
    ours.put([Delta(7, table({f"k{n}": n for n in range(1500)}), {"offset": 70})], whole=True)
    ours.put([Delta(9, table({"a": 10, "k0": None}), {"offset": 90})], whole=False)
    folder = Path(ours.folder)
    assert sorted(os.listdir(folder)) == ["1.0-7-9.state", "1.0-whole-7.state"]
    yield folder


def damaged(path: Path, bit_step: int = 1, byte_step: int = 1) -> Iterator[str]:
    """The file with each of its bits flipped, and cut short at each byte; in the end it is as it was."""
    data = path.read_bytes()
    with open(path, "r+b", buffering=0) as file:
        for bit in [*range(0, 8 * 200), *range(8 * 200, 8 * len(data), bit_step)]:
            if bit < 8 * len(data):
                os.pwrite(file.fileno(), bytes([data[bit // 8] ^ 1 << bit % 8]), bit // 8)
                yield f"bit {bit} flipped"
                os.pwrite(file.fileno(), data[bit // 8 : bit // 8 + 1], bit // 8)
        for size in range(len(data) - 1, -1, -byte_step):
            os.truncate(file.fileno(), size)
            yield f"cut to {size} bytes"
        os.pwrite(file.fileno(), data, 0)


def test_every_flipped_bit_and_every_truncation_is_found(tmp_path: Path) -> None:
    ours = shelf(tmp_path)
    ours.put([Delta(7, table({"a": 1, "b": 2}), {"offset": 70})], whole=True)
    for how in damaged(Path(ours.folder) / "1.0-whole-7.state"):
        with pytest.raises(Damaged, match=r"1\.0-whole-7\.state is damaged: "):
            pytest.fail(f"{how}: {loaded(tmp_path)}")
    found = loaded(tmp_path)
    assert found is not None and state(found.delta) == (7, {"a": 1, "b": 2}, {"offset": 70})


def test_damage_of_each_of_several_files_is_found(tmp_path: Path) -> None:
    with small_shelf(tmp_path) as folder:
        for name in ("1.0-7-9.state", "1.0-whole-7.state"):
            for how in damaged(folder / name, 1999, 401):
                with pytest.raises(Damaged, match=name):
                    pytest.fail(f"{how}: {loaded(tmp_path)}")
        found = loaded(tmp_path)
        assert found is not None and found.delta.cut == 9


def test_a_file_of_another_slice_or_under_another_name_is_not_taken(tmp_path: Path) -> None:
    with small_shelf(tmp_path) as folder:
        (folder / "1.0-7-9.state").rename(folder / "1.0-7-8.state")
        with pytest.raises(Damaged, match=r"1\.0-7-8\.state.* under this one's name"):
            loaded(tmp_path)
        shutil.copytree(folder, folder.parent / "4")
        with pytest.raises(Damaged, match="under this one's name"):
            Shelf(str(tmp_path), "cafe", "count", 4, Rank(2, 0)).load()


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    with small_shelf(tmp_path) as folder:
        (folder / "1.0-whole-7.state").unlink()
        with pytest.raises(Damaged, match="the file with the state at 7 is missing"):
            loaded(tmp_path)


def test_whatever_a_dying_writer_leaves_behind_does_no_harm(tmp_path: Path) -> None:
    """Files that are being written, and files that were swallowed and not yet removed."""
    ours = shelf(tmp_path)
    ours.put([Delta(7, table({"a": 1}))], whole=True)
    shutil.copytree(ours.folder, tmp_path / "before")
    ours.put([Delta(9, table({"b": 2}))], whole=False)
    shutil.copytree(tmp_path / "before", ours.folder, dirs_exist_ok=True)
    (Path(ours.folder) / "1.0-9-11.state.tmp").write_bytes(b"half a fi")
    found = loaded(tmp_path)
    assert found is not None and state(found.delta) == (9, {"a": 1, "b": 2}, None)


def test_a_zombie_settles_nothing_after_its_successor_has_read(tmp_path: Path) -> None:
    zombie, successor = shelf(tmp_path), shelf(tmp_path, 1, 1)
    zombie.put([Delta(7, table({"a": 1}))], whole=True)
    assert zombie.superseded_by() is None
    successor.claim()
    zombie.put([Delta(9, table({"a": 2}))], whole=False)
    assert zombie.superseded_by() == (1, 1), "so it will not tell anybody that 9 is settled"
    successor.put([Delta(7, table({"a": 1}))], whole=True)
    found = loaded(tmp_path)
    assert found is not None and found.delta.cut == 7


# -- copies on the wire, and elsewhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [Copy(1, 0, 0, 0, None, 7, {"at": 1}), Found(1, 0, 1, 0, 1, 7, {"at": 1})])
def test_a_copy_that_was_damaged_on_its_way_is_never_taken(message: Copy | Found) -> None:
    """It is dropped, and sent again: as if it had been lost."""
    token = bytes(range(16))
    frames = [bytes(frame) for frame in encode(token, message, table({"a": 1, "b": None}))]
    assert decode(token, frames)[0] == message
    for number, frame in enumerate(frames):
        bad = [frame[:size] for size in range(len(frame))]
        for bit in range(8 * len(frame)):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            bad.append(bytes(flipped))
        for one in bad:
            with pytest.raises(Rubbish):
                decode(token, [one if index == number else other for index, other in enumerate(frames)])


def test_a_slice_that_is_resumed_is_safe_of_its_cut_only_when_all_its_holders_have_settled_it() -> None:
    """One of them gave it the snapshot; of the others nobody knows. Producers must not forget before."""
    peers = {Peer(1, 1): 0, Peer(1, DISK): 0}
    keeper = Keeper(Peer(1, 0), 0, 1, Vault(Delta(8, table({"a": 1}))))
    assert [action.message.cut for action in keeper.hold_at(peers)] == [8, 8]
    assert keeper.safe == 0
    list(keeper.held(Held(1, 0, 1, 1, 0, 8, 8)))
    assert keeper.safe == 0
    list(keeper.held(Held(1, 0, 1, DISK, 0, 8, 8)))
    assert keeper.safe == 8


def test_what_a_run_is_compared_by_is_what_it_always_was(tmp_path: Path) -> None:
    """A run that was begun by an earlier version can be resumed by this one."""
    for told in matters(plan_in(tmp_path))["operators"].values():
        assert set(told) == {
            "kind", "params", "inputs", "fields", "slices", "routing", "input_bits", "output_bits", "on_error",
        }  # fmt: skip


def test_a_pcs_lets_state_be_written_where_results_may_be(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    allowed, elsewhere = Policy("127.0.0.1", "runs", out=(str(tmp_path),)), Policy("127.0.0.1", "runs", out=("/srv",))
    assert allowed.problems(plan, "localhost") == []
    assert any("durable: " in problem and "--out" in problem for problem in elsewhere.problems(plan, "localhost"))
    for run in ("../x", "CAFE", "0" * 99):
        sly = msgspec.structs.replace(plan, durable=Durable(str(tmp_path / "state"), run))
        assert [p for p in allowed.problems(sly, "localhost") if "is no run" in p]


# -- the disk as a holder --------------------------------------------------------------------------------------------


def test_a_copy_is_acknowledged_at_once_and_a_settled_cut_when_it_is_on_the_disk(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    disk = Disk(plan, ME)
    disk.take(Copy(1, 0, 0, 0, None, 0))
    disk.take(Copy(1, 0, 0, 0, 0, 4), table({"a": 1}))
    disk.take(Copy(1, 0, 0, 0, 4, 8), table({"b": 1}))
    assert heard(disk, 3) == [held(0, 0), held(4, 0), held(8, 0)]
    disk.take(Settle(1, 0, 0, 0, 4))
    assert heard(disk, 2) == [held(8, 0), held(4, 4)]
    disk.take(Copy(1, 0, 0, 0, 4, 8), table({"b": 1}))
    disk.take(Settle(1, 0, 0, 0, 4))
    assert heard(disk, 2) == [held(8, 4), held(8, 4)], "what comes again changes nothing"

    after = Disk(plan_in(tmp_path, life=2), ME)
    after.take(Seek(1, 0, 0, (0,), 0))
    # The one before us is still there: nothing is read before its process has ended, here given by its lock.
    time.sleep(0.1)
    assert not list(after.answers())
    os.close(disk.lock_fd)
    (found,) = heard(after, 1)
    assert found == Found(1, 0, 0, -1, DISK, 4)


def test_an_incarnation_that_resumes_with_a_whole_copy_is_settled_when_that_is_on_the_disk(tmp_path: Path) -> None:
    disk = Disk(plan_in(tmp_path), ME)
    disk.take(Copy(1, 0, 0, 0, None, 6), table({"a": 1}))
    assert heard(disk, 2) == [held(6, 0), held(6, 6)]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def made_unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [(cut_short, r".*1\.0-whole-7\.state is damaged"), (made_unreadable, "\\S+ cannot be read: Is a directory")],
)
def test_damage_stops_the_run_if_the_disk_is_all_there_is_and_else_another_copy_is_used(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    plan = plan_in(tmp_path)
    assert plan.durable is not None
    ours = Shelf(plan.durable.place, "cafe", "count", 0, Rank(1, 0))
    ours.put([Delta(7, table({"a": 1}))], whole=True)
    spoil(Path(ours.folder) / "1.0-whole-7.state")
    everybody_died = Disk(plan_in(tmp_path, life=2), ME)
    everybody_died.take(Seek(1, 0, 0, (0,), 0))
    with pytest.raises(RunFailed, match=f"operator count, slice 0: {why}.*restore it"):
        heard(everybody_died, 1)
    one_died = Disk(plan, ME)
    one_died.take(Seek(1, 0, 1, (0,), 1))
    assert heard(one_died, 1) == [Found(1, 0, 1, 0, DISK, -1)]


def test_a_disk_that_cannot_be_written_is_a_clear_stop_and_what_was_settled_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path]).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        disk = Disk(plan_in(tmp_path), ME)
        disk.take(Copy(1, 0, 0, 0, None, 6), table({"a": 1}))
        assert heard(disk, 2)[-1] == held(6, 6)
        disk.take(Copy(1, 0, 0, 0, 6, 9), table({f"k{n}": n for n in range(9000)}))
        disk.take(Settle(1, 0, 0, 0, 9))
        with pytest.raises(RunFailed, match=r"operator count, slice 0: cannot write .*: No space left on device.*free"):
            heard(disk, 4)
        os.close(disk.lock_fd)
        after = Disk(plan_in(tmp_path, life=2), ME)
        after.take(Seek(1, 0, 0, (0,), 0))
        assert heard(after, 1) == [Found(1, 0, 0, -1, DISK, 6)]
        os.close(after.lock_fd)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


# -- the run as a whole ----------------------------------------------------------------------------------------------


def begun(plan: Plan, *, resume: bool = False, ends: bool = False) -> Kept:
    """A run that is started and ends, or is killed."""
    with kept(plan, resume=resume) as run:
        run.started()
        if ends:
            assert ended(run.plan)
    return run


def test_a_run_that_was_killed_is_resumed_and_not_begun_again(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    first = begun(plan).plan.durable
    assert first is not None and first.life == 1
    with pytest.raises(UserError, match=r"holds a run of t that has not ended.*--resume.*or remove the folder"):
        begun(plan)
    for life in (2, 3):
        assert begun(plan, resume=True).plan.durable == Durable(first.folder, first.run, life)
    assert begun(plan, resume=True, ends=True).plan.durable == Durable(first.folder, first.run, 4)
    with pytest.raises(UserError, match="the last run is complete"):
        begun(plan, resume=True)
    second = begun(plan).plan.durable
    assert second is not None and second.run != first.run and second.life == 1


def test_who_ends_a_run_that_was_started_elsewhere_leaves_its_files(tmp_path: Path) -> None:
    plan = begun(plan_in(tmp_path)).plan
    shutil.rmtree(tmp_path / "state")
    assert not ended(plan)
    assert ended(msgspec.structs.replace(plan, durable=None)), "then there is nothing to leave"


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    with pytest.raises(UserError, match=r"nothing to go on with in .*: no run was started"):
        begun(plan, resume=True)
    assert not (tmp_path / "state").exists()
    with pytest.raises(UserError, match="does not say durable: DIR"):
        begun(msgspec.structs.replace(plan, durable=None), resume=True)


def test_a_run_that_never_began_leaves_nothing_to_resume(tmp_path: Path) -> None:
    with kept(plan_in(tmp_path), resume=False) as run:
        run.started()
        run.never_began()
    begun(plan_in(tmp_path))


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with kept(plan_in(tmp_path), resume=False) as run:
        run.started()
        with pytest.raises(UserError, match="in use by another run"):
            begun(plan_in(tmp_path), resume=True)


def test_what_differs_is_told_and_what_does_not_matter_may_differ(tmp_path: Path) -> None:
    begun(plan_in(tmp_path))
    text = (tmp_path / "t.yaml").read_text()

    def changed(new: str) -> Plan:
        (tmp_path / "t.yaml").write_text(new)
        return topology.load(str(tmp_path / "t.yaml"), sink="csv", out=str(tmp_path / "out"))

    same = text.replace("rate: 5", "rate: 6").replace("}}\n", ", slices: 1, replicas: 2}}\n", 1) + "window: 100\n"
    begun(changed(same), resume=True)
    other = text.replace("count: item", "count: n").replace("9", "10").replace("count: {input", "sum: {input")
    with pytest.raises(UserError) as caught:
        begun(changed(f"{other}seed: 5\n"), resume=True)
    told = str(caught.value)
    for line in ("seed: was 0, is 5", "numbers: count: was 9, is 10", "count: is gone", "sum: is new"):
        assert f"  {line}\n" in f"{told}\n"


def test_every_flipped_bit_and_every_truncation_of_the_manifest_is_found(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    begun(plan)
    for number, how in enumerate(damaged(tmp_path / "state" / "run.state")):
        with pytest.raises(UserError, match=r"run\.state is damaged: "):
            pytest.fail(f"{how}: {begun(plan, resume=bool(number % 2))}")


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    assert files.write(str(tmp_path / "f"), b"head", b"body") == (tmp_path / "f").stat().st_size
    assert [bytes(part) for part in files.read(str(tmp_path / "f"))] == [b"head", b"body"]
    with pytest.raises(OSError):
        files.write(str(tmp_path / "no" / "f"), b"head")
    (tmp_path / "g").mkdir()
    with pytest.raises(OSError):
        files.write(str(tmp_path / "g"), b"head")
    assert sorted(os.listdir(tmp_path)) == ["f", "g"]


@pytest.mark.parametrize("cut", [START, 6])
def test_that_a_stream_is_drained_is_on_the_disk_before_anybody_is_told_that_it_is_known(
    tmp_path: Path, cut: int
) -> None:
    plan, ends = plan_in(tmp_path), {"at": 9, DRAINED: True}
    disk = Disk(plan, ME)
    disk.take(Copy(1, 0, 0, 0, None, START))
    if cut:
        disk.take(Copy(1, 0, 0, 0, START, cut, {"at": cut}))
        disk.take(Settle(1, 0, 0, 0, cut))
        assert heard(disk, 4)[-1] == held(cut, cut)
    else:
        assert heard(disk, 1) == [held(START, START)]
    for _ in range(2):  # It is said again until it is heard.
        disk.take(Copy(1, 0, 0, 0, cut, END, ends))
    assert heard(disk, 3)[-1] == held(END, cut)
    assert plan.durable is not None
    place = Shelf(plan.durable.place, "cafe", "count", 0, Rank(2, 0))
    settled = place.load()
    there = {"at": cut, DRAINED: True} if cut else {DRAINED: True}
    assert settled is not None and (settled.delta.cut, settled.delta.mark) == (cut, there)
    disk.take(Settle(1, 0, 0, 0, END))
    assert heard(disk, 2)[-1] == held(END, END)
    settled = place.load()
    assert settled is not None and (settled.delta.cut, settled.delta.mark) == (END, ends)
    disk.clear()
