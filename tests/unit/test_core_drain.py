"""Draining: a stream that is ended early ends at one place, whoever dies in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from core_kit import SCHEMA, machine, mark_at, operator, plan_of, ranges, rows, unborn

from dadstorm.core.holder import Holder
from dadstorm.core.keeper import Keeper, SendCopy, SendSettle
from dadstorm.core.line import END, START
from dadstorm.core.messages import PCS, Found, Peer, Reach, Reached, Tiles
from dadstorm.core.outlet import Outlet
from dadstorm.core.replica import ReplicaMachine
from dadstorm.core.routing import Router
from dadstorm.core.slice import SourceSlice, Tell
from dadstorm.core.stride import Stride
from dadstorm.core.vault import DRAINED, Delta, Vault
from dadstorm.core.window import Window
from dadstorm.plan import Plan


def kept_source(incarnation: int, base: Delta) -> tuple[SourceSlice, Keeper]:
    """A slice of a source whose only consumer has attached, and whose snapshots one peer holds."""
    keeper = Keeper(Peer(0, 0), 0, incarnation, Vault(base))
    router = Router("primary", (), 1, 0)
    one = Outlet(Peer(0, 0), 0, incarnation, 1, 0, 0, router, retain=True, cut=base.cut, anew=not incarnation)
    list(one.attach(0, 0, [(0, base.cut)]))
    drained = DRAINED in (base.mark or {})
    window = Window(1000, 1 << 30)
    made = SourceSlice(0, base.cut, [one], keeper, Stride(1000, 1 << 10), window, SCHEMA, drained=drained)
    return made, keeper


def settled_at(holder: Holder, keeper: Keeper, actions: Iterable[Any]) -> None:
    """Give copies to the holder and its answers back, until there is nothing left to say."""
    waiting = deque(actions)
    while waiting:
        action = waiting.popleft()
        if isinstance(action, SendCopy):
            waiting.extend(keeper.held(holder.copy(action.message, action.table)))
        elif isinstance(action, SendSettle):
            waiting.extend(keeper.held(holder.settle(action.message)))


def test_whoever_takes_over_a_drained_stream_that_has_ended_ends_it_at_the_same_place() -> None:
    """Consumers may have its end already, and others not: nothing may come in between any more."""
    holder, source = Holder(1, 0), kept_source(0, Delta(START))
    made, keeper = source
    settled_at(holder, keeper, keeper.hold_at({Peer(0, 1): 0}))
    made.draining = True
    settled_at(holder, keeper, made.records(rows(0, 1), END, None, mark_at))
    settled_at(holder, keeper, made.tick(mark_at))
    settled_at(holder, keeper, made.tick(mark_at))
    made.outlets[0].advance([(0, 2)])
    settled_at(holder, keeper, made.keep())
    assert made.safe == made.done == 2
    said = list(made.end(mark_at))
    assert not ranges(said), "who holds copies is to know it first"
    unaware = holder.find(0, 0)
    assert unaware is not None and DRAINED not in (unaware[1].mark or {})
    settled_at(holder, keeper, said)
    assert ranges(made.end(mark_at)) == [(2, END, [])]

    found = holder.give(0, 0, 1)
    assert found is not None and (found[0], found[1].cut) == (0, 2)
    again, keeper = kept_source(1, found[1])
    assert again.room == (0, 0), "nothing is read any more"
    settled_at(holder, keeper, keeper.hold_at({Peer(0, 1): 0}))
    again.outlets[0].advance([(0, 2)])
    settled_at(holder, keeper, again.keep())
    settled_at(holder, keeper, again.end(mark_at))
    assert ranges(again.end(mark_at)) == [(2, END, [])]


def test_an_end_that_the_input_has_is_found_again_by_reading() -> None:
    """A consumer may have got it together with records that another has not."""
    holder, (made, keeper) = Holder(1, 0), kept_source(0, Delta(START))
    settled_at(holder, keeper, keeper.hold_at({Peer(0, 1): 0}))
    settled_at(holder, keeper, made.records(rows(0, 1), END, None, mark_at))
    found = holder.give(0, 0, 1)
    assert found is not None
    again, _ = kept_source(1, found[1])
    again.stopping = True
    again.outlets[0].answered(Reached(0, 0, 1, 1, 0, 0, END))
    assert again.room[0] and not again.may_drain


# -- how far those downstream have got -------------------------------------------------------------------------------

SOURCE, WORK, SINK = range(3)


def line() -> Plan:
    """A source, an operator and a sink, of one slice each."""
    source, work = operator("source", "source"), operator("work", "dup", ["source"])
    return plan_of(source, work, operator("sink", "sink", ["work"]))


def reborn(name: str, cut: int) -> ReplicaMachine:
    """A second incarnation, resumed at a cut."""
    made = unborn(line(), name, incarnation=1)
    list(made.begin(living={}))
    list(made.handle(Found(made.me.operator, 0, 1, 0, PCS, cut)))
    assert made.resumed
    return made


def told(actions: Iterable[Any], kind: type) -> list[tuple[Peer, Any]]:
    return [(one.to, one.message) for one in actions if isinstance(one, Tell) and isinstance(one.message, kind)]


def tiles(lo: int, hi: int, incarnation: int) -> Tiles:
    return Tiles(SOURCE, 0, 0, incarnation, WORK, 0, lo, hi, (0,), (0,))


def asks(incarnation: int) -> Reach:
    return Reach(SOURCE, 0, 0, incarnation, WORK, 0)


def answer(hi: int, incarnation: int = 1) -> Reached:
    return Reached(SOURCE, 0, incarnation, WORK, 0, 0, hi)


def test_who_begins_may_end_its_stream_anywhere() -> None:
    source = machine(line(), "source").sources[0]
    assert not source.may_drain, "nobody wants it to"
    source.stopping = True
    assert source.may_drain


def test_who_was_resumed_ends_its_stream_where_nobody_downstream_has_got_more() -> None:
    """An earlier incarnation has sent it: of two consumers one may have got it, and the other not."""
    made = reborn("source", 2)
    source = made.sources[0]
    source.stopping = True
    assert not source.may_drain
    assert told(made.tick(0, lambda _, cut: mark_at(cut)), Reach) == [(Peer(WORK, 0), asks(1))]
    list(made.handle(answer(2, incarnation=0)))
    assert not source.may_drain, "an answer to somebody else"
    list(made.handle(answer(5)))
    assert not source.may_drain
    list(source.records(rows(2, 4), 5, None, mark_at))
    assert source.may_drain
    assert not told(made.tick(0, lambda _, cut: mark_at(cut)), Reach), "everybody has answered"


def test_a_consumer_answers_how_far_it_has_got_and_takes_nothing_of_earlier_incarnations_any_more() -> None:
    work = machine(line(), "work")
    list(work.handle(tiles(0, 7, incarnation=0)))
    assert told(work.handle(asks(1)), Reached) == [(Peer(SOURCE, 0), answer(7))]
    assert told(work.handle(asks(0)), Reached) == [], "it has been superseded"
    list(work.handle(tiles(7, 9, incarnation=0)))
    assert told(work.handle(asks(1)), Reached) == [(Peer(SOURCE, 0), answer(7))]
    list(work.handle(tiles(7, 8, incarnation=1)))
    assert told(work.handle(asks(1)), Reached) == [(Peer(SOURCE, 0), answer(8))]


def test_a_consumer_that_was_resumed_itself_asks_those_behind_it_first() -> None:
    """It has gone back to its snapshot, they have not."""
    work = reborn("work", 2)
    behind = Reach(WORK, 0, 0, 1, SINK, 0)
    assert [message for _, message in told(work.handle(asks(1)), object)] == [behind]
    list(work.handle(Reached(WORK, 0, 1, SINK, 0, 0, 6)))
    assert told(work.handle(asks(1)), Reached) == [(Peer(SOURCE, 0), answer(6))]
