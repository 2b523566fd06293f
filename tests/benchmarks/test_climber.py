"""The climber proposes each legal candidate once, seeds first, and goes where the best is."""

import pytest

from benchmarks.climber import Climber
from benchmarks.tpe import Samplers
from humming.spec.config import config_id
from tests.tuner.searching.test_sampler import LEGAL, PARAMETERS


def hill(config):
    return 100.0 + config.block_n + 8 * config.unroll + abs(config.block_m - 2)


def drain(climber, most=10**6):
    proposed = []
    while len(proposed) < most and (config := climber.ask()) is not None:
        proposed.append(config_id(config))
        climber.tell(config, hill(config))
    return proposed


@pytest.mark.parametrize("source", [None, Samplers({"cpu": LEGAL}, {"cpu": PARAMETERS}, [])])
def test_every_legal_candidate_is_proposed_once_and_nothing_else(source):
    climber = Climber(LEGAL, source=source)
    assert sorted(drain(climber)) == sorted(LEGAL)
    assert climber.exhausted and climber.ask() is None


def test_seeds_come_first_and_what_is_known_is_not_proposed():
    seeds = list(LEGAL.values())[5:8]
    climber = Climber(LEGAL, seeds)
    climber.know(seeds[0], 100.0)
    climber.know(next(iter(LEGAL.values())), None)
    proposed = drain(climber)
    assert proposed[:2] == [config_id(seed) for seed in seeds[1:]]
    assert len(proposed) == len(LEGAL) - 2


def test_it_climbs():
    least = min(hill(config) for config in LEGAL.values())
    taken = []
    for seed in range(9):
        proposed = drain(Climber(LEGAL, seed=seed))
        taken.append(next(i for i, key in enumerate(proposed) if hill(LEGAL[key]) == least))
    assert sorted(taken)[4] < len(LEGAL) // 4
