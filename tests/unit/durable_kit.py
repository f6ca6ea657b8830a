"""What the tests of state on disk share: a durable plan, changes of keys as tables, and the disk as its machine hears
it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pyarrow as pa

from dadstorm import topology
from dadstorm.core.messages import DISK, Found, Held, Peer
from dadstorm.durable.disk import Disk
from dadstorm.plan import Durable, Plan

Changes = dict[str, int | None]


def table(changes: Changes) -> pa.RecordBatch:
    """Some keys and what became of them; None: the key is gone."""
    columns = [list(changes), [value or 0 for value in changes.values()], [v is None for v in changes.values()]]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.int64()), pa.array(columns[2], pa.bool_())],
        names=["key_0", "value", "gone"],
    )


def plan_in(folder: Path, life: int = 1) -> Plan:
    (folder / "t.yaml").write_text(
        "durable: state\n"
        "sources: {numbers: {generate: {n: counter, item: {choice: [a, b]}}, count: 9, rate: 5}}\n"
        "operators: {count: {input: numbers, count: item}}\n"
    )
    plan = topology.load(str(folder / "t.yaml"), sink="csv", out=str(folder / "out"))
    return msgspec.structs.replace(plan, durable=Durable(str(folder / "state"), "cafe", life))


ME = Peer(1, 0)


def heard(disk: Disk, count: int) -> list[Held | Found]:
    """The next so many answers."""
    found: list[Held | Found] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        found += [message for message, _ in disk.answers()]
        time.sleep(0.001)
    return found


def held(cut: int, settled: int) -> Held:
    return Held(1, 0, 0, DISK, 0, cut, settled)
