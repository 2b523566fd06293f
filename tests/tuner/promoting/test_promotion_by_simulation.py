"""Synthetic tunings: equals are not promoted, a true gain is found, and no drift, spike or heavy
tail promotes anything. A race runs as finals do: losers are dropped, until it is decided."""

import random
from collections.abc import Callable, Sequence

import pytest

from tuner.measuring.samples import LOOK, paired_us
from tuner.promoting.finals import ROUNDS
from tuner.promoting.racing import PROOF_ROUNDS, going_on
from tuner.promoting.verdict import MIN_ROUNDS, decide, proven

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
    return lambda: (1.1 if next(taken) > 2 * PROOF_ROUNDS else 1.0) * draw.gauss(1.0, 0.01)


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


AT_PLACES = (
    *(6.405, 6.377, 6.285, 6.174, 6.319, 6.218, 6.152, 6.166, 6.748, 6.165, 6.228, 6.227, 6.201),
    *(6.194, 6.281, 6.231, 6.437, 6.417, 6.247, 6.222, 6.259, 6.580, 6.483, 6.361, 6.319, 6.192),
)
"""Microseconds of one config on an H200, its operands at as many places in memory."""


def places(draw: random.Random) -> Callable[[], float]:
    """A walk goes through four places, other ones in each round, as the policy of GPUs says."""
    return lambda: draw.gauss(1.0, 0.003) * sum(draw.choices(AT_PLACES, k=4)) / 25.2


NOISES: tuple[Noise, ...] = (
    *(plain, drift, step, wandering, spikes, heavy_tails, log_normal, places),
)


def race(noise: Noise, factors: Sequence[float], seed: int) -> int:
    """Index of the winner of a simulated final of configs that take `factors` of one time."""
    clock = noise(random.Random(seed))
    sides = [lambda factor=factor: 100.0 * factor * clock() for factor in factors]
    return decide(run(sides, seed)).winner


def run(sides: Sequence[Callable[[], float]], seed: int) -> list[list[float]]:
    def racing(taken: list[list[float]]) -> list[int]:
        return going_on(taken, len(taken[0]) % PROOF_ROUNDS == 0)

    return paired_us(sides, ROUNDS, lambda: 1.0, seed, racing)


def share(noise: Noise, factors: Sequence[float], winner: int, tunings: int) -> float:
    return sum(race(noise, factors, seed) == winner for seed in range(tunings)) / tunings


EQUALS = (1.0,) * 7
"""The incumbent, and six finalists that are it under another name."""

FIELD = (1.0, 1.0, 0.95, 1.03, 0.99, 1.1)
"""One that gains five percent, among others."""


def check(noise: Noise, tunings: int) -> None:
    assert 1.0 - share(noise, EQUALS, 0, tunings) <= 0.01
    assert share(noise, FIELD, 2, tunings) >= 0.95
    assert share(noise, (1.0, 1.05, 0.99), 0, tunings) >= 0.99


@pytest.mark.parametrize("noise", NOISES)
def test_equals_are_not_promoted_and_a_gain_is_found(noise):
    check(noise, 10)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_500_tunings_promote_no_equals_and_find_a_gain(noise, record_property):
    record_property("simulated_tunings", 500)
    check(noise, 500)


def test_a_race_of_equals_ends_early():
    """48 rounds are taken only where noise hides what a decision needs."""
    draw = random.Random(0)
    sides = [lambda: 100.0 * draw.gauss(1.0, 0.003) for _ in EQUALS]
    assert len(run(sides, 0)[0]) == LOOK


def test_a_loser_runs_the_first_rounds_alone():
    draw = random.Random(1)
    factors = (1.0, 1.5, 0.9)
    sides = [lambda f=f: 100.0 * f * draw.gauss(1.0, 0.003) for f in factors]
    taken = run(sides, 1)
    assert [len(side) for side in taken] == [PROOF_ROUNDS, LOOK, PROOF_ROUNDS]
    assert decide(taken).winner == 2


def test_few_rounds_prove_nothing():
    challenger, incumbent = [50.0] * MIN_ROUNDS, [100.0] * MIN_ROUNDS
    assert proven(challenger, incumbent)
    assert not proven(challenger[1:], incumbent[1:])


def test_rounds_that_disagree_prove_nothing():
    """Seven of twelve rounds in favour, by however much, may be luck."""
    incumbent = [100.0] * 12
    assert not proven([50.0] * 7 + [100.0] * 5, incumbent)
    assert proven([50.0] * 12, incumbent)
