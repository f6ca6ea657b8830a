"""Messages taken up late: in order, never early, and at once when the lateness ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dadstorm.late import Late

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("slow"), st.integers(0, 50)),
        st.tuples(st.just("time"), st.integers(0, 30)),
        st.tuples(st.just("item"), st.booleans()),
    )
)


def test_what_others_say_is_late_and_the_puppetmaster_is_not() -> None:
    late: Late[str] = Late(0, 1)
    late.slow(100)
    assert late.pass_on(["tiles", "status"], [True, False], 0) == ["status"]
    assert late and late.pass_on([], [], 99) == []
    assert late.pass_on(["more"], [True], 100) == ["tiles"]
    assert late.pass_on([], [], 200) == ["more"] and not late


def test_without_lateness_nothing_is_held() -> None:
    late: Late[int] = Late(0, 1)
    assert late.pass_on([1, 2], [True, False], 0) == [1, 2] and not late


def test_what_is_held_is_let_go_when_the_lateness_ends() -> None:
    late: Late[int] = Late(0, 1)
    late.slow(10_000)
    assert late.pass_on([1, 2], [True, True], 0) == []
    late.slow(0)
    assert late.pass_on([3], [True], 1) == [1, 2, 3]


@given(STEPS, st.sampled_from([0, 20]))
def test_order_is_kept_and_nothing_is_lost(steps: list[tuple[str, int]], shake_ms: int) -> None:
    late: Late[int] = Late(shake_ms, 7)
    now, number, out = 0.0, 0, []
    for what, value in steps:
        if what == "slow":
            late.slow(value)
        elif what == "time":
            now += value
            out += late.pass_on([], [], now)
        else:
            out += late.pass_on([number], [True], now)
            number += 1
    out += late.pass_on([], [], now + 1000)
    assert out == list(range(number)) and not late
