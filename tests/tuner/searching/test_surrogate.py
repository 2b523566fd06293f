"""The surrogate proposes each legal candidate once, seeds first, learns which knobs matter, and
knows when little is left to gain."""

import math
from pathlib import Path

import pytest

from benchmarks.replay import compare, read_sweep, summary
from humming.spec.config import SkinnyConfig, config_id
from tests.tuner.searching.test_sampler import LEGAL
from tuner.promoting.verdict import MIN_EFFECT
from tuner.searching.stopping import MIN_TRIALS, PATIENCE, stop
from tuner.searching.surrogate import Surrogate

SWEEPS = sorted((Path(__file__).parents[3] / "benchmarks" / "results").glob("sweep_*.json"))


def hill(config):
    return 100.0 * (1 + abs(math.log2(config.block_n / 32))) * (1 + 0.2 * (config.unroll == 1))


def drain(searcher, most=10**6):
    proposed = []
    while len(proposed) < most and (config := searcher.ask()) is not None:
        proposed.append(config_id(config))
        searcher.tell(config, hill(config))
    return proposed


def test_every_legal_candidate_is_proposed_once_and_nothing_else():
    searcher = Surrogate(LEGAL)
    assert sorted(drain(searcher)) == sorted(LEGAL)
    assert searcher.exhausted and searcher.ask() is None and searcher.expected_gain() == 0.0


def test_seeds_come_first_and_what_is_known_is_not_proposed():
    seeds = list(LEGAL.values())[5:8]
    searcher = Surrogate(LEGAL, seeds)
    searcher.know(seeds[0], 100.0)
    searcher.know(next(iter(LEGAL.values())), None)
    proposed = drain(searcher)
    assert proposed[:2] == [config_id(seed) for seed in seeds[1:]]
    assert len(proposed) == len(LEGAL) - 2


def test_what_fails_is_not_proposed_again_and_teaches_no_time():
    searcher, seen = Surrogate(LEGAL), set()
    while (config := searcher.ask()) is not None:
        assert config_id(config) not in seen
        seen.add(config_id(config))
        searcher.tell(config, None)
    assert len(seen) == len(LEGAL)


def test_it_finds_the_best_early_and_then_expects_little():
    least = min(map(hill, LEGAL.values()))
    for seed in range(5):
        searcher = Surrogate(LEGAL, seed=seed)
        assert searcher.expected_gain() == 1.0
        first = drain(searcher, len(LEGAL) // 2)
        place = next(i for i, key in enumerate(first) if hill(LEGAL[key]) == least)
        assert place < len(LEGAL) // 2
        assert searcher.expected_gain() < 0.1


def test_families_are_searched_together():
    other = SkinnyConfig(1, 1, 4, 1, 2, 1, 1, 2, 1, 0, 0)
    legal = {**LEGAL, config_id(other): other}
    searcher = Surrogate(legal)
    found = set()
    while (config := searcher.ask()) is not None:
        found.add(config.family)
        searcher.tell(config, 100.0)
    assert found == {"cpu", "skinny"}


def test_a_search_ends_by_rule_only_when_all_three_say_so():
    assert stop(MIN_TRIALS, PATIENCE, MIN_EFFECT / 2)
    assert not stop(MIN_TRIALS - 1, PATIENCE, MIN_EFFECT / 2)
    assert not stop(MIN_TRIALS, PATIENCE - 1, MIN_EFFECT / 2)
    assert not stop(MIN_TRIALS, PATIENCE, MIN_EFFECT)


def test_both_sweeps_are_there():
    assert len(SWEEPS) == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_on_recorded_sweeps_it_beats_chance_and_stops_close_to_the_best(path):
    found = summary(compare(read_sweep(path), 3, ("random", "surrogate")))
    assert found["surrogate"]["mean_to_goal"] < 0.6 * found["random"]["mean_to_goal"]
    assert found["surrogate"]["mean_regret"] < 0.01
