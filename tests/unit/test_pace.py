"""When a source is looked at again, and how large steps are."""

from __future__ import annotations

import pytest

from dadstorm.pace import LATE_SHARE, REST_MS_MAX, STEP_MS_GOAL, STEP_ROWS_FIRST, STEP_ROWS_MAX, Rest, Steps

FLUSH_MS = 100.0


def test_a_source_that_has_more_is_looked_at_at_once() -> None:
    rest = Rest(FLUSH_MS)
    rest.looked(0.0, 5.0, more=True)
    assert rest.left_ms(5.0, []) == 0
    assert rest.due(5.0, [], [])


def test_one_that_trickles_rests_longer_the_longer_a_look_takes() -> None:
    quick, slow, slowest = Rest(FLUSH_MS), Rest(FLUSH_MS), Rest(FLUSH_MS)
    quick.looked(0.0, 0.1, more=False)
    slow.looked(0.0, 3.0, more=False)
    slowest.looked(0.0, 500.0, more=False)
    assert 0 < quick.left_ms(0.1, []) < slow.left_ms(3.0, []) < slowest.left_ms(500.0, []) == REST_MS_MAX


def test_who_is_woken_late_rests_longer() -> None:
    rest = Rest(FLUSH_MS)
    rest.looked(0.0, 0.1, more=False)
    short = rest.left_ms(0.1, [])
    assert rest.over(10.0)
    rest.looked(30.0, 30.1, more=False)
    assert short < rest.left_ms(30.1, []) == pytest.approx(min(REST_MS_MAX, LATE_SHARE * (10.0 - 0.1 - short)))


def test_what_wakes_during_a_rest_waits_for_its_end() -> None:
    rest = Rest(FLUSH_MS)
    rest.looked(0.0, 1.0, more=False)
    left = rest.left_ms(1.0, [7])
    assert not rest.due(1.0, [7], {7})
    assert rest.due(1.0 + left, [7], {7})


def test_nothing_new_is_a_flush_now_and_then() -> None:
    rest = Rest(FLUSH_MS)
    rest.looked(0.0, 1.0, more=False)
    assert not rest.due(50.0, [7], set())
    assert rest.left_ms(50.0, [7]) == 51.0
    assert rest.due(101.0, [7], set())


def test_without_file_descriptors_there_is_nothing_to_wait_for_but_the_rest() -> None:
    rest = Rest(FLUSH_MS)
    rest.looked(0.0, 1.0, more=False)
    assert rest.due(1.0 + rest.left_ms(1.0, []), [], set())


def test_steps_grow_while_they_are_short_and_shrink_when_they_are_long() -> None:
    steps = Steps()
    for _ in range(50):
        steps.took(0.1)
    assert steps.rows == STEP_ROWS_MAX
    for _ in range(50):
        steps.took(10 * STEP_MS_GOAL)
    assert steps.rows == 1
    fresh = Steps()
    fresh.took(STEP_MS_GOAL)
    assert fresh.rows == STEP_ROWS_FIRST
