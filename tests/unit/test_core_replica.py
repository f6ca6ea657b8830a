"""The replica as a state machine: what it asks for, what it answers, and that rubbish from a peer changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from core_kit import (
    Kept,
    everything,
    ids,
    machine,
    mark_at,
    numbers,
    operator,
    plan_of,
    ranges,
    rows,
    unborn,
)

from dadstorm.core.checks import ProtocolError
from dadstorm.core.line import END
from dadstorm.core.messages import (
    PCS,
    Adopt,
    Attach,
    Beat,
    Copy,
    Done,
    Found,
    Gone,
    Held,
    Here,
    Message,
    Peer,
    Safe,
    Tiles,
    Want,
)
from dadstorm.core.outlet import Send
from dadstorm.core.replica import ReplicaMachine, Tell
from dadstorm.core.ring import Respawn
from dadstorm.core.rows import Rows
from dadstorm.core.slice import Deliver
from dadstorm.plan import Field, Plan, Routing

SOURCE, OTHER, WORK, SINK = range(4)


def plan(**settings: Any) -> Plan:
    """Two sources, an operator of four slices on two replicas (and a third that stands by), a sink."""
    return plan_of(
        operator("source", "source", slices=2, replicas=2),
        operator("other", "source"),
        operator("work", "dup", ["source"], slices=2, replicas=3, routing=Routing("random")),
        operator("sink", "sink", ["work", "other"]),
        **settings,
    )


def tiles(lo: int, hi: int, counts: tuple[int, ...], **changes: Any) -> Tiles:
    """Tiles of the first source slice for the operator's first slice."""
    message = Tiles(
        SOURCE, 0, producer_slice=0, incarnation=0, consumer=WORK, input=0, lo=lo, hi=hi, slices=(0,), counts=counts
    )
    return msgspec.structs.replace(message, **changes)


def told(actions: Any) -> list[tuple[Peer, Message]]:
    return [(action.to, action.message) for action in actions if isinstance(action, Tell)]


# -- what a replica says ---------------------------------------------------------------------------------------------


def test_a_replica_asks_every_producer_for_the_channels_of_its_slices() -> None:
    assert told(unborn(plan(), "work", 1).begin()) == [
        (Peer(SOURCE, 0), Attach(WORK, 1, 0, 0, (Want(0, 1, 0),))),
        (Peer(SOURCE, 1), Attach(WORK, 1, 0, 0, (Want(1, 1, 0),))),
    ]


def test_it_asks_from_where_it_stands() -> None:
    work = machine(plan(), "work")
    list(work.handle(tiles(0, 10, (1,)), rows(4)))
    again = told(work.handle(Here(SOURCE, 0, 1, ((0, 1),))))
    assert again == [(Peer(SOURCE, 0), Attach(WORK, 0, 0, 0, (Want(0, 0, 10),)))], "to a new incarnation of a producer"


def test_who_has_been_replaced_does_not_answer_for_its_successor() -> None:
    """It lives on somewhere, and knows nothing of the copies that were made since."""
    reborn = unborn(plan(), "work", 0, incarnation=2)
    assert [to for to, _ in told(reborn.begin(living={1: 1, 2: 0}))] == [Peer(WORK, 1), Peer(WORK, 2)]
    list(reborn.handle(Found(WORK, 0, 2, 0, 2, -1)))
    list(reborn.handle(Found(WORK, 0, 2, 0, 1, -1, holder_incarnation=0)))
    assert not reborn.resumed
    list(reborn.handle(Found(WORK, 0, 2, 1, 1, 10, holder_incarnation=1)))
    assert reborn.resumed
    assert reborn.works[0].done == 10


def test_a_holder_that_was_reborn_keeps_the_promise_that_died_with_its_predecessor() -> None:
    """The successor of the sender has been told there that nothing newer comes: it does not ask again."""
    holder = unborn(plan(), "work", 1, incarnation=1)
    list(holder.begin(living={0: 1, 2: 0}))
    (answer,) = holder.handle(Copy(WORK, 0, 0, 0, None, 10))
    assert isinstance(answer, Tell) and answer.message == Held(WORK, 0, 1, 1, 1, -1, -1)
    (answer,) = holder.handle(Copy(WORK, 0, 1, 0, None, 5))
    assert isinstance(answer, Tell) and answer.message == Held(WORK, 0, 1, 1, 1, 5, 5)


@pytest.mark.parametrize("recovery", ["respawn", "spread"])
@pytest.mark.parametrize(("held", "asks"), [(None, False), (0, False), (1, True)])
def test_a_silent_peer_is_replaced_by_who_has_its_state_only(recovery: str, held: int | None, asks: bool) -> None:
    """A newcomer that holds nothing of it, or what an earlier incarnation gave it, knows less than the silent one."""
    one = machine(plan(recovery=recovery), "work", 2)
    if held is not None:
        list(one.handle(Copy(WORK, 1, held, 1, None, 10)))
    list(one.handle(Here(WORK, 1, 1, ((1, 1),)), now_ms=0))
    asked: list[Any] = []
    for now_ms in range(0, 2400, 400):
        list(one.handle(Beat(WORK, 0, 0), now_ms=now_ms))
        asked += [action for action in one.tick(now_ms, mark_at) if isinstance(action, Respawn)]
    assert one.ring.suspected == [1]
    assert ([request.replica for request in asked] == [1] * len(asked)) and bool(asked) == asks


def test_who_adopts_a_slice_also_asks_those_it_only_suspects() -> None:
    """Behind a network that was cut they may hold the newest copy."""
    adopter = machine(plan(recovery="spread"), "work")
    for now_ms in range(0, 2400, 400):
        list(adopter.handle(Beat(WORK, 1, 0), now_ms=now_ms))
        list(adopter.tick(now_ms, mark_at))
    assert adopter.ring.suspected == [2]
    asked = [to.replica for to, message in told(adopter.handle(Adopt(WORK, 0, 1, 0, ((1, 1),)))) if to.operator == WORK]
    assert sorted(asked) == [PCS, 2]


def test_who_is_to_adopt_a_slice_that_it_has_in_a_lower_incarnation_steps_down() -> None:
    """The slice has been somebody else's in between, whose state is newer."""
    adopter = machine(plan(recovery="spread"), "work")
    first, later = Adopt(WORK, 0, 1, 0, ((1, 1),)), Adopt(WORK, 0, 2, 0, ((1, 3),))
    for _ in range(2):
        list(adopter.handle(first))
        assert adopter.hosts(first.slices) and not adopter.superseded, "however often it is told"
    assert list(adopter.handle(later)) == []
    assert adopter.superseded and not adopter.hosts(later.slices)


def test_a_source_asks_nobody() -> None:
    assert told(unborn(plan(), "source").begin()) == []


def test_a_replica_without_slices_stands_by_and_is_finished() -> None:
    standby = unborn(plan(), "work", 2)
    assert list(standby.begin()) == []
    assert not standby.has_work()
    assert standby.finished


def test_a_gap_is_asked_for_again_from_where_the_channel_stands() -> None:
    work = machine(plan(), "work")
    list(work.handle(tiles(0, 10, (1,)), rows(4)))
    again = told(work.handle(tiles(20, 30, (1,)), rows(25)))
    assert again == [(Peer(SOURCE, 0), Attach(WORK, 0, 0, 0, (Want(0, 0, 10),)))]
    assert work.progress.gaps == 1


def test_at_most_once_goes_on_behind_a_gap() -> None:
    work = machine(plan(semantics="at-most-once"), "work")
    assert list(work.handle(tiles(20, 30, (1,)), rows(25))) == []
    assert work.progress.gaps == 0
    assert work.progress.queued == 1


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once", "at-most-once"])
def test_what_comes_twice_counts_once(semantics: str) -> None:
    work = machine(plan(semantics=semantics), "work")
    for _ in range(3):
        list(work.handle(tiles(0, 10, (1,)), rows(4)))
    assert (work.progress.queued, work.progress.duplicates) == (1, 2)


def test_a_message_for_several_slices_gives_each_its_rows() -> None:
    wide = plan_of(operator("s", "source"), operator("w", "dup", ["s"], slices=3, routing=Routing("random")))
    work = machine(wide, "w")
    message = Tiles(0, 0, 0, 0, consumer=1, input=0, lo=0, hi=9, slices=(0, 1, 2), counts=(2, 0, 1))
    list(work.handle(message, rows(3, 5, 1)))
    queued = [consumer.merger.queued for consumer in work.consumers.values()]
    assert queued == [2, 0, 1]


def test_slices_work_in_turn() -> None:
    wide = plan_of(operator("s", "source"), operator("w", "dup", ["s"], slices=2, routing=Routing("random")))
    work = machine(wide, "w")
    message = Tiles(0, 0, 0, 0, consumer=1, input=0, lo=0, hi=9, slices=(0, 1), counts=(3, 3))
    list(work.handle(message, rows(0, 1, 2, 3, 4, 5)))
    done = []
    while work.has_work():
        list(work.work(1))
        done.append([slice_.rows_in for slice_ in work.works.values()])
    assert done == [[1, 0], [1, 1], [2, 1], [2, 2], [3, 2], [3, 3]]


def test_the_inputs_of_an_operator_may_name_their_fields_differently() -> None:
    renamed = operator("other", "source", fields=(Field("m", "int"),))
    both = plan_of(operator("one", "source"), renamed, operator("sink", "sink", ["one", "other"]))
    sink = machine(both, "sink")
    for producer, name in enumerate(("n", "m")):
        body = Rows(rows(3).seq, rows(3).sub, pa.RecordBatch.from_pydict({name: [producer]}))
        list(sink.handle(tiles(0, END, (1,), producer=producer, consumer=2, input=producer), body))
    (delivered,) = sink.work(10)
    assert isinstance(delivered, Deliver)
    assert (ids(delivered.rows), numbers(delivered.rows)) == ([(3, 0), (3, 1)], [0, 1])
    assert delivered.rows.data.schema.names == ["n"]


# -- safe ------------------------------------------------------------------------------------------------------------


def test_safe_is_announced_once_to_every_producer_that_has_slices() -> None:
    kept = Kept(plan(), "sink")
    sink = kept.machine
    kept.do(sink.sinks[0].commit(7, {}))
    first = told(sink.announce())
    assert first == [
        (Peer(WORK, 0), Safe(SINK, 0, ((0, 7),))),
        (Peer(WORK, 1), Safe(SINK, 0, ((0, 7),))),
        (Peer(OTHER, 0), Safe(SINK, 1, ((0, 7),))),
    ]
    assert list(sink.announce()) == []
    kept.do(sink.sinks[0].commit(9, {}))
    assert [message.cuts for _, message in told(sink.announce()) if isinstance(message, Safe)] == [((0, 9),)] * 3


def test_what_consumers_are_safe_of_is_forgotten_and_passed_on() -> None:
    """Passed on is the newest snapshot that everybody holds; here, the one where the sources stand still."""
    kept = Kept(plan(), "work")
    work = kept.machine
    list(work.handle(Attach(SINK, 0, 0, 0, (Want(0, 0, 0),))))
    for producer_slice in (0, 1):
        list(work.handle(tiles(0, 10, (1,), producer_slice=producer_slice), rows(4 + producer_slice)))
        list(work.handle(Done(SOURCE, 0, producer_slice, 0, WORK, 0, 10, still=True)))
    assert ranges(kept.do(work.work(10))) == [(0, 10, [4, 5])]
    assert list(work.announce()) == []
    kept.do(work.handle(Safe(SINK, 0, ((0, 10),))))
    assert [message.cuts for _, message in told(work.announce()) if isinstance(message, Safe)] == [((0, 10),)] * 2
    assert ranges(work.handle(Attach(SINK, 0, 0, 0, (Want(0, 0, 0),)))) == []


def test_a_slice_that_is_behind_is_told_what_is_gone_unless_it_has_been_superseded() -> None:
    """Its successor has newer state: nothing is lost, and the run does not stop."""
    kept = Kept(plan(), "work")
    work = kept.machine
    list(work.handle(Attach(SINK, 0, 1, 0, (Want(0, 0, 0),))))
    for producer_slice in (0, 1):
        list(work.handle(tiles(0, 10, (1,), producer_slice=producer_slice), rows(4 + producer_slice)))
    kept.do(work.work(10))
    kept.do(work.handle(Safe(SINK, 0, ((0, 10),))))
    gone = Gone(WORK, 0, SINK, 0, 0, 10)
    assert told(work.handle(Attach(SINK, 0, 0, 0, (Want(0, 0, 0),)))) == []
    assert told(work.handle(Attach(SINK, 0, 1, 0, (Want(0, 0, 0),)))) == [(Peer(SINK, 0), gone)]


def test_who_stands_at_the_lowest_place_where_a_source_stands_still_says_so() -> None:
    """Whatever the others say after it: else the snapshots downstream would lie elsewhere, and the window stay shut."""
    kept = Kept(plan(), "work")
    work = kept.machine
    list(work.handle(Attach(SINK, 0, 0, 0, (Want(0, 0, 0),))))
    for producer_slice, hi in ((0, 10), (1, 20)):
        list(work.handle(tiles(0, hi, (1,), producer_slice=producer_slice), rows(4 + producer_slice)))
    for producer_slice, hi in ((0, 10), (1, 20)):
        list(work.handle(Done(SOURCE, 0, producer_slice, 0, WORK, 0, hi, still=True)))
    said = [message for _, message in told(kept.do(work.work(10))) if isinstance(message, Done)]
    assert said == [Done(WORK, 0, 0, 0, SINK, 0, 10, still=True)]


def test_without_a_holder_of_its_snapshots_nothing_is_safe() -> None:
    work = machine(plan(), "work")
    for producer_slice in (0, 1):
        list(work.handle(tiles(0, END, (0,), producer_slice=producer_slice)))
    list(work.work(10))
    list(work.handle(Safe(SINK, 0, ((0, END),))))
    assert list(work.announce()) == []


def test_finished_is_when_everything_to_the_end_of_the_line_is_safe() -> None:
    kept = Kept(plan(), "source")
    source = kept.machine
    kept.do(source.sources[0].records(rows(1), END, None, mark_at))
    assert not source.finished
    kept.do(source.handle(Safe(WORK, 0, ((0, END),))))
    assert not source.finished, "the other slice may still ask"
    kept.do(source.handle(Safe(WORK, 0, ((1, END),))))
    assert source.finished


# -- rubbish ---------------------------------------------------------------------------------------------------------


def busy() -> ReplicaMachine:
    """The first replica of the operator, with rows that wait and rows that were sent."""
    work = machine(plan(), "work")
    list(work.handle(Attach(SINK, 0, 0, 0, (Want(0, 0, 0),))))
    for producer_slice in (0, 1):
        list(work.handle(tiles(0, 10, (2,), producer_slice=producer_slice), rows(4, 8)))
    list(work.work(2))
    return work


GOOD = tiles(10, 20, (2,))
BODY = rows(12, 15)
TEXTS = Rows(BODY.seq, BODY.sub, pa.RecordBatch.from_pydict({"n": ["a", "b"]}))
TWO_COLUMNS = Rows(BODY.seq, BODY.sub, pa.RecordBatch.from_pydict({"n": [1, 2], "m": [1, 2]}))

BAD_TILES: dict[str, tuple[Tiles, Rows | None]] = {
    "for another operator": (tiles(10, 20, (2,), consumer=SINK), BODY),
    "for no operator": (tiles(10, 20, (2,), consumer=-1), BODY),
    "for an input that there is not": (tiles(10, 20, (2,), input=1), BODY),
    "for a negative input": (tiles(10, 20, (2,), input=-1), BODY),
    "from another producer": (tiles(10, 20, (2,), producer=OTHER), BODY),
    "from ourselves": (tiles(10, 20, (2,), producer=WORK), BODY),
    "from a slice that there is not": (tiles(10, 20, (2,), producer_slice=2), BODY),
    "from a negative slice": (tiles(10, 20, (2,), producer_slice=-1), BODY),
    "with rows that go back": (GOOD, rows(12, 11)),
    "with a row twice": (GOOD, rows(11, 11)),
    "with the outputs of a row in another order": (GOOD, rows((11, 1), (11, 0))),
    "with rows that go back in the second slice": (tiles(10, 20, (1, 2), slices=(0, 1)), rows(14, 13, 12)),
    "for a slice that there is not": (tiles(10, 20, (2,), slices=(7,)), BODY),
    "for a negative slice": (tiles(10, 20, (2,), slices=(-1,)), BODY),
    "for one slice twice": (tiles(10, 20, (1, 1), slices=(0, 0)), BODY),
    "over no range": (tiles(10, 10, (0,)), None),
    "over a range that goes back": (tiles(20, 10, (2,)), BODY),
    "from before the line": (tiles(-1, 20, (2,)), BODY),
    "from beyond the line": (tiles(10, END + 1, (2,)), BODY),
    "with fewer rows than announced": (tiles(10, 20, (3,)), BODY),
    "with more rows than announced": (tiles(10, 20, (1,)), BODY),
    "without the body announced": (tiles(10, 20, (2,)), None),
    "with a body that was not announced": (tiles(10, 20, (0,)), BODY),
    "with a negative count": (tiles(10, 20, (3, -1), slices=(0, 0)), BODY),
    "with a count too many": (tiles(10, 20, (2, 0)), BODY),
    "with a count too few": (tiles(10, 20, (), slices=(0,)), None),
    "with a row below the range": (tiles(13, 20, (2,)), BODY),
    "with a row at its end": (tiles(10, 15, (2,)), BODY),
    "with fields of another type": (GOOD, TEXTS),
    "with a field too many": (GOOD, TWO_COLUMNS),
}

WANT = Want(0, 0, 0)
LIVES_ELSEWHERE = (tiles(10, 20, (2,), slices=(1,)), BODY)
BAD_ATTACHES: dict[str, Attach] = {
    "of an operator that there is not": Attach(9, 0, 0, 0, (WANT,)),
    "of a negative operator": Attach(-1, 0, 0, 0, (WANT,)),
    "of an operator that does not read us": Attach(SOURCE, 0, 0, 0, (WANT,)),
    "by an input that reads another": Attach(SINK, 0, 0, 1, (WANT,)),
    "by a negative input": Attach(SINK, 0, 0, -1, (WANT,)),
    "from a replica that there is not": Attach(SINK, 1, 0, 0, (WANT,)),
    "from a negative replica": Attach(SINK, -1, 0, 0, (WANT,)),
    "to a slice that there is not": Attach(SINK, 0, 0, 0, (Want(5, 0, 0),)),
    "for a slice that there is not": Attach(SINK, 0, 0, 0, (Want(0, 1, 0),)),
    "for a negative slice": Attach(SINK, 0, 0, 0, (Want(0, -1, 0),)),
    "from before the line": Attach(SINK, 0, 0, 0, (Want(0, 0, -1),)),
    "from beyond the line": Attach(SINK, 0, 0, 0, (Want(0, 0, END + 1),)),
    "right at first and then wrong": Attach(SINK, 0, 0, 0, (Want(0, 0, 5), Want(7, 0, 5))),
}

BAD_SAFES: dict[str, Safe] = {
    "of an operator that there is not": Safe(9, 0, ((0, 5),)),
    "of a negative operator": Safe(-1, 0, ((0, 5),)),
    "of an operator that does not read us": Safe(OTHER, 0, ((0, 5),)),
    "of an input that reads another": Safe(SINK, 1, ((0, 5),)),
    "of a slice that there is not": Safe(SINK, 0, ((1, 5),)),
    "of a negative slice": Safe(SINK, 0, ((-1, 5),)),
    "at a cut before the line": Safe(SINK, 0, ((0, -1),)),
    "at a cut beyond the line": Safe(SINK, 0, ((0, END + 1),)),
    "right at first and then wrong": Safe(SINK, 0, ((0, 5), (3, 5))),
}


def refuses(message: Message, body: Rows | None = None) -> None:
    work = busy()
    before = everything(work)
    with pytest.raises(ProtocolError):
        list(work.handle(message, body))
    assert everything(work) == before


@pytest.mark.parametrize("what", BAD_TILES)
def test_tiles_that_cannot_be_ours_are_refused(what: str) -> None:
    refuses(*BAD_TILES[what])


@pytest.mark.parametrize("what", BAD_ATTACHES)
def test_attaching_to_what_is_not_here_is_refused(what: str) -> None:
    refuses(BAD_ATTACHES[what])


@pytest.mark.parametrize("what", BAD_SAFES)
def test_a_safe_cut_that_nobody_can_have_is_refused(what: str) -> None:
    refuses(BAD_SAFES[what])


def test_attaching_to_a_slice_that_lives_elsewhere_is_a_mistake_that_happens() -> None:
    """It may have lived here, or everybody was asked: nothing comes of it."""
    work = busy()
    before = everything(work)
    assert list(work.handle(Attach(SINK, 0, 0, 0, (Want(1, 0, 0),)))) == []
    assert everything(work) == before


def test_tiles_for_a_slice_that_lives_elsewhere_are_left_to_who_has_it() -> None:
    """It may have lived here before we were reborn: the producer knows no better yet."""
    work = busy()
    before = everything(work)
    assert list(work.handle(*LIVES_ELSEWHERE)) == []
    assert everything(work) == before


def test_tiles_are_taken_by_those_slices_that_are_here() -> None:
    work = machine(plan(), "work", 1)
    list(work.handle(tiles(0, 10, (1, 1), slices=(0, 1)), rows(2, 3)))
    assert work.consumers.keys() == {1}
    assert work.consumers[1].merger.queued == 1


def test_what_is_not_refused_does_change_something() -> None:
    """The comparison above sees every kind of change."""
    changes: list[tuple[Message, Rows | None]] = [
        (GOOD, BODY),
        (Attach(SINK, 0, 0, 0, (Want(0, 0, 5),)), None),
        (Safe(SINK, 0, ((0, 5),)), None),
    ]
    for message, body in changes:
        work = busy()
        before = everything(work)
        assert everything(busy()) == before
        list(work.handle(message, body))
        assert everything(work) != before, f"{message} left no trace"


def test_a_source_takes_no_tiles() -> None:
    with pytest.raises(ProtocolError):
        list(machine(plan(), "source").handle(GOOD, BODY))


def test_after_rubbish_the_machine_goes_on_as_if_nothing_had_been() -> None:
    work, clean = busy(), busy()
    bad: list[tuple[Message, Rows | None]] = [*BAD_TILES.values()]
    bad += [(message, None) for message in BAD_ATTACHES.values()]
    bad += [(message, None) for message in BAD_SAFES.values()]
    for message, body in bad:
        with pytest.raises(ProtocolError):
            list(work.handle(message, body))
    for one in (work, clean):
        for producer_slice in (0, 1):
            list(one.handle(tiles(10, END, (1,), producer_slice=producer_slice), rows(50 + producer_slice)))
    sends = [[action for action in one.work(100) if isinstance(action, Send)] for one in (work, clean)]
    assert everything(sends[0]) == everything(sends[1])
