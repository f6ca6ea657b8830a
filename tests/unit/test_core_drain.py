"""Draining: a stream that is ended early ends at one place, whoever dies in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from core_kit import SCHEMA, mark_at, ranges, rows

from dadstorm.core.holder import Holder
from dadstorm.core.keeper import Keeper, SendCopy, SendSettle
from dadstorm.core.line import END, START
from dadstorm.core.messages import Peer
from dadstorm.core.outlet import Outlet
from dadstorm.core.routing import Router
from dadstorm.core.slice import SourceSlice
from dadstorm.core.stride import Stride
from dadstorm.core.vault import DRAINED, Delta, Vault
from dadstorm.core.window import Window


def kept_source(incarnation: int, base: Delta) -> tuple[SourceSlice, Keeper]:
    """A slice of a source whose only consumer has attached, and whose snapshots one peer holds."""
    keeper = Keeper(Peer(0, 0), 0, incarnation, Vault(base))
    one = Outlet(Peer(0, 0), 0, incarnation, 1, 0, 0, Router("primary", (), 1, 0), retain=True, cut=base.cut)
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
    list(again.outlets[0].attach(0, 1, [(0, END)]))
    assert again.room[0] and not again.may_drain
