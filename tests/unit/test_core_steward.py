"""Copies at the PCS: one that was started again gets them anew, and one that stays away is not waited for for ever."""

from __future__ import annotations

import math

from dadstorm.core.holder import Holder
from dadstorm.core.keeper import Keeper, SendCopy, SendSettle
from dadstorm.core.messages import PCS, Peer
from dadstorm.core.steward import Steward
from dadstorm.core.vault import Delta, Vault

ME = Peer(0, 0)
THERE = Peer(0, PCS)


class Slice:
    """A slice whose snapshots are held by a PCS, which answers at once, if it is there."""

    def __init__(self) -> None:
        self.keeper = Keeper(ME, 0, 0, Vault(Delta(0)))
        self.pcs: Holder | None = None

    def is_held_by(self, pcs: Holder | None, incarnation: int) -> list[int]:
        """The cuts that are sent to it."""
        self.pcs = pcs
        return self._do([*self.keeper.hold_at({THERE: incarnation})])

    def goes_on_alone(self) -> None:
        self.keeper.alone = True
        self._do([*self.keeper.hold_at({})])

    def reaches(self, cut: int) -> int:
        """A snapshot, of which all consumers are safe; how far the slice is safe then."""
        self._do([*self.keeper.snapshot(Delta(cut))])
        self._do([*self.keeper.consumers_safe(cut)])
        return self.keeper.safe

    def _do(self, actions: list[SendCopy | SendSettle]) -> list[int]:
        sent = [action.message.cut for action in actions if isinstance(action, SendCopy)]
        for action in actions if self.pcs is not None else ():
            assert self.pcs is not None
            if isinstance(action, SendCopy):
                held = self.pcs.copy(action.message, action.table)
            else:
                held = self.pcs.settle(action.message)
            self._do([*self.keeper.held(held)])
        return sent


def test_a_pcs_that_was_started_again_gets_everything_again() -> None:
    slice_ = Slice()
    slice_.is_held_by(Holder(PCS, 0), 0)
    assert slice_.reaches(8) == 8
    assert slice_.is_held_by(Holder(PCS, 1), 1) == [8]
    assert slice_.reaches(16) == 16


def test_while_there_is_no_pcs_safe_stands_still() -> None:
    slice_ = Slice()
    slice_.is_held_by(Holder(PCS, 0), 0)
    slice_.reaches(8)
    slice_.pcs = None
    assert slice_.reaches(16) == 8


def test_who_goes_on_alone_is_safe_of_what_its_consumers_are() -> None:
    slice_ = Slice()
    slice_.is_held_by(None, 0)
    assert slice_.reaches(8) == 0
    slice_.goes_on_alone()
    assert slice_.keeper.safe == 8
    assert slice_.reaches(16) == 16


def test_a_pcs_that_comes_back_is_needed_again() -> None:
    slice_ = Slice()
    slice_.goes_on_alone()
    slice_.reaches(8)
    slice_.keeper.alone = False
    assert slice_.is_held_by(Holder(PCS, 1), 1) == [8]
    slice_.pcs = None
    assert slice_.reaches(16) == 8


# -- is it there? -----------------------------------------------------------------------------------------------------


def test_a_steward_is_waited_for_as_long_as_was_said() -> None:
    steward = Steward()
    steward.patience_ms = 10_000
    assert not steward.tick(500)
    assert not steward.tick(10_500)
    assert steward.tick(10_501)
    assert steward.gone
    assert not steward.tick(20_000), "that is no news"


def test_by_default_it_is_waited_for_for_ever() -> None:
    steward = Steward()
    assert steward.patience_ms == math.inf
    assert not steward.tick(0) and not steward.tick(1e12)


def test_only_what_changes_who_holds_copies_is_news() -> None:
    steward = Steward()
    assert not steward.heard(0, 0)
    assert steward.heard(1, 100), "another one: the copies are gone"
    assert not steward.heard(1, 200)
    assert not steward.heard(0, 300), "the late word of one that is dead"
    assert steward.incarnation == 1
    steward.patience_ms = 1000
    assert steward.tick(1300)
    assert steward.heard(1, 1400), "it was only silent"
    assert not steward.gone
