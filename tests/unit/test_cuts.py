"""Cuts: who may not send to whom, in both directions and no further."""

from __future__ import annotations

from dadstorm import topology
from dadstorm.core.messages import Peer
from dadstorm.wire.cuts import barred
from puppetmaster.partitions import Partitions

CUTS = ((("a", "b"), ("c",)), (("c",), ("d",)))


def test_nothing_passes_in_either_direction() -> None:
    assert barred(CUTS, ["a"]) == {"c"} and barred(CUTS, ["b"]) == {"c"}
    assert barred(CUTS, ["c"]) == {"a", "b", "d"}
    assert barred(CUTS, ["d"]) == {"c"}


def test_who_is_on_no_side_is_not_concerned() -> None:
    assert barred(CUTS, ["e"]) == frozenset() and barred((), ["a"]) == frozenset()


def test_who_is_on_both_sides_is_cut_off_from_all_others_and_not_from_itself() -> None:
    assert barred(((("a", "b", "c"), ("b",)),), ["b"]) == {"a", "c"}
    assert barred(((("a", "b", "c"), ("b",)),), ["a"]) == {"b"}


def test_somebody_with_two_addresses_is_on_a_side_with_either() -> None:
    assert barred(CUTS, ["x", "d"]) == {"c"}


def test_sides_in_addresses(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "h.yaml").write_text(
        "hosts: {left: 127.0.0.2, right: 127.0.0.3}\nsources: {n: {generate: {n: counter}, count: 3}}\n"
        "operators: {a: {input: n, dup: , replicas: 2, on: [left, right]}}\n"
    )
    plan = topology.load(str(tmp_path / "h.yaml"))
    addresses = {Peer(i, n): f"{one.name}{n}" for i, one in enumerate(plan.operators) for n in range(len(one.replicas))}
    hosts = {peer: plan.operators[peer.operator].replicas[peer.replica].host for peer in addresses}
    partitions = Partitions(plan, [("left", "right"), ("a", "n"), ("a/1", "localhost")])
    cuts = partitions.cuts(addresses, hosts, lambda host: (f"pcs {host}",))
    assert cuts == (
        (("pcs 127.0.0.2:10000", "a0"), ("pcs 127.0.0.3:10000", "a1")),
        (("a0", "a1"), ("n0",)),
        (("a1",), ("pcs localhost", "n0", "a.sink0")),
    )
