"""The PCS's book of where slices live: each is somewhere, once, and every move outdoes what was before."""

from __future__ import annotations

from core_kit import NUMBER, plan_of

from dadstorm.core.messages import Adopt, Peer
from dadstorm.core.spreading import Spreading
from dadstorm.plan import Operator, Plan, Replica, Routing


def plan() -> Plan:
    three = tuple(Replica("localhost") for _ in range(3))
    source = Operator("source", "source", {}, (), NUMBER, 6, three, Routing("primary"))
    return plan_of(source, recovery="spread")


def adopts(spreading: Spreading) -> dict[int, dict[int, int]]:
    """What each adopter is still to hear: slices and their incarnations."""
    return {adopt.replica: dict(adopt.slices) for adopt in spreading.unheard()}


def test_the_slices_of_the_lost_go_to_the_living_in_turns_from_the_next_one_on() -> None:
    spreading = Spreading(plan())
    assert spreading.slices(Peer(0, 1)) == [2, 3]
    spreading.spread(Peer(0, 1), 0, [0, 2])
    assert adopts(spreading) == {2: {2: 1}, 0: {3: 1}}
    assert [spreading.slices(Peer(0, replica)) for replica in range(3)] == [[0, 1, 3], [], [2, 4, 5]]


def test_an_adopter_that_dies_before_it_has_heard_passes_on_what_it_was_to_have() -> None:
    spreading = Spreading(plan())
    spreading.spread(Peer(0, 1), 0, [0, 2])
    spreading.spread(Peer(0, 2), 0, [0])
    assert adopts(spreading) == {0: {3: 1, 2: 2, 4: 1, 5: 1}}
    spreading.heard(Peer(0, 0), [(3, 1)])
    assert spreading.unheard(), "it has heard of one of them only"
    spreading.heard(Peer(0, 0), [(3, 1), (2, 2), (4, 1), (5, 1)])
    assert not spreading.unheard()


def test_what_an_adopter_of_another_host_never_heard_of_is_taken_back_and_the_rest_of_it_is_not() -> None:
    spreading = Spreading(plan())
    spreading.spread(Peer(0, 1), 0, [0, 2])
    assert spreading.take_back(Peer(0, 2)) == Peer(0, 1)
    assert [spreading.slices(Peer(0, replica)) for replica in range(3)] == [[0, 1, 3], [2], [4, 5]]
    spreading.spread(Peer(0, 1), 0, [0])
    assert adopts(spreading) == {0: {3: 1, 2: 3}}, "each time in a higher incarnation"


def test_with_nobody_left_the_last_one_resumes_them_all() -> None:
    spreading = Spreading(plan())
    spreading.spread(Peer(0, 1), 0, [0])
    spreading.spread(Peer(0, 2), 0, [0])
    assert spreading.respawn(Peer(0, 0)) == {0: 1, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2}
    assert not spreading.unheard(), "what it was to hear died with it"


def test_who_begins_again_before_it_has_done_anything_has_its_slices_in_its_own_incarnation() -> None:
    spreading = Spreading(plan())
    spreading.reborn(Peer(0, 1), 3)
    spreading.spread(Peer(0, 1), 3, [2])
    assert adopts(spreading) == {2: {2: 4, 3: 4}}


def test_two_hosts_that_do_not_hear_of_each_other_choose_different_incarnations() -> None:
    """On either side of a cut network the same slice is given to somebody; one of the two outdoes the other."""
    one = Spreading(plan(), lambda known: known + 1 + (0 - known - 1) % 2)
    other = Spreading(plan(), lambda known: known + 1 + (1 - known - 1) % 2)
    one.spread(Peer(0, 1), 0, [0])
    other.spread(Peer(0, 1), 0, [2])
    assert adopts(one) == {0: {2: 2, 3: 2}} and adopts(other) == {2: {2: 1, 3: 1}}


def test_a_pcs_that_takes_the_place_of_another_knows_all_of_it() -> None:
    spreading, after = Spreading(plan()), Spreading(plan())
    spreading.spread(Peer(0, 1), 0, [0, 2])
    after.restore(spreading.book())
    assert after.book() == spreading.book()
    assert after.unheard() == [Adopt(0, 2, 1, 0, ((2, 1),)), Adopt(0, 0, 1, 0, ((3, 1),))]
