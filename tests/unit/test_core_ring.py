"""The ring: who is taken for alive, who holds copies, and who brings back whom when."""

from __future__ import annotations

from dadstorm.core.ring import Respawn, Ring
from dadstorm.heart import BEAT_EVERY_S
from dadstorm.replica import TICK_MS
from dadstorm.topology.settings import SUSPECT_MS_MIN

SUSPECT_MS = 1000.0


def ring(me: int = 0, size: int = 3) -> Ring:
    """A ring in which everybody was heard of at 0."""
    made = Ring(me, size, SUSPECT_MS)
    made.suspect(0.0)
    return made


def silence(one: Ring, until_ms: float, but: tuple[int, ...] = ()) -> None:
    """Time passes, and nobody is heard of but these."""
    for now_ms in range(100, int(until_ms) + 1, 100):
        for replica in but:
            one.heard(replica, one.incarnation(replica), now_ms)
        one.suspect(now_ms)


def test_the_others_come_in_ring_order_from_the_next_one_on() -> None:
    assert list(ring(me=1, size=4).living) == [2, 3, 0]


def test_who_is_silent_for_long_is_suspected_and_no_sooner() -> None:
    one = ring()
    silence(one, 1000)
    assert one.suspected == []
    silence(one, 1100, but=(2,))
    assert one.suspected == [1]
    assert list(one.living) == [2]


def test_a_sign_of_life_ends_a_suspicion() -> None:
    one = ring(size=2)
    silence(one, 1500)
    assert one.heard(1, 0, 1500.0), "that is news"
    assert one.suspected == []
    assert not one.heard(1, 0, 1501.0)


def test_who_has_not_looked_for_long_does_not_take_its_own_sleep_for_others_silence() -> None:
    one = ring()
    one.suspect(60_000.0)
    assert one.suspected == []


def test_who_is_down_stays_down_until_a_higher_incarnation_is_heard_of() -> None:
    one = ring()
    assert one.down(1, 0)
    assert not one.down(1, 0), "it is known"
    assert not one.heard(1, 0, 10.0), "a message that was under way when it died"
    assert one.is_down(1)
    assert one.heard(1, 1, 20.0)
    assert not one.is_down(1)
    assert not one.down(1, 0), "late news of the one before"


def test_copies_of_different_slices_begin_at_different_replicas() -> None:
    one = ring(size=4)
    assert [list(one.holders(index, 2)) for index in range(4)] == [[1, 2], [2, 3], [3, 1], [1, 2]]


def test_who_is_down_holds_nothing_and_the_next_one_does() -> None:
    one = ring(size=4)
    one.down(1, 0)
    assert list(one.holders(0, 2)) == [2, 3]
    one.heard(1, 1, 0.0)
    assert one.holders(0, 2) == {1: 1, 2: 0}


def test_who_is_only_suspected_goes_on_being_a_holder() -> None:
    """Its copies must not fall behind: on its side of a cut network it may be the one that takes over."""
    one = ring()
    silence(one, 2000, but=(2,))
    assert one.suspected == [1]
    assert list(one.holders(0, 2)) == [1, 2]


def test_the_next_living_replica_brings_back_who_is_down_at_once() -> None:
    one = ring(me=2)
    one.down(1, 0)
    assert one.respawns(10.0, lambda replica: False) == [Respawn(1, 1)]
    assert one.respawns(11.0, lambda replica: False) == [], "once is enough for a while"
    assert one.respawns(10.0 + 3 * SUSPECT_MS, lambda replica: False) == [Respawn(1, 1)], "nothing came of it"


def test_the_one_after_waits_a_little() -> None:
    one = ring(me=0)
    one.down(1, 0)
    assert one.respawns(10.0, lambda replica: False) == []
    assert one.respawns(10.0 + SUSPECT_MS, lambda replica: False) == [Respawn(1, 1)]


def test_with_the_leader_dead_too_the_one_after_is_the_next() -> None:
    one = ring(me=0)
    one.down(1, 0)
    one.down(2, 4)
    assert one.respawns(10.0, lambda replica: False) == [Respawn(1, 1), Respawn(2, 5)]


def test_only_who_can_vouch_for_its_state_replaces_a_suspect() -> None:
    one = ring(size=2)
    silence(one, 1500)
    assert one.respawns(1500.0, lambda replica: False) == []
    assert one.respawns(1500.0, lambda replica: True) == [Respawn(1, 1)]


def test_a_new_incarnation_knows_whom_it_was_told_of() -> None:
    one = Ring(0, 3, SUSPECT_MS)
    one.learn({2: 7})
    assert one.living == {2: 7}
    assert one.is_down(1)


def test_beats_keep_the_least_suspect_after_quiet_and_silence_is_noticed() -> None:
    one = Ring(0, 2, SUSPECT_MS_MIN)
    late_ms = 10.0
    """By how much ticks and beats are later than planned."""
    beats = iter(range(0, 100_000, int(BEAT_EVERY_S * 1000 + late_ms)))
    beat = next(beats)
    for tick in range(100):
        now_ms = tick * (TICK_MS + late_ms)
        while beat <= now_ms:
            one.heard(1, 0, beat)
            beat = next(beats)
        one.suspect(now_ms)
        assert one.suspected == []
    for tick in range(100, 100 + int(2 * SUSPECT_MS_MIN / TICK_MS)):
        one.suspect(tick * (TICK_MS + late_ms))
    assert one.suspected == [1]
