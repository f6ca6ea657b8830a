"""Status, the event log, rates and paces: what people see of a run, from what replicas report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from dadstorm import topology
from dadstorm.core.line import END
from dadstorm.core.messages import Peer
from dadstorm.core.rows import Rows
from dadstorm.emitted import EmittedLines
from dadstorm.pace import Pace
from dadstorm.wire.control import State, Stats
from puppetmaster import status
from puppetmaster.eventlog import EventLog
from puppetmaster.rates import Rates
from puppetmaster.replicas import Replica

PLAN = topology.load(str(Path(__file__).parents[2] / "configs" / "reach.yaml"))
PEOPLE = PLAN.index("people")


def stats(
    replica: int, state: State, *, frontier: int = 5, queued: int = 0, suspects: tuple[int, ...] = (), look: int = 0
) -> Stats:
    return Stats(
        PEOPLE, replica, rows_in=9, rows_out=7, queued=queued, frontier=frontier, safe=0, dropped=0, memory_kb=1,
        state=state, slices=1, snapshot_age_ms=1500, suspects=suspects, look=look,
    )  # fmt: skip


def test_a_row_tells_how_a_replica_is() -> None:
    replicas = {
        Peer(PEOPLE, 0): Replica(pid=11, alive=True, stats=stats(0, "running", suspects=(1,))),
        Peer(PEOPLE, 1): Replica(pid=12, alive=True, incarnation=2, stats=stats(1, "frozen", frontier=END, queued=40)),
    }
    first, second = status.rows(PLAN, replicas, "people", {})
    assert (first.state, first.pid, first.frontier, first.suspected_by) == ("running", 11, 5, ())
    assert (second.state, second.incarnation, second.queued, second.frontier) == ("frozen", 2, 40, None)
    assert second.suspected_by == (0,)
    text = status.table([first, second])
    header, _, line = text.splitlines()
    assert header.split()[:5] == ["operator", "replica", "host", "pid", "state"]
    assert re.split(r"\s{2,}", line) == [
        "people", "1", "localhost", "12", "frozen", "2", "1", "end", "0", "0", "40", "1.5 s", "0",
    ]  # fmt: skip
    assert json.loads(status.to_json([second]))[0]["state"] == "frozen"


def test_a_suspicion_is_told_once() -> None:
    replica = Replica()
    assert replica.newly_suspects(stats(0, "running", suspects=(1,))) == [1]
    replica.stats = stats(0, "running", suspects=(1,))
    assert replica.newly_suspects(stats(0, "running", suspects=(1, 2))) == [2]
    after = msgspec.structs.replace(stats(0, "running", suspects=(1,)), incarnation=1)
    assert replica.newly_suspects(after) == [1], "another incarnation, another suspicion"


def test_who_has_no_slice_stands_by() -> None:
    peer = Peer(PEOPLE, 0)
    idle = msgspec.structs.replace(stats(0, "finished"), slices=0)
    assert status.rows(PLAN, {peer: Replica(pid=1, alive=True, stats=idle)}, None, {})[0].state == "standby"


def test_an_answer_counts_more_than_the_last_report() -> None:
    peer = Peer(PEOPLE, 0)
    replicas = {peer: Replica(pid=1, alive=True, stats=stats(0, "running"))}
    assert status.rows(PLAN, replicas, None, {peer: stats(0, "frozen", look=1)})[0].state == "frozen"


def test_who_is_gone_is_recovering_or_dead_whatever_was_last_heard() -> None:
    peer = Peer(PEOPLE, 0)
    for replica, state in [
        (Replica(pid=1, alive=False, recovering=True, stats=stats(0, "running")), "recovering"),
        (Replica(pid=1, alive=False, stats=stats(0, "running")), "dead"),
        (Replica(pid=1, alive=True), "waiting"),
    ]:
        (row,) = status.rows(PLAN, {peer: replica}, None, {})
        assert row.state == state
        assert row.pid == (1 if replica.alive else None)


def test_only_the_operator_that_was_asked_for() -> None:
    replicas = {Peer(index, 0): Replica() for index in range(len(PLAN.operators))}
    assert [row.operator for row in status.rows(PLAN, replicas, "people", {})] == ["people"]
    assert len(status.rows(PLAN, replicas, None, {})) == len(PLAN.operators)


def test_rates_are_of_the_last_seconds_and_of_one_incarnation() -> None:
    rates = Rates()
    assert rates.per_second == (0.0, 0.0)
    for second in range(11):
        rates.add(second, 100 * second, 50 * second)
    assert rates.per_second == (100.0, 50.0)
    rates.add(11.0, 0, 0)
    assert rates.per_second == (0.0, 0.0)


def test_a_pace_lets_one_tuple_pass_at_a_time() -> None:
    pace = Pace()
    assert pace.allowed(100, 0.0) == 100
    pace.set_interval(50)
    assert pace.allowed(100, 0.0) == 1
    pace.took(10.0)
    assert (pace.allowed(100, 59.0), pace.wait_ms(20.0)) == (0, 40.0)
    assert pace.allowed(100, 60.0) == 1
    pace.took(60.0)
    pace.set_interval(0)
    assert pace.allowed(100, 61.0) == 100
    pace.frozen = True
    assert (pace.allowed(100, 1e9), pace.wait_ms(1e9)) == (0, float("inf"))


def tuples(*columns: list[object]) -> Rows:
    names = [f"f{number}" for number in range(1, len(columns) + 1)]
    data = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)
    return Rows(np.arange(data.num_rows), np.zeros(data.num_rows, np.int64), data)


def test_a_tuple_is_one_line_of_the_log() -> None:
    lines = EmittedLines("tcp://127.0.0.1:11000")
    lines.add(tuples(["a", "two\nlines", None], [1, 2, 3]))
    assert lines.take().split("\n") == [
        "tuple tcp://127.0.0.1:11000/op, <a, 1>",
        "tuple tcp://127.0.0.1:11000/op, <two\\nlines, 2>",
        "tuple tcp://127.0.0.1:11000/op, <, 3>",
    ]
    assert lines.take() == ""


def test_fields_that_a_ragged_tuple_lacks_are_not_in_the_log() -> None:
    lines = EmittedLines("ipc:///somewhere", ragged=True)
    lines.add(tuples(["a", "b"], ["c", None]))
    assert lines.take().split("\n") == ["tuple ipc:///somewhere, <a, c>", "tuple ipc:///somewhere, <b>"]


def test_the_log_is_in_the_order_of_time_and_a_line_stays_one(tmp_path: Path) -> None:
    with EventLog(str(tmp_path)) as events:
        for text in ["Start", "failed: two\nlines", "Stop"]:
            events.add(text)
        events.add_all(["tuple a, <1>", "tuple a, <2>"])
    lines = (tmp_path / "events.log").read_text().splitlines()
    times = [line.split(" ", 1)[0] for line in lines]
    assert times == sorted(times) and all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{15}Z", time) for time in times)
    assert [line.split(" ", 1)[1] for line in lines] == [
        "Start", "failed: two\\nlines", "Stop", "tuple a, <1>", "tuple a, <2>",
    ]  # fmt: skip
