"""Promotion is decided from samples alone: noise promotes nothing, a true gain is found."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.promoting.verdict import MIN_EFFECT, decide, paired_ratio

times = st.lists(st.floats(1.0, 1e6), min_size=3, max_size=12)


def noisy(draw: random.Random, factor: float, drift: list[float]) -> list[float]:
    return [factor * d * draw.gauss(1.0, 0.01) for d in drift]


@given(times)
def test_a_config_never_beats_itself(samples):
    assert decide([samples, samples]).winner == 0


@given(times, st.floats(0.1, 10.0))
def test_the_ratio_of_a_scaled_copy_is_its_scale(samples, scale):
    interval = paired_ratio([scale * s for s in samples], samples)
    assert interval.low == pytest.approx(scale) and interval.high == pytest.approx(scale)
    assert interval.low <= interval.ratio <= interval.high


def test_noise_and_drift_promote_nothing_and_a_five_percent_gain_is_found():
    draw = random.Random(7)
    wrong = found = 0
    for _ in range(200):
        drift = [1.0 + 0.1 * r / 12 for r in range(12)]
        incumbent = noisy(draw, 100.0, drift)
        wrong += decide([incumbent, noisy(draw, 100.0, drift)]).winner != 0
        found += decide([incumbent, noisy(draw, 95.0, drift)]).winner == 1
    assert wrong <= 2
    assert found >= 190


@given(st.integers(0, 5))
@settings(max_examples=6)
def test_the_fastest_proven_challenger_wins_wherever_it_stands(place):
    rounds = [[100.0 + r for r in range(8)]] + [[90.0 + r for r in range(8)] for _ in range(6)]
    rounds[1 + place] = [50.0 + r for r in range(8)]
    assert decide(rounds).winner == 1 + place


def test_a_gain_under_the_minimum_effect_keeps_the_incumbent():
    incumbent = [100.0] * 8
    assert decide([incumbent, [100.0 * (1 - MIN_EFFECT / 2)] * 8]).winner == 0


def test_the_same_samples_give_the_same_verdict():
    draw = random.Random(3)
    rounds = [noisy(draw, f, [1.0] * 10) for f in (100.0, 97.0, 96.0)]
    assert decide(rounds) == decide(rounds)
