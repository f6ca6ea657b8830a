"""Who has been replaced and lives on for a while: whatever it fails of stops nobody, and it writes nothing that counts.

A host hangs or is cut off, its replicas are taken over, and it wakes up: its replicas find their files gone. For them
that is the end; for the run, whose slices live elsewhere, it is nothing."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dadstorm.core.messages import DISK, Beat, Copy, Found, Held, Peer, Seek, Settle
from dadstorm.core.vault import Delta
from dadstorm.durable.disk import Disk
from dadstorm.durable.shelf import Rank, Shelf
from dadstorm.errors import RunFailed
from dadstorm.whereabouts import Whereabouts
from dadstorm.wire import control
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.endpoint import Endpoint
from pcs.known import Known
from puppetmaster.deployment import Deployment
from puppetmaster.hosts import Hosts
from puppetmaster.replicas import Replica
from tests.unit.durable_kit import ME, heard, held, plan_in, table

TOKEN = bytes(range(TOKEN_BYTES))
SUPERSEDED = Held(1, 0, 1, DISK, 0, -1, -1)
"""What tells the machine that there is a higher incarnation."""


def failed(incarnation: int | None, text: str = "why") -> control.Failed:
    return control.Failed(*ME, "run", text, incarnation)


# -- its disk ---------------------------------------------------------------------------------------------------------


def a_disk_and_a_successor(folder: Path) -> tuple[Disk, Shelf]:
    """A replica that has settled a cut, and who is about to take its place."""
    plan = plan_in(folder)
    assert plan.durable is not None
    disk = Disk(plan, ME)
    disk.take(Copy(1, 0, 0, 0, None, 6), table({"a": 1}))
    assert heard(disk, 2)[-1] == held(6, 6)
    return disk, Shelf(plan.durable.place, "cafe", "count", 0, Rank(1, 1))


def test_whose_files_are_gone_because_it_was_replaced_steps_down_and_does_not_fail(tmp_path: Path) -> None:
    disk, successor = a_disk_and_a_successor(tmp_path)
    successor.claim()
    successor.put([Delta(6, table({"a": 1}))], whole=True)
    disk.take(Copy(1, 0, 0, 0, 6, 9), table({"a": 2}))
    disk.take(Settle(1, 0, 0, 0, 9))
    assert heard(disk, 3) == [held(9, 6), held(9, 6), SUPERSEDED]
    found = successor.load()
    assert found is not None and (found.rank, found.delta.cut) == ((1, 1), 6)


def test_whose_files_are_gone_and_who_was_not_replaced_fails(tmp_path: Path) -> None:
    disk, successor = a_disk_and_a_successor(tmp_path)
    for path in Path(successor.folder).glob("*.state"):
        path.unlink()
    disk.take(Copy(1, 0, 0, 0, 6, 9), table({"a": 2}))
    disk.take(Settle(1, 0, 0, 0, 9))
    with pytest.raises(RunFailed, match=r"operator count, slice 0: .*1\.0-whole-6\.state: No such file"):
        heard(disk, 3)


def test_what_builds_on_a_piece_that_could_not_be_written_is_not_written_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor has claimed the slice, and dies before it writes anything: the next one reads what is there."""
    disk, successor = a_disk_and_a_successor(tmp_path)
    successor.claim()

    def refuse(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.take(Copy(1, 0, 0, 0, 6, 9), table({"b": 2}))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        disk.take(Settle(1, 0, 0, 0, 9))
        assert heard(disk, 3)[-1] == SUPERSEDED
    disk.take(Copy(1, 0, 0, 0, 9, 11), table({"c": 3}))
    disk.take(Settle(1, 0, 0, 0, 11))
    for other in (1, 2):  # The second is looked for after all that was to be written before the first was found.
        disk.take(Seek(1, 0, 0, (other,), 0))
        while heard(disk, 1)[-1] != Found(1, other, 0, 0, DISK, -1):
            pass
    found = successor.load()
    assert found is not None and found.delta.cut == 6


# -- how it hears of it -----------------------------------------------------------------------------------------------


def test_who_beats_from_where_it_no_longer_lives_is_told_where_its_successor_is() -> None:
    old, new = "tcp://127.0.0.3:1", "tcp://127.0.0.2:1"
    where = Whereabouts((("tcp://127.0.0.1:1",), (old, "tcp://127.0.0.2:2")))
    assert where.replaced(Beat(*ME, 0)) is None, "nobody has moved"
    moved = control.Moved(*ME, 2, new, "tcp://127.0.0.2:9", "a")
    where.move(moved)
    assert where.replaced(Beat(*ME, 0)) == (old, moved)
    assert where.replaced(Beat(*ME, 2)) is None and where.replaced(Beat(1, 1, 0)) is None
    where.move(control.Moved(*ME, 4, new, "tcp://127.0.0.2:9", "a"))
    assert where.replaced(Beat(*ME, 4)) is None


# -- who hears of it --------------------------------------------------------------------------------------------------


@pytest.fixture
def heard_by(short_tmp: Path, tmp_path: Path) -> Iterator[tuple[Deployment, Endpoint]]:
    """A PuppetMaster that knows a replica in its second incarnation, and somebody who talks to it."""
    endpoint, other = Endpoint(TOKEN), Endpoint(TOKEN)
    address = endpoint.bind(f"ipc://{short_tmp}/master")
    plan = plan_in(tmp_path)
    hosts = Hosts(plan, endpoint, TOKEN, f"ipc://{short_tmp}/pcs", keys=False)
    deployment = Deployment(plan, endpoint, hosts, str(tmp_path), print, control.Shake())
    deployment.replicas[ME] = Replica(address=f"ipc://{short_tmp}/old", pid=1, alive=True)
    other.send(address, control.Hello(*ME, 2, f"ipc://{short_tmp}/new", 1))
    yield deployment, other
    endpoint.close()
    other.close()


def listen(deployment: Deployment, until_finished: bool = True) -> None:
    """Take in what comes, up to the word that a replica is finished."""
    deadline = time.monotonic() + 20
    while not (until_finished and deployment.replicas[ME].finished):
        assert time.monotonic() < deadline, "nothing more came"
        deployment.listen(10)


def test_the_puppetmaster_passes_over_the_failure_of_one_that_was_replaced(
    heard_by: tuple[Deployment, Endpoint], short_tmp: Path
) -> None:
    deployment, other = heard_by
    other.send(f"ipc://{short_tmp}/master", failed(0, "its files are gone"))
    other.send(f"ipc://{short_tmp}/master", control.Finished(*ME))
    with capture_logs() as logs:
        listen(deployment)
    assert [entry["text"] for entry in logs if entry["event"] == "one that was replaced has failed"] == [
        "its files are gone"
    ]


def test_a_death_counts_once_and_only_that_of_who_lives(
    heard_by: tuple[Deployment, Endpoint], short_tmp: Path
) -> None:
    """Processes of two hosts may have the same number; a PCS that was started again tells what was told before."""
    deployment, other = heard_by
    master = f"ipc://{short_tmp}/master"
    with capture_logs():
        other.send(master, control.Died(*ME, 2, 3, 0, recovers=True))
        other.send(master, control.Finished(*ME))
        listen(deployment)
        assert (deployment.replicas[ME].incarnation, deployment.replicas[ME].alive) == (1, True)
        for _ in range(2):
            deployment.replicas[ME].finished = False
            other.send(master, control.Died(*ME, 2, -9, 1, recovers=True))
            other.send(master, control.Finished(*ME))
            listen(deployment)
            assert (deployment.replicas[ME].incarnation, deployment.replicas[ME].alive) == (2, False)


@pytest.mark.parametrize("incarnation", [1, 2, None])
def test_the_failure_of_whoever_lives_or_of_all_ends_the_run(
    heard_by: tuple[Deployment, Endpoint], short_tmp: Path, incarnation: int | None
) -> None:
    deployment, other = heard_by
    other.send(f"ipc://{short_tmp}/master", failed(incarnation))
    with capture_logs(), pytest.raises(RunFailed, match="why"):
        listen(deployment, until_finished=False)


def test_a_pcs_passes_over_it_too_also_when_it_hears_later_who_lives(tmp_path: Path) -> None:
    known = Known(plan_in(tmp_path))
    known.lives(ME, 1)
    with capture_logs() as logs:
        known.fail(failed(0))
    assert known.failure is None and len(logs) == 1
    known.fail(failed(1))
    assert known.failure == failed(1) and "why" in str(known.over())
    known.move(control.Moved(*ME, 2, "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "b"))
    assert known.failure is None
    known.fail(failed(None))
    known.lives(ME, 5)
    assert known.failure == failed(None), "nobody can take its place, whatever its number"
    known.failure = None
    known.fail(control.Failed(0, 0, "run", "of another one", 0))
    assert known.failure is not None and Peer(known.failure.operator, known.failure.replica) != ME
