"""Lost hosts: who may say so, what can move, where to, and under which number."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm import topology
from dadstorm.core.messages import Peer
from dadstorm.plan import Plan
from pcs.takeover import MASTER, Watch, beyond_help, candidates, hosts_of, next_incarnation, patience_s

PATIENCE = 2.0


def watch(me: str, hosts: str) -> Watch:
    return Watch(hosts.split(), me, PATIENCE, 0.0)


def pass_time(watched: Watch, until: float, words: dict[str, tuple[str, ...]], start: float = 0.0) -> None:
    """Every quarter of a second the voters say whom they do not hear."""
    for step in range(int(start * 4), int(until * 4) + 1):
        for host, silent in words.items():
            watched.heard(host, silent, step / 4)
        watched.look(step / 4)


# -- who is lost ------------------------------------------------------------------------------------------------------


def test_a_host_is_lost_when_a_majority_does_not_hear_it() -> None:
    b = watch("b", "a b c")
    pass_time(b, 3, {"c": ("a",)})
    assert b.silent(3) == ("a",) and b.lost_for("a", 3) == pytest.approx(0.75)
    assert b.lost_for("c", 3) is None


def test_a_host_that_others_hear_is_only_silent() -> None:
    b = watch("b", "a b c")
    pass_time(b, 3, {"c": ()})
    assert b.silent(3) == ("a",) and b.lost_for("a", 3) is None


def test_a_host_alone_takes_itself_for_the_one_that_is_lost() -> None:
    a = watch("a", "a b c")
    pass_time(a, 5, {})
    assert a.silent(5) == ("b", "c") and a.lost_for("b", 5) is None


def test_of_two_hosts_the_puppetmaster_has_the_third_voice() -> None:
    b = watch("b", "a b")
    pass_time(b, 5, {})
    assert b.lost_for("a", 5) is None
    pass_time(b, 6, {MASTER: ("a",)}, 5)
    assert b.lost_for("a", 6) is not None
    pass_time(b, 7, {MASTER: ()}, 6)
    assert b.lost_for("a", 7) is None and b.objects("a", 7)


def test_of_three_hosts_the_puppetmaster_has_none() -> None:
    b = watch("b", "a b c")
    pass_time(b, 5, {MASTER: ("a", "c")})
    assert b.lost_for("a", 5) is None


def test_old_words_do_not_count() -> None:
    b = watch("b", "a b c")
    pass_time(b, 3, {"c": ("a",)})
    pass_time(b, 8, {}, 3)
    assert b.lost_for("a", 8) is None


def test_a_host_that_is_heard_again_is_not_lost() -> None:
    b = watch("b", "a b c")
    pass_time(b, 3, {"c": ("a",)})
    b.heard("a", (), 3.1)
    b.look(3.2)
    assert b.lost_for("a", 3.2) is None


def test_who_was_away_itself_begins_to_listen_anew() -> None:
    b = watch("b", "a b c")
    pass_time(b, 1, {"a": (), "c": ()})
    b.look(60.0)
    b.heard("c", ("a",), 60.0)
    assert b.silent(60.1) == () and b.lost_for("a", 60.1) is None


def test_strangers_have_no_voice() -> None:
    b = watch("b", "a b c")
    pass_time(b, 5, {"x": ("a",), "y": ("a",)})
    assert b.lost_for("a", 5) is None


@given(st.integers(2, 6), st.data())
def test_never_do_two_sides_of_a_cut_network_take_each_other_for_lost(count: int, data: st.DataObject) -> None:
    """Whoever hears whom, and whomever the PuppetMaster hears: if one takes another for lost, the other hears too few
    to take the one for lost."""
    names = [str(n) for n in range(count)]
    pairs = [(a, b) for a in names for b in names if a < b]
    up = {pair: data.draw(st.booleans()) for pair in pairs}
    hears = {a: {b for b in names if a != b and up[min(a, b), max(a, b)]} for a in names}
    master = {host for host in names if data.draw(st.booleans())}
    lost = {}
    for me in names:
        words = {other: tuple(set(names) - hears[other] - {other}) for other in hears[me]}
        if me in master:
            words[MASTER] = tuple(set(names) - master)
        watched = watch(me, " ".join(names))
        pass_time(watched, 4, words)
        lost[me] = {host for host in names if host != me and watched.lost_for(host, 4) is not None}
    assert not any(b in lost[a] and a in lost[b] for a in names for b in names)


# -- what moves -------------------------------------------------------------------------------------------------------

TOPOLOGY = """
hosts: {a: 127.0.0.1:1, b: 127.0.0.1:2, c: 127.0.0.1:3}
semantics: SEMANTICS
suspect_after: 3s
sources:
  numbers: {generate: {n: counter}, count: 5, on: a}
  live: {tcp: 127.0.0.1:7007, fields: [line], on: b}
operators:
  heard: {input: live, dup: , replicas: 2, on: [b, c]}
  ring: {input: numbers, dup: , replicas: 3, on: [a, b, c]}
  alone: {input: ring, count: , on: a}
sinks:
  file: {input: alone, csv: x.csv, on: c}
  shown: {input: heard, console: }
"""
A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"


def planned(folder: Path, semantics: str = "exactly-once") -> tuple[Plan, dict[Peer, str]]:
    (folder / "t.yaml").write_text(TOPOLOGY.replace("SEMANTICS", semantics))
    plan = topology.load(str(folder / "t.yaml"))
    where = {Peer(i, n): one.host for i, op in enumerate(plan.operators) for n, one in enumerate(op.replicas)}
    return plan, where


def test_what_cannot_be_had_elsewhere_is_named(tmp_path: Path) -> None:
    plan, where = planned(tmp_path)
    (alone,) = beyond_help(plan, where, A)
    assert "operator alone had all its replicas" in alone
    assert beyond_help(plan, where, B) == ["source live listens there"]
    (sink,) = beyond_help(plan, where, C)
    assert sink.startswith("sink file writes ") and sink.endswith("x.csv there")


def test_what_has_moved_or_is_finished_is_no_loss(tmp_path: Path) -> None:
    plan, where = planned(tmp_path)
    alone = Peer(plan.index("alone"), 0)
    assert beyond_help(plan, where | {alone: B}, A) == []
    assert beyond_help(plan, where, A, [alone]) == []


def test_under_at_most_once_state_may_be_lost(tmp_path: Path) -> None:
    plan, where = planned(tmp_path, "at-most-once")
    assert beyond_help(plan, where, A) == []


def test_a_replica_goes_where_few_of_its_ring_are_and_then_where_few_are(tmp_path: Path) -> None:
    plan, where = planned(tmp_path)
    assert set(hosts_of(plan)) == {A, B, C, "localhost"}
    ring = plan.index("ring")
    one, two = Peer(ring, 0), Peer(ring, 2)
    assert candidates(plan, where, one, []) == ["localhost", B, C]
    assert candidates(plan, where | {two: B}, one, ["localhost"]) == [C, B]
    assert candidates(plan, where | {two: B}, one, ["localhost", C]) == [B]
    assert candidates(plan, where, Peer(plan.index("numbers"), 0), []) == ["localhost", B, C]


def test_a_host_may_be_silent_for_twice_as_long_as_a_replica(tmp_path: Path) -> None:
    assert patience_s(planned(tmp_path)[0]) == 6.0


@given(st.integers(0, 1000), st.integers(1, 9))
def test_two_hosts_never_make_the_same_incarnation(known: int, hosts: int) -> None:
    made = [next_incarnation(known, index, hosts) for index in range(hosts)]
    assert len(set(made)) == hosts and all(known < one <= known + hosts for one in made)
    assert [one % hosts for one in made] == list(range(hosts))
