"""Losers are dropped by their interval, never the one that will win."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from humming.dispatch.medians import interval_of_median
from tuner.measuring.policy import CPU
from tuner.measuring.samples import samples_us, warm_up
from tuner.promoting.racing import going_on
from tuner.promoting.verdict import decide

values = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=60)


@given(values)
@settings(deadline=None)
def test_the_interval_lies_in_the_range_and_around_the_middle(times):
    low, high = interval_of_median(times)
    ordered = sorted(times)
    assert low in ordered and high in ordered
    assert low <= ordered[len(ordered) // 2] and high >= ordered[(len(ordered) - 1) // 2]


def test_the_interval_holds_the_median_as_often_as_it_says():
    draw = random.Random(5)
    for count in (6, 12, 24, 48):
        held = 0
        for _ in range(1000):
            low, high = interval_of_median([draw.expovariate(1.0) for _ in range(count)])
            held += low <= 0.6931 <= high
        assert held >= 935, count


def test_a_sure_loser_goes_and_the_incumbent_stays():
    incumbent = [100.0 + r for r in range(12)]
    assert going_on([incumbent, [2 * us for us in incumbent]]) == [0]
    assert going_on([incumbent, [0.9 * us for us in incumbent]], False) == [0, 1]
    slower = [0.95 * us for us in incumbent]
    assert going_on([incumbent, slower, [0.8 * us for us in incumbent]], False) == [0, 2]


def test_where_no_round_was_clean_all_go_on():
    assert going_on([[], [], []]) == [0, 1, 2]


def test_a_dropped_side_never_comes_back():
    incumbent = [100.0] * 12
    assert going_on([incumbent, [50.0] * 6, [90.0] * 12], False) == [0, 2]


def test_what_races_to_the_end_is_decided_by_the_rounds_that_both_ran():
    """The clock falls after a loser was dropped: only the first rounds of others are like its."""
    incumbent = [100.0] * 12 + [130.0] * 12
    winner = [80.0] * 12 + [104.0] * 12
    dropped = [82.0] * 12
    assert decide([incumbent, dropped, winner]).winner == 2


def test_a_losing_candidate_is_timed_no_further():
    slow, fast = iter([200.0, 180.0, 150.0] + [150.0] * 9), iter([200.0] * 3 + [100.0] * 9)
    assert len(samples_us(lambda: next(slow), CPU, best_us=100.0)) == CPU.least_samples
    assert len(samples_us(lambda: next(fast), CPU, best_us=None)) == CPU.samples
    close = iter([110.0] * 20)
    assert len(samples_us(lambda: next(close), CPU, best_us=100.0)) == CPU.samples


def test_warming_up_ends_when_the_clock_is_steady_or_time_is_over():
    falling = iter([200.0, 150.0, 120.0, 101.0, 100.0, 100.5, 100.0])
    warmed = warm_up(lambda: next(falling), CPU, now=lambda: 0.0)
    assert (warmed.samples, warmed.steady) == (6, True)
    clock, draw = iter(0.03 * r for r in range(99)), random.Random(0)
    warmed = warm_up(lambda: draw.uniform(1.0, 9.0), CPU, now=lambda: next(clock))
    assert not warmed.steady and warmed.samples <= 8
