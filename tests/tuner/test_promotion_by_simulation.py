"""Synthetic tunings: equals are not promoted, a true gain is found, and no drift, spike or heavy
tail promotes anything. A race runs as finals do: looked at every BATCH rounds until it is decided.
"""

import random
from collections.abc import Callable, Sequence

import pytest

from tuner.finals import ROUNDS
from tuner.measure import BATCH, paired_us
from tuner.promote import MIN_ROUNDS, decide, proven, undecided

Noise = Callable[[random.Random], Callable[[], float]]


def plain(draw: random.Random) -> Callable[[], float]:
    return lambda: draw.gauss(1.0, 0.02)


def drift(draw: random.Random) -> Callable[[], float]:
    """The clock falls by 10 % over the race."""
    taken = iter(range(10**6))
    return lambda: (1.0 + 0.1 * next(taken) / (4 * ROUNDS)) * draw.gauss(1.0, 0.01)


def step(draw: random.Random) -> Callable[[], float]:
    """The clock falls by 10 % at once."""
    taken = iter(range(10**6))
    return lambda: (1.1 if next(taken) > 2 * BATCH else 1.0) * draw.gauss(1.0, 0.01)


def wandering(draw: random.Random) -> Callable[[], float]:
    """The clock goes back and forth between two states, a few samples each."""
    state = [1.0]

    def sample() -> float:
        if draw.random() < 0.15:
            state[0] = 1.1 if state[0] == 1.0 else 1.0
        return state[0] * draw.gauss(1.0, 0.01)

    return sample


def spikes(draw: random.Random) -> Callable[[], float]:
    """One sample in ten takes up to three times as long."""
    return lambda: draw.gauss(1.0, 0.01) + (draw.uniform(0.2, 2.0) if draw.random() < 0.1 else 0.0)


def heavy_tails(draw: random.Random) -> Callable[[], float]:
    """Student's t with two degrees of freedom, one-sided: its variance is infinite."""
    return lambda: 1.0 + abs(0.015 * draw.gauss(0.0, 1.0)) / (draw.gammavariate(1.0, 1.0) ** 0.5)


def log_normal(draw: random.Random) -> Callable[[], float]:
    return lambda: 1.0 + 0.03 * draw.lognormvariate(0.0, 0.5)


NOISES: tuple[Noise, ...] = (plain, drift, step, wandering, spikes, heavy_tails, log_normal)


def race(noise: Noise, factors: Sequence[float], seed: int) -> int:
    """Index of the winner of a simulated final of configs that take `factors` of one time."""
    clock = noise(random.Random(seed))
    sides = [lambda factor=factor: 100.0 * factor * clock() for factor in factors]
    taken = paired_us(sides, ROUNDS, lambda: 1.0, seed, lambda so_far: not undecided(so_far))
    return decide(taken).winner


def share(noise: Noise, factors: Sequence[float], winner: int, tunings: int) -> float:
    return sum(race(noise, factors, seed) == winner for seed in range(tunings)) / tunings


EQUALS = (1.0, 1.0, 1.0, 1.0)
"""The incumbent, and three finalists that are it under another name."""


def check(noise: Noise, tunings: int) -> None:
    assert 1.0 - share(noise, EQUALS, 0, tunings) <= 0.01
    assert share(noise, (1.0, 1.0, 0.95), 2, tunings) >= 0.95
    assert share(noise, (1.0, 1.05, 0.99), 0, tunings) >= 0.99


@pytest.mark.parametrize("noise", NOISES)
def test_equals_are_not_promoted_and_a_gain_is_found(noise):
    check(noise, 10)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_500_tunings_promote_no_equals_and_find_a_gain(noise):
    check(noise, 500)


def test_a_race_of_equals_ends_early():
    """48 rounds are taken only where noise hides what a decision needs."""
    draw = random.Random(0)
    sides = [lambda: 100.0 * draw.gauss(1.0, 0.003) for _ in EQUALS]
    taken = paired_us(sides, ROUNDS, lambda: 1.0, 0, lambda so_far: not undecided(so_far))
    assert len(taken[0]) == BATCH


def test_few_rounds_prove_nothing():
    challenger, incumbent = [50.0] * MIN_ROUNDS, [100.0] * MIN_ROUNDS
    assert proven(challenger, incumbent)
    assert not proven(challenger[1:], incumbent[1:])


def test_rounds_that_disagree_prove_nothing():
    """Seven of twelve rounds in favour, by however much, may be luck."""
    incumbent = [100.0] * 12
    assert not proven([50.0] * 7 + [100.0] * 5, incumbent)
    assert proven([50.0] * 12, incumbent)
